"""Tasks with a secret that is bound to hosts: the agent has a word that stands for it, the provider the value, and nobody else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.e2e.server import Server
from tests.platform.world import Served, by_url
from tests.tasks.world import Tasks

HIDDEN = "a-bound-secret-0987654321"
SEEN = """
{ env; cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ; } 2>/dev/null | tr '\\0' '\\n' >/tmp/seen
grep -c -e @value@ /tmp/seen >found.txt; [ "$DEPLOY_KEY" = SECRET_"PLACEHOLDER"_DEPLOY_KEY ] && echo stands >>found.txt; true
"""


@pytest.mark.timeout(300)
async def test_a_bound_secret_is_a_placeholder_inside_and_a_rule_outside(tmp_path: Path, engine: Server) -> None:
    hosts = {"DEPLOY_KEY": ("deploy.example.com",)}
    configuration = by_url(
        f"http://127.0.0.1:{engine.port}", engine.key, secrets={"DEPLOY_KEY": HIDDEN}, secret_hosts=hosts
    )
    async with Served(tmp_path, configuration) as served:
        key = await served.key("ann")
        async with served.http(key) as http:
            ann = Tasks(http, served, key, tmp_path)
            await ann.repository(**{"README.md": "# App\n"})
            command = SEEN.replace("@value@", f'"{HIDDEN[:8]}""{HIDDEN[8:]}"')
            id = await ann.create(
                "Look around", command=command, checks=["true"], secrets=["DEPLOY_KEY"], network={"internet": True}
            )
            await ann.until(id, "review")
            patch = (await http.get(f"/tasks/{id}/patch")).text
            assert "+0\n" in patch and "+stands\n" in patch, patch
            assert HIDDEN not in json.dumps(list(await ann.entries(id)))
            with engine.http() as client:
                assert client.get("/secrets/platform-deploy_key").json()["name"] == "platform-deploy_key"
                ids = [row["sandboxID"] for row in client.get("/v2/sandboxes?state=running,paused").json()]
                rules = [client.get(f"/sandboxes/{each}").json()["network"].get("rules", {}) for each in ids]
            wanted = {"SECRET_PLACEHOLDER_DEPLOY_KEY": "${e2b.secrets.platform-DEPLOY_KEY}"}
            assert {"deploy.example.com": [{"transform": {"headers": wanted}}]} in rules
    stored = b"".join(file.read_bytes() for file in tmp_path.glob("platform.db*"))
    assert HIDDEN.encode() not in stored and HIDDEN not in engine.log
