"""The life of sandboxes: made, listed, looked at, kept alive, ended, by SDK, CLI and plain HTTP of both generations."""

from __future__ import annotations

import asyncio
import json
import threading
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from e2b import AsyncSandbox, Sandbox, SandboxException, SandboxQuery, SandboxState
from e2b.exceptions import SandboxNotFoundException, SandboxNotRunningException
from tests.e2e import leaks
from tests.e2e.server import Server, until

Fresh = Callable[..., Sandbox]


def story(http: httpx.Client, sandbox: Sandbox) -> list[str]:
    """What the server logged of a sandbox, whether it runs or has ended."""
    return [entry["message"] for entry in http.get(f"/v2/sandboxes/{sandbox.sandbox_id}/logs").json()["logs"]]


def test_a_sandbox_tells_what_it_is(server: Server, fresh: Fresh, runtime: str, http: httpx.Client) -> None:
    sandbox = fresh(metadata={"owner": "ä & b"}, timeout=77)
    info = sandbox.get_info()
    assert info.sandbox_id == sandbox.sandbox_id and info.template_id == "base"
    assert info.metadata == {"owner": "ä & b"} and info.state is SandboxState.RUNNING
    assert abs(info.end_at - info.started_at - timedelta(seconds=77)) < timedelta(seconds=3)
    assert sandbox.is_running() is True
    shown = json.loads(server.cli("sandbox", "info", sandbox.sandbox_id, "--json").stdout)
    isolation = {"gvisor": "sentry", "container": "namespaces"}[runtime]
    assert isolation in json.dumps(shown), shown
    kernel = sandbox.commands.run("dmesg 2>/dev/null | head -3; cat /proc/version").stdout
    assert ("gVisor" in kernel) == (runtime == "gvisor")


def test_killed_means_gone(server: Server, fresh: Fresh) -> None:
    sandbox = fresh()
    assert sandbox.kill() is True
    assert sandbox.kill() is False
    assert sandbox.is_running() is False
    assert sandbox.sandbox_id not in server.running()
    with pytest.raises(SandboxNotFoundException):
        Sandbox.connect(sandbox.sandbox_id, **server.sdk)
    with pytest.raises(SandboxNotFoundException):
        sandbox.get_info()
    with pytest.raises(SandboxNotRunningException):
        sandbox.commands.run("true")
    with pytest.raises(SandboxException):
        sandbox.files.read("/etc/hostname")
    until(lambda: not any(sandbox.sandbox_id in trace for trace in leaks.traces(server.data_dir)))


def test_lists_are_filtered_and_paged(server: Server, fresh: Fresh) -> None:
    run = uuid.uuid4().hex
    made = [fresh(metadata={"run": run, "n": str(n), "odd key": "50% of a&b"}) for n in range(4)]
    ids = [sandbox.sandbox_id for sandbox in made]
    two = Sandbox.list(query=SandboxQuery(metadata={"run": run, "n": "2", "odd key": "50% of a&b"}), **server.sdk)
    assert [found.sandbox_id for found in two.next_items()] == [ids[2]]
    assert two.has_next is False
    pages, seen = Sandbox.list(query=SandboxQuery(metadata={"run": run}), limit=3, **server.sdk), []
    while pages.has_next:
        page = pages.next_items()
        assert 1 <= len(page) <= 3
        seen += [found.sandbox_id for found in page]
    assert seen == ids[::-1]
    oldest = Sandbox.list(query=SandboxQuery(metadata={"run": run}), order="asc", **server.sdk)
    assert [found.sandbox_id for found in oldest.next_items()] == ids
    listed = json.loads(server.cli("sandbox", "list", "--json").stdout)
    assert set(ids) <= {row["sandboxID"] for row in listed}


def test_connect_keeps_files_and_never_shortens_a_life(server: Server, fresh: Fresh) -> None:
    sandbox = fresh(timeout=300)
    sandbox.files.write("kept", "here")
    before = sandbox.get_info().end_at
    again = Sandbox.connect(sandbox.sandbox_id, timeout=10, **server.sdk)
    assert again.files.read("kept") == "here"
    assert again.get_info().end_at >= before
    Sandbox.connect(sandbox.sandbox_id, timeout=900, **server.sdk)
    assert sandbox.get_info().end_at > before + timedelta(seconds=300)


def test_a_deadline_ends_a_sandbox(fresh: Fresh, server: Server, http: httpx.Client) -> None:
    sandbox = fresh(timeout=600)
    sandbox.set_timeout(2)
    assert sandbox.get_info().end_at - datetime.now(UTC) < timedelta(seconds=3)
    assert sandbox.is_running() is True
    until(lambda: sandbox.is_running() is False, 15, "the end of the sandbox")
    until(lambda: story(http, sandbox)[-1] == "ended: timeout")
    assert sandbox.sandbox_id not in server.running()


@pytest.mark.parametrize("way", ["kill", "timeout"])
def test_a_command_is_told_that_its_sandbox_ended(server: Server, fresh: Fresh, way: str) -> None:
    sandbox = fresh()
    handle = sandbox.commands.run("echo up; sleep 1000", background=True, timeout=0)

    def end() -> None:
        if way == "kill":
            Sandbox.kill(sandbox.sandbox_id, **server.sdk)
        else:
            Sandbox.set_timeout(sandbox.sandbox_id, 0, **server.sdk)

    timer = threading.Timer(0.5, end)
    timer.start()
    with pytest.raises(SandboxException, match="killed or reached its end of life"):
        handle.wait()
    timer.join()


def test_repeats_of_a_request_give_the_same_sandbox(server: Server, http: httpx.Client) -> None:
    headers = {"Idempotency-Key": uuid.uuid4().hex}
    body = {"templateID": "base", "timeout": 60}
    answers: list[httpx.Response] = []
    askers = [
        threading.Thread(target=lambda: answers.append(http.post("/v2/sandboxes", json=body, headers=headers)))
        for _ in range(4)
    ]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join()
    assert {answer.status_code for answer in answers} <= {201, 409}, [answer.text for answer in answers]
    answers.append(http.post("/v2/sandboxes", json=body, headers=headers))
    ids = {answer.json()["sandboxID"] for answer in answers if answer.status_code == 201}
    assert len(ids) == 1 and answers[-1].status_code == 201
    other = http.post("/v2/sandboxes", json={**body, "timeout": 61}, headers=headers)
    assert other.status_code in (409, 422) and "dempotency" in other.json()["message"]
    assert http.delete(f"/sandboxes/{ids.pop()}").status_code == 204


@pytest.mark.parametrize("secure", [True, False])
def test_requests_of_the_older_generation(server: Server, http: httpx.Client, secure: bool) -> None:
    made = http.post("/sandboxes", json={"templateID": "base", "timeout": 60, "secure": secure})
    assert made.status_code == 201
    sandbox = made.json()
    assert {"sandboxID", "templateID", "clientID", "envdVersion"} <= set(sandbox)
    assert bool(sandbox.get("envdAccessToken")) is secure
    headers = {"E2b-Sandbox-Id": sandbox["sandboxID"], "E2b-Sandbox-Port": "49983"}
    inside = httpx.Client(base_url=str(http.base_url), headers=headers, trust_env=False)
    call = {"url": "/process.Process/List", "json": {}, "headers": {"Connect-Protocol-Version": "1"}}
    assert inside.post(**call).status_code == (401 if secure else 200)
    if secure:
        inside.headers["X-Access-Token"] = sandbox["envdAccessToken"]
        assert inside.post(**call).status_code == 200
    assert inside.post("/files?path=/home/user/x", files={"file": ("x", b"legacy")}).status_code == 200
    assert inside.get("/files?path=/home/user/x").content == b"legacy"
    assert sandbox["sandboxID"] in {row["sandboxID"] for row in http.get("/sandboxes").json()}
    connected = http.post(f"/sandboxes/{sandbox['sandboxID']}/connect", json={"timeout": 90})
    assert connected.status_code == 200 and connected.json()["sandboxID"] == sandbox["sandboxID"]
    assert http.post(f"/sandboxes/{sandbox['sandboxID']}/refreshes", json={"duration": 100}).status_code == 204
    with_client = f"{sandbox['sandboxID']}-{sandbox['clientID']}"
    assert http.get(f"/sandboxes/{with_client}").status_code == 200
    inside.close()
    assert http.delete(f"/sandboxes/{with_client}").status_code == 204


def test_metrics_follow_what_the_sandbox_does(sandbox: Sandbox) -> None:
    handle = sandbox.commands.run(
        "python3 -c 'x = bytearray(150 << 20)\nwhile True: pass'", background=True, timeout=60
    )
    try:

        def measured() -> Any:
            samples = sandbox.get_metrics()
            return samples[-1] if samples else None

        until(lambda: (m := measured()) is not None and m.cpu_used_pct > 10 and m.mem_used > 150 << 20, 25)
        last = measured()
        assert last.cpu_count == 2 and last.mem_total == 1 << 30
        assert 0 <= last.disk_used <= last.disk_total
    finally:
        handle.kill()


def test_logs_tell_the_story_of_a_sandbox_also_after_its_end(server: Server, http: httpx.Client) -> None:
    sandbox = server.create()
    sandbox.commands.run("echo logged")
    running = story(http, sandbox)
    assert running[0] == "creating from base" and "running" in running
    sandbox.kill()
    older = http.get(f"/sandboxes/{sandbox.sandbox_id}/logs").json()
    assert older["logEntries"][-1]["message"] == "ended: killed" and "ended: killed" in older["logs"][-1]["line"]
    assert "ended: killed" in server.cli("sandbox", "logs", sandbox.sandbox_id).stdout


async def test_a_burst_of_sandboxes(server: Server) -> None:
    made = await asyncio.gather(*(AsyncSandbox.create(timeout=120, **server.sdk) for _ in range(8)))
    said = await asyncio.gather(*(box.commands.run("hostname") for box in made))
    assert [result.stdout.strip() for result in said] == [box.sandbox_id for box in made]
    assert all(await asyncio.gather(*(box.kill() for box in made)))


def test_requests_need_a_valid_key(http: httpx.Client, fresh: Fresh, server: Server) -> None:
    for key in ("", "e2b_" + "0" * 40, "nonsense"):
        for method, path in (("GET", "/v2/sandboxes"), ("POST", "/v2/sandboxes"), ("DELETE", "/sandboxes/iabc")):
            assert http.request(method, path, headers={"X-API-KEY": key}).status_code == 401
    made = json.loads(server.cli("key", "create", "second", "--json").stdout)
    secret = next(value for value in made.values() if str(value).startswith("e2b_") and len(str(value)) > 30)
    assert http.get("/v2/sandboxes", headers={"X-API-KEY": secret}).status_code == 200
    server.cli("key", "revoke", str(made["id"]))
    until(lambda: http.get("/v2/sandboxes", headers={"X-API-KEY": secret}).status_code == 401)


def test_run_is_create_use_and_remove_in_one(server: Server) -> None:
    before = server.running()
    done = server.cli("run", "--", "sh", "-c", "echo out; echo err >&2; exit 9", check=False)
    assert (done.returncode, done.stdout, done.stderr) == (9, "out\n", "err\n")
    assert server.cli("run", "--", "python3", "-c", "print(6*7)").stdout == "42\n"
    assert server.cli("run", "--", "wc", "-c", input="12345").stdout.strip() == "5"
    assert server.running() == before
