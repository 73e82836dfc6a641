"""The sandbox routes, as both SDK generations call them."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.api.servers import Doors, now, open_doors

from sandlot.engine.core.model import LogEntry


async def test_a_sandbox_is_created_found_and_killed(doors: Doors) -> None:
    created = await doors.create(metadata={"user": "ada"}, envVars={"A": "1"})
    assert created["templateID"] == created["alias"] == "base" and created["envdVersion"] == "0.6.13"
    assert len(created["envdAccessToken"]) >= 32 and "trafficAccessToken" not in created
    sandbox_id = created["sandboxID"]
    async with doors.client() as client:
        found = await client.get(f"/sandboxes/{sandbox_id}")
        assert found.status_code == 200
        detail = found.json()
        assert detail["metadata"] == {"user": "ada"} and detail["state"] == "running"
        assert detail["lifecycle"] == {"autoResume": False, "onTimeout": "kill"}
        assert detail["isolation"] == found.headers["X-Sandlot-Isolation"] == "none"
        older = await client.get(f"/sandboxes/{sandbox_id}-{created['clientID']}")
        assert older.json()["sandboxID"] == sandbox_id
        assert (await client.delete(f"/sandboxes/{sandbox_id}")).status_code == 204
        assert (await client.delete(f"/sandboxes/{sandbox_id}")).status_code == 404
        gone = await client.get(f"/sandboxes/{sandbox_id}")
        assert gone.status_code == gone.json()["code"] == 404
    assert doors.node.started[0].env_vars == {"A": "1"} and doors.node.stopped == [sandbox_id]


async def test_the_older_generation_says_whether_to_secure(doors: Doors) -> None:
    async with doors.client() as client:
        open_ = await client.post("/sandboxes", json={"templateID": "base"})
        assert open_.status_code == 201 and "envdAccessToken" not in open_.json()
        detail = (await client.get(f"/sandboxes/{open_.json()['sandboxID']}")).json()
        lived = datetime.fromisoformat(detail["endAt"]) - datetime.fromisoformat(detail["startedAt"])
        assert lived == timedelta(seconds=15)
        body = {"templateID": "base", "secure": True, "allow_internet_access": True, "timeout": 60, "autoPause": False}
        secured = await client.post("/sandboxes", json=body)
        assert secured.status_code == 201 and secured.json()["envdAccessToken"]
        private = {"templateID": "base", "network": {"allowPublicTraffic": False}}
        assert (await client.post("/sandboxes", json=private)).status_code == 400
        assert (await client.post("/sandboxes", json={**private, "secure": True})).json()["trafficAccessToken"]


async def test_the_default_time_to_live_of_the_newer_generation_is_five_minutes(doors: Doors) -> None:
    created = await doors.create()
    async with doors.client() as client:
        detail = (await client.get(f"/sandboxes/{created['sandboxID']}")).json()
    lived = datetime.fromisoformat(detail["endAt"]) - datetime.fromisoformat(detail["startedAt"])
    assert lived == timedelta(seconds=300)


async def test_a_repeat_with_the_same_key_gives_the_same_sandbox(doors: Doors) -> None:
    async with doors.client() as client:
        client.headers["Idempotency-Key"] = "abc-123"
        first = await client.post("/v2/sandboxes", json={"templateID": "base"})
        again = await client.post("/v2/sandboxes", json={"templateID": "base"})
        assert first.status_code == again.status_code == 201
        assert first.json() == again.json() and len(doors.node.started) == 1
        other = await client.post("/v2/sandboxes", json={"templateID": "base", "timeout": 60})
        assert other.status_code == 409
        client.headers["Idempotency-Key"] = "no spaces"
        assert (await client.post("/v2/sandboxes", json={"templateID": "base"})).status_code == 400


@pytest.mark.parametrize("path", ["/v2/sandboxes/{}/connect", "/sandboxes/{}/connect"])
async def test_connecting_puts_the_end_off_and_never_nearer(doors: Doors, path: str) -> None:
    created = await doors.create(timeout=100)
    url = path.format(created["sandboxID"])
    async with doors.client() as client:

        async def end() -> datetime:
            return datetime.fromisoformat((await client.get(f"/sandboxes/{created['sandboxID']}")).json()["endAt"])

        before = await end()
        nearer = await client.post(url, json={"timeout": 10})
        assert nearer.status_code == 200 and await end() == before
        assert nearer.json()["envdAccessToken"] == created["envdAccessToken"]
        assert (await client.post(url, json={"timeout": 1000})).status_code == 200
        assert await end() > before + timedelta(seconds=800)
        assert (await client.post(path.format("inope000"), json={"timeout": 1})).status_code == 404
        without = await client.post(url, json={})
        assert without.status_code == (200 if url.startswith("/v2") else 400)


async def test_resuming_a_running_sandbox_is_a_conflict(doors: Doors) -> None:
    sandbox_id = (await doors.create())["sandboxID"]
    async with doors.client() as client:
        assert (await client.post(f"/sandboxes/{sandbox_id}/resume", json={"timeout": 5})).status_code == 409
        assert (await client.post("/sandboxes/inope000/resume", json={})).status_code == 404


async def test_a_timeout_can_be_set_nearer_and_zero_ends_at_once(doors: Doors) -> None:
    sandbox_id = (await doors.create(timeout=1000))["sandboxID"]
    async with doors.client() as client:
        assert (await client.post(f"/sandboxes/{sandbox_id}/timeout", json={"timeout": 20})).status_code == 204
        end = datetime.fromisoformat((await client.get(f"/sandboxes/{sandbox_id}")).json()["endAt"])
        assert end < now() + timedelta(seconds=21)
        assert (await client.post(f"/sandboxes/{sandbox_id}/refreshes", json={"duration": 600})).status_code == 204
        assert datetime.fromisoformat((await client.get(f"/sandboxes/{sandbox_id}")).json()["endAt"]) > end
        assert (await client.post(f"/sandboxes/{sandbox_id}/refreshes")).status_code == 204
        for wrong in (
            {"timeout": -1},
            {"timeout": "5"},
            {},
            {"timeout": 10**12},
            {"timeout": 86401},
            {"timeout": True},
        ):
            assert (await client.post(f"/sandboxes/{sandbox_id}/timeout", json=wrong)).status_code == 400, wrong
        assert (await client.post(f"/sandboxes/{sandbox_id}/timeout", json={"timeout": 0})).status_code == 204
        assert (await client.get(f"/sandboxes/{sandbox_id}")).status_code == 404
        assert (await client.post(f"/sandboxes/{sandbox_id}/timeout", json={"timeout": 5})).status_code == 404


async def test_pages_lead_from_one_to_the_next(doors: Doors) -> None:
    ids = [(await doors.create())["sandboxID"] for _ in range(5)]
    async with doors.client() as client:
        seen, token = [], ""
        while True:
            page = await client.get("/v2/sandboxes", params={"limit": 2, "nextToken": token, "order": "asc"})
            assert page.status_code == 200 and page.headers["X-Total-Running"] == "5"
            seen += [row["sandboxID"] for row in page.json()]
            token = page.headers.get("x-next-token", "")
            if not token:
                break
        assert seen == ids
        newest_first = await client.get("/v2/sandboxes")
        assert [row["sandboxID"] for row in newest_first.json()] == ids[::-1]
        assert [row["sandboxID"] for row in (await client.get("/sandboxes")).json()] == ids[::-1]


async def test_lists_are_filtered(doors: Doors) -> None:
    first = await doors.create(metadata={"user name": "a&b=c", "x": "1"})
    await doors.create(metadata={"x": "2"})
    async with doors.client() as client:

        async def ids(**params: str) -> list[str]:
            response = await client.get("/v2/sandboxes", params=params)
            assert response.status_code == 200, response.text
            return [row["sandboxID"] for row in response.json()]

        assert await ids(metadata="user%2520name=a%2526b%253Dc&x=1") == [first["sandboxID"]]
        assert await ids(metadata="x=3") == []
        assert len(await ids(state="running,paused")) == 2 and await ids(state="paused") == []
        assert len(await ids(template="base")) == 2 and await ids(template="other") == []
        future = (now() + timedelta(hours=1)).isoformat()
        assert await ids(startedAfter=future) == []
        assert len(await ids(startedAfter="2020-01-01T00:00:00Z")) == 2
        for wrong in (
            {"state": "dead"}, {"limit": "0"}, {"limit": "101"}, {"order": "up"}, {"nextToken": "%%%"},
            {"startedAfter": "soon"}, {"startedAfter": "0001-01-01T00:00:00+14:00"}, {"template": "\0"},
            {"nextToken": "WyIwMDAxLTAxLTAxVDAwOjAwOjAwKzE0OjAwIiwgImkiXQ"},
            {"nextToken": "WyIyMDI2LTAxLTAxVDAwOjAwOjAwKzAwOjAwIiwgIlx1MDAwMCJd"},
        ):  # fmt: skip
            assert (await client.get("/v2/sandboxes", params=wrong)).status_code == 400, wrong


async def test_a_team_sees_only_its_own(doors: Doors) -> None:
    from sandlot.engine.core.model import Team

    created = await doors.create()
    other = Team(id="team_other", name="other", created_at=now())
    await doors.access._store.add_team(other)
    _, secret = await doors.access.create_key(other.id, "theirs")
    async with doors.client(key=secret) as client:
        assert (await client.get("/v2/sandboxes")).json() == []
        for method, path in (("GET", ""), ("DELETE", ""), ("GET", "/metrics"), ("GET", "/logs"), ("GET", "/history")):
            response = await client.request(method, f"/sandboxes/{created['sandboxID']}{path}")
            assert response.status_code == 404
        metrics = await client.get("/sandboxes/metrics", params={"sandbox_ids": created["sandboxID"]})
        assert metrics.json() == {"sandboxes": {}}


async def test_usage_is_kept_and_a_fresh_look_is_taken(doors: Doors) -> None:
    sandbox_id = (await doors.create())["sandboxID"]
    async with doors.client() as client:
        samples = (await client.get(f"/sandboxes/{sandbox_id}/metrics")).json()
        assert len(samples) == 1 and samples[0]["cpuCount"] == 2 and samples[0]["memTotal"] == 1 << 30
        await doors.history.sample_all()
        assert len((await client.get(f"/sandboxes/{sandbox_id}/metrics")).json()) == 2
        future = {"start": samples[0]["timestampUnix"] + 1000}
        assert (await client.get(f"/sandboxes/{sandbox_id}/metrics", params=future)).json() == []
        many = await client.get("/sandboxes/metrics", params={"sandbox_ids": f"{sandbox_id},iunknown"})
        assert list(many.json()["sandboxes"]) == [sandbox_id]
        for wrong in ({"start": "-1"}, {"start": "x"}, {"end": str(10**30)}):
            assert (await client.get(f"/sandboxes/{sandbox_id}/metrics", params=wrong)).status_code == 400
        assert (await client.get("/sandboxes/metrics")).status_code == 400
        await client.delete(f"/sandboxes/{sandbox_id}")
        assert len((await client.get(f"/sandboxes/{sandbox_id}/metrics")).json()) >= 2, "readable after the end"
        many = await client.get("/sandboxes/metrics", params={"sandbox_ids": sandbox_id})
        assert many.json()["sandboxes"] == {}, "but nothing of this moment"
        assert (await client.get("/sandboxes/iunknown/metrics")).status_code == 404


async def test_the_life_of_a_sandbox_is_readable_with_its_forks_and_why_it_ended(doors: Doors) -> None:
    sandbox_id = (await doors.create())["sandboxID"]
    async with doors.client() as client:
        base = f"/sandboxes/{sandbox_id}"
        assert (await client.post(f"{base}/pause")).status_code == 204
        assert (await client.post(f"{base}/connect", json={"timeout": 60})).status_code == 201
        fork = (await client.post(f"{base}/fork", json={"timeout": 60})).json()[0]["sandbox"]["sandboxID"]
        assert (await client.delete(base)).status_code == 204
        life = (await client.get(f"{base}/history")).json()
        kinds = [mark["kind"] for mark in life["marks"]]
        assert kinds == ["created", "paused", "resumed", "saved", "ended"]
        assert life["marks"][-1]["detail"] == life["sandbox"]["endReason"] == "killed"
        assert life["sandbox"]["state"] == "ended" and [one["sandboxID"] for one in life["forks"]] == [fork]
        child = (await client.get(f"/sandboxes/{fork}/history")).json()
        assert child["sandbox"]["source"] == sandbox_id and child["sandbox"]["state"] == "running"
        over = (await client.get("/sandboxes/ended")).json()
        assert [row["sandboxID"] for row in over] == [sandbox_id]
        assert (await client.get("/sandboxes/ended", params={"since": 10**13})).json() == []
        assert (await client.get("/sandboxes/iunknown/history")).status_code == 404


async def test_logs_tell_the_story_also_after_the_end(doors: Doors) -> None:
    created = await doors.create()
    sandbox_id = created["sandboxID"]
    doors.node.entries = [
        LogEntry(at=now(), message="from inside", level="warn", fields={"level": "fake", "logger": "process"}),
        LogEntry(at=now(), message="odd", level="LOUD"),
    ]
    async with doors.client() as client:
        await client.delete(f"/sandboxes/{sandbox_id}")
        logs = (await client.get(f"/sandboxes/{sandbox_id}/logs")).json()
        lines = [json.loads(entry["line"]) for entry in logs["logs"]]
        assert [line["message"] for line in lines] == [
            "creating from base",
            "running",
            "from inside",
            "odd",
            "ended: killed",
        ]
        assert [line["level"] for line in lines] == ["info", "info", "warn", "info", "info"]
        assert [entry["message"] for entry in logs["logEntries"]] == [line["message"] for line in lines]
        one = (await client.get(f"/sandboxes/{sandbox_id}/logs", params={"limit": 1})).json()
        assert len(one["logs"]) == 1

        async def messages(**params: Any) -> list[str]:
            response = await client.get(f"/v2/sandboxes/{sandbox_id}/logs", params=params)
            assert response.status_code == 200, response.text
            return [entry["message"] for entry in response.json()["logs"]]

        assert await messages(level="warn") == ["from inside"]
        assert await messages(search="inside") == ["from inside"]
        assert await messages(direction="backward", limit=1) == ["ended: killed"]
        assert await messages(cursor=2**50) == []
        assert (await client.get("/sandboxes/inope000/logs")).status_code == 404


async def test_the_network_is_replaced_and_what_is_missing_is_cleared(doors: Doors) -> None:
    created = await doors.create(network={"denyOut": ["8.8.8.8"], "maskRequestHost": "a.test"})
    sandbox_id, url = created["sandboxID"], f"/sandboxes/{created['sandboxID']}/network"
    async with doors.client() as client:
        body = {"allowOut": ["*.example.com", "1.1.1.1"], "denyOut": ["0.0.0.0/0"]}
        assert (await client.put(url, json=body)).status_code == 204
        policy = doors.node.policies[sandbox_id]
        assert policy.allow_out == ("*.example.com", "1.1.1.1") and policy.mask_request_host == "a.test"
        assert (await client.put(url, json={"allow_internet_access": False})).status_code == 204
        assert doors.node.policies[sandbox_id].allow_out == ()
        detail = (await client.get(f"/sandboxes/{sandbox_id}")).json()
        assert detail["allowInternetAccess"] is False and "allowOut" not in detail["network"]
        for wrong, status in (
            ({"allowOut": ["example.com"]}, 400),
            ({"denyOut": ["example.com"]}, 400),
            ({"allowOut": "1.1.1.1"}, 400),
            ({"rules": {"a.test": [{"transform": {"headers": "none"}}]}}, 400),
            ({"egressProxy": {"address": "no port"}}, 400),
            ({"dnsServers": ["nope"]}, 400),
        ):
            assert (await client.put(url, json=wrong)).status_code == status, wrong
        assert (await client.put("/sandboxes/inope000/network", json={})).status_code == 404


async def test_what_cannot_be_done_yet_says_so(doors: Doors) -> None:
    async with doors.client() as client:
        for body in (
            {"volumeMounts": [{"name": "v", "path": "/v"}]},
            {"iam": {"tokens": {"a": {"audience": "x", "tokenType": "y"}}}},
        ):
            response = await client.post("/v2/sandboxes", json={"templateID": "base", **body})
            assert response.status_code == 400 and "yet" in response.json()["message"], body
    assert doors.node.started == []


@pytest.mark.parametrize(
    "body",
    [
        {}, {"templateID": 5}, {"templateID": ""}, {"templateID": "base", "timeout": "60"},
        {"templateID": "base", "timeout": 0}, {"templateID": "base", "timeout": 10**10},
        {"templateID": "base", "timeout": 1.5}, {"templateID": "base", "timeout": True},
        {"templateID": "base", "metadata": {"a": 1}}, {"templateID": "base", "metadata": ["a"]},
        {"templateID": "base", "metadata": {"a": "\0"}}, {"templateID": "base", "metadata": {"\0": "a"}},
        {"templateID": "base", "metadata": {"a": "\ud800"}}, {"templateID": "base", "metadata": {"\ud800": "a"}},
        {"templateID": "base", "metadata": {"a": "x" * 70_000}},
        {"templateID": "base", "envVars": {"": "x"}}, {"templateID": "base", "envVars": {"A=B": "x"}},
        {"templateID": "base", "network": {"allowOut": ["bad host"]}}, {"templateID": "base", "network": []},
        {"templateID": "base", "network": {"maskRequestHost": "a b"}},
        {"templateID": "base", "network": {"httpsPorts": [0]}},
        {"templateID": "base", "autoPauseMemory": False},
        {"templateID": "a\0b"}, [], "x", None, 5,
    ],
)  # fmt: skip
async def test_a_body_that_is_wrong_is_a_bad_request(shared: Doors, body: Any) -> None:
    async with shared.client() as client:
        for path in ("/v2/sandboxes", "/sandboxes"):
            response = await client.post(path, content=json.dumps(body), headers={"Content-Type": "application/json"})
            assert response.status_code == 400, response.text
            assert response.json()["code"] == 400 and len(response.json()["message"]) > 10
    assert shared.node.started == []


async def test_an_unknown_template_is_not_found(doors: Doors) -> None:
    async with doors.client() as client:
        response = await client.post("/v2/sandboxes", json={"templateID": "nope"})
        assert response.status_code == 404 and "'nope'" in response.json()["message"]
        assert (await client.post("/v2/sandboxes", json={"templateID": "base:default"})).status_code == 201


async def test_a_full_server_says_so(tmp_path: Path) -> None:
    async with open_doors(tmp_path, max_sandboxes=1) as doors, doors.client() as client:
        await doors.create()
        response = await client.post("/v2/sandboxes", json={"templateID": "base"})
        assert response.status_code == 429 and "SANDLOT_MAX_SANDBOXES" in response.json()["message"]


async def test_the_domain_of_the_server_is_in_its_answers(tmp_path: Path) -> None:
    async with open_doors(tmp_path, domain="sandlot.localhost:3900") as doors:
        created = await doors.create()
        assert created["domain"] == "sandlot.localhost:3900"
        async with doors.client() as client:
            assert (await client.get(f"/sandboxes/{created['sandboxID']}")).json()["domain"] == created["domain"]


async def test_many_creates_at_once_all_succeed(doors: Doors) -> None:
    made = await asyncio.gather(*(doors.create() for _ in range(20)))
    assert len({created["sandboxID"] for created in made}) == 20
