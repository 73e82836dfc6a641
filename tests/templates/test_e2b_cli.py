"""Templates through E2B's own command line, from npm, unmodified: made from a Dockerfile, listed, used, published, deleted."""

from __future__ import annotations

import json
import subprocess
import uuid
from pathlib import Path

import pytest
from tests.e2e import npm
from tests.e2e.server import Server

pytestmark = pytest.mark.timeout(300)  # npm may have to fetch it first

DOCKERFILE = """
FROM e2bdev/base
COPY greeting.txt /srv/
RUN sh -c 'tr a-z A-Z < /srv/greeting.txt > /srv/loud.txt'
WORKDIR /srv
"""


def test_a_dockerfile_becomes_a_template_that_is_listed_and_deleted(server: Server, tmp_path: Path) -> None:
    (tmp_path / "e2b.Dockerfile").write_text(DOCKERFILE)
    (tmp_path / "greeting.txt").write_text("hello\n")
    modules, name = npm.installed(), f"by-cli-{uuid.uuid4().hex[:8]}"

    def e2b(*words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return npm.run(server, modules, npm.e2b(modules), "template", *words, check=check)

    def listed() -> dict[str, dict[str, object]]:
        rows = json.loads(e2b("list", "--format", "json").stdout)
        return {alias: row for row in rows for alias in row["aliases"]}

    built = e2b("create", name, "--path", str(tmp_path), "--cpu-count", "1", "--memory-mb", "512").stdout
    assert "RUN sh -c" in built and "finished" in built, built
    assert (listed()[name]["cpuCount"], listed()[name]["memoryMB"]) == (1, 512)
    sandbox = server.create(name)
    assert sandbox.commands.run("cat loud.txt").stdout == "HELLO\n"
    sandbox.kill()
    for act, is_public in (("publish", True), ("unpublish", False)):
        e2b(act, name, "--yes")
        assert listed()[name]["public"] is is_public
    e2b("delete", name, "--yes")
    assert name not in listed()
    assert e2b("delete", name, "--yes", check=False).returncode != 0


def test_a_dockerfile_that_fails_is_told_with_its_step(server: Server, tmp_path: Path) -> None:
    (tmp_path / "e2b.Dockerfile").write_text("FROM e2bdev/base\nRUN exit 7\n")
    modules, name = npm.installed(), f"by-cli-{uuid.uuid4().hex[:8]}"
    words = ("template", "create", name, "--path", str(tmp_path))
    done = npm.run(server, modules, npm.e2b(modules), *words, check=False)
    assert done.returncode == 1 and "exit status 7" in done.stdout + done.stderr, done.stdout + done.stderr
