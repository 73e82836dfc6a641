"""A task on a repository at GitHub, as the emulator plays it: one pull request, whatever the forge answers; its token is nowhere else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.server import Server
from tests.github.emulator import Emulator, running
from tests.platform.world import Served, by_url
from tests.tasks.world import Tasks

HIDDEN = "a-secret-of-the-task-1234567890"
SEEN = """
{ env; cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ; git config --list --show-origin;
  grep -rsIl -e @token@ / --exclude-dir=proc --exclude-dir=sys; } 2>/dev/null | tr '\\0' '\\n' >/tmp/seen
grep -c -e @token@ /tmp/seen >found.txt; echo "deploy key: $DEPLOY_KEY"; true
"""


@pytest.fixture
def github(tmp_path: Path) -> Iterator[Emulator]:
    with running(tmp_path / "github") as emulator:
        yield emulator


async def test_a_task_becomes_one_pull_request_at_github_and_its_token_stays_outside(
    tmp_path: Path, engine: Server, github: Emulator, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", logger="sandlot")
    there, token = github.repository("ada/app", robot="write"), github.token("robot")
    configuration = by_url(f"http://127.0.0.1:{engine.port}", engine.key, secrets={"DEPLOY_KEY": HIDDEN})
    async with Served(tmp_path, configuration) as served, served.http() as http:
        admin = Tasks(http, served, "", tmp_path)
        new = {"name": "app", "url": f"{github.url}/ada/app", "forge": "github", "token": token}
        added = await http.post("/repositories", json=new)
        assert added.status_code == 201, added.text
        # Half of the token is in the command, so that the search does not find itself.
        command = SEEN.replace("@token@", f'"{token[:8]}""{token[8:]}"')
        id = await admin.create("Look around", command=command, checks=["true"], secrets=["DEPLOY_KEY"])
        for fault in ("500", "secondary", "reset"):
            github.fault("POST", "/repos/ada/app/pulls", fault)
        task = await admin.until(id, "review")
        assert [pull.head for pull in there.pulls()] == [f"task-{id}"]
        assert task["pull_request"]["url"].startswith(github.url)
        patch = (await http.get(f"/tasks/{id}/patch")).text
        assert "+++ b/found.txt" in patch and "+0\n" in patch, patch
        story = json.dumps(list(await admin.entries(id)))
        assert "deploy key: [DEPLOY_KEY]" in story and HIDDEN not in story and token not in story
    stored = b"".join(file.read_bytes() for file in tmp_path.glob("platform.db*"))  # events and timelines, too
    for secret in (token, HIDDEN):
        assert secret not in engine.log + caplog.text and secret.encode() not in stored
