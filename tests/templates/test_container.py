"""Templates whose sandboxes run on the host's kernel: their start command runs at every start."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from e2b import Template, wait_for_port
from tests.e2e import leaks
from tests.e2e.server import Server

pytestmark = pytest.mark.timeout(300)  # builds take as long as the machine is busy


def test_a_container_template_starts_its_command_at_create_and_after_a_resume_without_memory(
    tmp_path: Path, cache_dir: Path
) -> None:
    server = Server(
        data_dir=tmp_path / "data",
        settings={"SANDLOT_CACHE_DIR": str(cache_dir), "SANDLOT_RUNTIME": "container"},
        options=("--no-hello",),
    )
    with server:
        start = "date +%N > ~/begun; exec python3 -m http.server 8126 --directory $ROOT"
        recipe = (
            Template()
            .from_base_image()
            .set_envs({"ROOT": "/srv"})
            .run_cmd("echo served > /srv/page", user="root")
            .set_start_cmd(start, wait_for_port(8126))
        )
        Template.build(recipe, "service", cpu_count=1, memory_mb=512, **server.sdk)
        sandbox = server.create("service")

        def page() -> str:
            headers = {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": "8126"}
            return httpx.get(f"http://127.0.0.1:{server.port}/page", headers=headers, trust_env=False).text

        assert page() == "served\n"
        begun = sandbox.files.read("begun")
        with server.http() as client:
            assert client.post(f"/sandboxes/{sandbox.sandbox_id}/pause", json={"memory": False}).status_code == 204
            resumed = client.post(f"/v2/sandboxes/{sandbox.sandbox_id}/connect", json={"timeout": 60})
            assert resumed.status_code == 201, resumed.text
        assert page() == "served\n"
        assert sandbox.files.read("begun") != begun
        sandbox.kill()
    assert not leaks.owned(server.data_dir)
