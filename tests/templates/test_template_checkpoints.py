"""Templates whose sandboxes begin in the middle: with a saved state, and when that state is no good any more."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import httpx
import pytest
from e2b import Template, wait_for_port
from tests.e2e.server import Server
from tests.templates.conftest import Build

pytestmark = pytest.mark.timeout(300)  # builds take as long as the machine is busy


@pytest.fixture(scope="module")
def service(server: Server) -> tuple[str, Path]:
    """A template with a web server, and where its saved state is."""
    name = f"service-{uuid.uuid4().hex[:8]}"
    before = set((server.data_dir / "checkpoints").glob("tpl*"))
    template = (
        Template()
        .from_base_image()
        .run_cmd("echo served > /srv/page", user="root")
        .set_envs({"ROOT": "/srv"})
        .set_start_cmd("date +%s%N > ~/begun; python3 -m http.server 8127 --directory $ROOT", wait_for_port(8127))
    )
    Template.build(template, name, cpu_count=1, memory_mb=512, **server.sdk)
    (state,) = set((server.data_dir / "checkpoints").glob("tpl*")) - before
    return name, state


def begun(server: Server, name: str) -> str:
    """When the service of a new sandbox was started; it answers."""
    sandbox = server.create(name)
    try:
        headers = {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": "8127"}
        address = f"http://127.0.0.1:{server.port}/page"
        assert httpx.get(address, headers=headers, timeout=30, trust_env=False).text == "served\n"
        return str(sandbox.files.read("/home/user/begun"))
    finally:
        sandbox.kill()


def garble(state: Path) -> None:
    for path in (state / "state").rglob("*.img"):
        with path.open("r+b") as file:
            file.write(b"\xff" * 4096)


def cut_short(state: Path) -> None:
    for path in (state / "state").rglob("*.img"):
        with path.open("r+b") as file:
            file.truncate(1)


def lose_its_program(state: Path) -> None:
    facts = json.loads((state / "checkpoint.json").read_text())
    (state / "checkpoint.json").write_text(json.dumps({**facts, "program": "0" * 16}))


def test_sandboxes_boot_where_the_saved_state_of_their_template_is_no_good(
    server: Server, service: tuple[str, Path]
) -> None:
    name, state = service
    at_build = begun(server, name)
    assert begun(server, name) == at_build, "the service goes on from where it was at the end of the build"
    seen = {at_build}
    for spoil in (lose_its_program, garble, cut_short):
        spoil(state)
        seen.add(begun(server, name))
    assert len(seen) == 4, "each boot starts the service again"
    assert server.log.count(f"the checkpoint of template {name} cannot be used") == 3


def test_a_sandbox_stays_of_the_build_that_it_was_made_from(server: Server, build: Build) -> None:
    """Also when the build has lost its tag, and the template is something else by now."""
    name = f"tagged-{uuid.uuid4().hex[:8]}"
    build(Template().from_base_image().set_user("worker").set_workdir("/srv/work"), f"{name}:v1")
    build(Template().from_base_image(), name)
    sandbox = server.create(f"{name}:v1")
    try:
        Template.remove_tags(name, "v1", **server.sdk)
        with server.http() as client:
            assert client.post(f"/sandboxes/{sandbox.sandbox_id}/pause").status_code == 204
            resumed = client.post(f"/v2/sandboxes/{sandbox.sandbox_id}/connect", json={"timeout": 120})
            assert resumed.status_code == 201, resumed.text
        assert sandbox.commands.run("whoami; pwd").stdout.split() == ["worker", "/srv/work"]
        snapshot = sandbox.create_snapshot(**server.sdk)
        again = server.create(snapshot.snapshot_id)
        assert again.commands.run("whoami; pwd").stdout.split() == ["worker", "/srv/work"]
        again.kill()
    finally:
        sandbox.kill()
