"""A real server to build templates on, with a layer cache of its own that begins with the base template."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from e2b import Template
from tests.e2e import leaks
from tests.e2e.server import Server, free_port

from sandlot.engine.node.images import base
from sandlot.settings import Settings

READY_S = 4
DISK_MB = 192


@pytest.fixture(scope="session")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return cache_with_base(tmp_path_factory)


def cache_with_base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Links to the base template of this machine: layers are read-only, and tests leave nothing in the shared cache."""
    layer = base.read_recipe().layer
    directory = tmp_path_factory.mktemp("cache")
    (directory / "layers").mkdir(mode=0o700)
    shared = Settings().cache_dir / "layers" / layer
    assert shared.is_dir(), "the base template is missing: ./sandlot test makes it"
    target = directory / "layers" / layer
    if subprocess.run(["cp", "-a", "--link", str(shared), str(target)], check=False, capture_output=True).returncode:
        shutil.rmtree(target)  # another filesystem: it made the directories
        subprocess.run(["cp", "-a", str(shared), str(target)], check=True)
    return directory


@pytest.fixture(scope="session")
def registry_port() -> int:
    return free_port()


@pytest.fixture(scope="session")
def amazon_port() -> int:
    return free_port()


@pytest.fixture(scope="session")
def server(
    tmp_path_factory: pytest.TempPathFactory, cache_dir: Path, registry_port: int, amazon_port: int
) -> Iterator[Server]:
    settings = {
        "SANDLOT_CACHE_DIR": str(cache_dir),
        "SANDLOT_POOL_SIZE": "0",
        "SANDLOT_BUILD_READY_S": str(READY_S),
        "SANDLOT_BUILD_DISK_MB": str(DISK_MB),
        "SANDLOT_BUILDS_AT_ONCE": "2",
        "SANDLOT_TRUSTED_REGISTRIES": f"127.0.0.1:{registry_port}",
        "SANDLOT_AMAZON_REGISTRY_ENDPOINT": f"http://127.0.0.1:{amazon_port}",
    }
    server = Server(data_dir=tmp_path_factory.mktemp("builds") / "data", settings=settings, options=("--no-hello",))
    with server:
        yield server
    left = leaks.owned(server.data_dir)
    assert not left, "builds left on the host:\n" + "\n".join(sorted(left))
    assert not list((cache_dir / "layers").glob("*.tmp-*")), "half layers were left"


class Lines:
    """The log of a build, as the SDK hands it out."""

    def __init__(self) -> None:
        self.all: list[str] = []

    def __call__(self, entry: Any) -> None:
        self.all.append(entry.message)

    def has(self, text: str) -> bool:
        return any(text in line for line in self.all)


Build = Callable[..., Any]


@pytest.fixture
def build(server: Server) -> Build:
    def build(template: Any, name: str, **options: Any) -> Any:
        return Template.build(template, name, **{"cpu_count": 1, "memory_mb": 512, **options, **server.sdk})

    return build
