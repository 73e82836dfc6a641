"""The template `workspace`: VS Code in a real browser through the gateway, before and after a pause."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2b import Sandbox
from tests.console_web.conftest import CHROMIUM
from tests.console_web.node import node_modules
from tests.e2e.conftest import in_pristine
from tests.e2e.server import Server, clean_environment

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]
NOTES = "/home/user/workspace/notes.txt"
EDITOR = Path(__file__).with_name("editor.mjs")


@pytest.fixture(scope="module", params=["gvisor", "container"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with in_pristine(tmp_path_factory, request.param) as server:
        server.cli("template", "build", "--stock", "workspace", timeout=1700)
        yield server


def test_a_person_edits_a_file_and_runs_a_command_before_and_after_a_pause(server: Server) -> None:
    node_modules()
    sandbox = server.create("workspace", timeout=900, network={"allow_public_traffic": False})
    try:
        sandbox.files.write(NOTES, "old\n")
        sockets = edit(server, sandbox, "one ", "first.txt")
        assert sandbox.files.read(NOTES) == "one old\n"
        assert sandbox.files.read("/home/user/workspace/first.txt") == "from the terminal\n"
        assert sockets and all(f"9000-{sandbox.sandbox_id}" in address for address in sockets)
        sandbox.pause()
        sandbox.connect(timeout=900)
        edit(server, sandbox, "two ", "second.txt")
        assert sandbox.files.read(NOTES) == "two one old\n"
        assert sandbox.files.read("/home/user/workspace/second.txt") == "from the terminal\n"
    finally:
        sandbox.kill()


def edit(server: Server, sandbox: Sandbox, text: str, made: str) -> list[str]:
    """In a browser that is let in by a grant. The addresses of the WebSockets that it opened."""
    with server.http() as client:
        grant = client.post(f"/sandboxes/{sandbox.sandbox_id}/ports/9000/grants", json={}).raise_for_status().json()
    host = f"http://9000-{sandbox.sandbox_id}.localhost:{server.port}/"
    chromium = next(path for name in CHROMIUM if (path := f"/usr/bin/{name}") and Path(path).exists())
    done = subprocess.run(
        ["node", str(EDITOR)],
        env={
            **clean_environment(),
            "HOME": os.environ.get("HOME", "/root"),
            "CHROMIUM": chromium,
            "URL": f"{host}?{grant['parameter']}={grant['grant']}",
            "FILE": "notes.txt",
            "TEXT": text,
            "COMMAND": f"echo from the terminal > {made}",
        },
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert grant["grant"] not in told["address"], "what lets in once does not stay in the address"
    return [str(address) for address in told["sockets"]]


def test_agents_find_the_tools_of_a_sandbox_that_is_not_the_one_of_the_template(server: Server) -> None:
    """A token is of one sandbox: what was seeded while the template was built must not be it."""
    tokens = set()
    for _ in range(2):
        sandbox = server.create("workspace", timeout=300, allow_internet_access=False)
        try:
            tokens.add(sandbox.commands.run("/usr/local/lib/workspace/tools-token.sh").stdout)
            assert "Connected" in sandbox.commands.run("claude mcp list 2>&1", timeout=120).stdout
            listed = sandbox.commands.run("codex mcp list 2>&1", timeout=120).stdout
            assert "SANDLOT_TOOLS_TOKEN" in listed and "enabled" in listed
        finally:
            sandbox.kill()
    assert len(tokens) == 2
