"""The private Docker daemon of the benchmark: it works, and nothing of it stays."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from bench.dockerd import private_docker

pytestmark = pytest.mark.skipif(
    shutil.which("dockerd") is None or os.geteuid() != 0, reason="needs root and docker.io, as the benchmark does"
)


def _traces() -> set[str]:
    groups = Path("/sys/fs/cgroup")
    places = (
        *Path("/var/tmp").glob("docker-bench-*"),
        *groups.glob("*/docker-bench-*"),
        *groups.glob("docker-bench-*"),
    )
    shared = (Path("/run/docker"), Path("/run/containerd"), Path("/etc/docker"), Path("/opt/containerd"))
    mounts = [line for line in Path("/proc/self/mounts").read_text().splitlines() if "docker" in line]
    return {*map(str, places), *(str(path) for path in shared if path.exists()), *mounts}


def test_a_private_docker_runs_an_imported_directory_and_leaves_nothing_behind(tmp_path: Path) -> None:
    before = _traces()
    (tmp_path / "file").write_text("content")
    with private_docker() as docker:
        docker.import_directory(tmp_path, "tiny")
        container = docker.run("create", "--network", "none", "tiny", "/file").strip()
        docker.run("cp", f"{container}:/file", str(tmp_path / "copy"))
    assert (tmp_path / "copy").read_text() == "content"
    assert _traces() == before
