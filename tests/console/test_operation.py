"""The queue, the settings and the doctor, as the console shows them."""

from __future__ import annotations

from pathlib import Path

from tests.console.browsers import logged_in
from tests.e2e.server import Server
from tests.platform.fakes import ScriptedProvider
from tests.platform.world import ADMIN, Served, scripted

from sandlot.platform.core.model import Webhook


async def test_the_queue_says_who_waits_and_why_and_to_users_only_their_own(tmp_path: Path) -> None:
    async with (
        Served(tmp_path, scripted(running=1), {"scripted": ScriptedProvider()}) as served,
        logged_in(served.url, ADMIN) as admin,
        logged_in(served.url, await served.key("bob")) as bob,
    ):
        for user in ("ada", "eve"):
            body = {"user_id": user, "session_id": "work", "wait": 30 if user == "ada" else 0}
            assert (await admin.post("/sandboxes/create", json=body)).status_code < 300
        found = (await admin.get("/console/api/queue")).json()
        assert (found["running"], found["limit"]) == (1, 1)
        assert [(row["user_id"], row["position"]) for row in found["waiting"]] == [("eve", 1)]
        assert "in use" in found["waiting"][0]["reason"]
        assert (await bob.get("/console/api/queue")).json()["waiting"] == []


async def test_a_provider_without_grants_gives_the_plain_address_of_a_port(tmp_path: Path) -> None:
    async with (
        Served(tmp_path, scripted(), {"scripted": ScriptedProvider()}) as served,
        logged_in(served.url, await served.key("ada")) as ada,
    ):
        made = (await ada.post("/sandboxes/create", json={"wait": 30})).json()
        answer = await ada.post(f"/console/api/sandboxes/{made['sandbox_id']}/ports/8000/grant")
        assert answer.status_code == 200, answer.text
        assert "8000" in answer.json()["url"] and not answer.json()["one_time"] and not answer.json()["expires_at"]


async def test_settings_are_for_admins_and_hold_no_secrets(tmp_path: Path) -> None:
    hook = Webhook(name="chat", url="https://hooks.example/T0/very-secret", secret="also-secret")
    config = scripted(webhooks=[hook])
    async with (
        Served(tmp_path, config, {"scripted": ScriptedProvider()}) as served,
        logged_in(served.url, ADMIN) as admin,
        logged_in(served.url, await served.key("bob")) as bob,
    ):
        answer = await admin.get("/console/api/settings")
        assert answer.json()["webhooks"] == [
            {"name": "chat", "host": "hooks.example", "types": None, "waiting": 0, "given_up": 0, "problem": None}
        ]
        assert answer.json()["providers"][0] == {
            "name": "scripted",
            "kind": "local",
            "is_default": True,
            "problem": None,
        }
        assert "secret" not in answer.text
        assert (await admin.get("/console/api/doctor")).json() == {"findings": []}, "it has no host of its own"
        for path in ("settings", "doctor"):
            assert (await bob.get(f"/console/api/{path}")).status_code == 403


async def test_the_doctors_findings_come_with_what_to_do(engine: Server) -> None:
    async with logged_in(f"http://127.0.0.1:{engine.port}", engine.key) as admin:
        answer = await admin.get("/console/api/doctor", timeout=110)
        assert answer.status_code == 200, answer.text
        findings = answer.json()["findings"]
        assert "kernel" in {row["name"] for row in findings}
        assert all(row["ok"] or row["problem"] for row in findings)
