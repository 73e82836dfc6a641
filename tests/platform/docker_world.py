"""A Docker daemon for tests: private, with the base template as its one image, and nothing left behind."""

from __future__ import annotations

import asyncio
import secrets
import shutil
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from bench.dockerd import Docker, private_docker

from sandlot.engine.node.images.base import build_base, read_recipe
from sandlot.platform.providers.docker import DockerProvider, Owner
from sandlot.platform.providers.docker_images import DockerSettings
from sandlot.settings import Settings
from sandlot.wiring.providers import guest_runtime

IMAGE = "sandlot/base:test"
UNUSED = ("usr/local", "usr/lib/gcc", "usr/include", "usr/share/doc", "usr/lib/git-core")  # of no use to these tests


@dataclass(frozen=True, slots=True, kw_only=True)
class DockerWorld:
    daemon: Docker
    place: Path

    @property
    def settings(self) -> DockerSettings:
        return DockerSettings(url=f"unix://{self.daemon.socket}", image=IMAGE, pull=False, memory_mb=512, user="user")


@contextmanager
def a_docker_world(place: Path) -> Iterator[DockerWorld]:
    if shutil.which("dockerd") is None:
        pytest.skip("needs dockerd: apt-get install docker.io")
    layers = Settings().cache_dir / "layers"
    with ThreadPoolExecutor() as beside:  # a test's own loop may run already
        root = layers / beside.submit(asyncio.run, build_base(read_recipe(), layers, print)).result()
    with private_docker() as daemon:
        daemon.import_directory(root, IMAGE, without=UNUSED)
        yield DockerWorld(daemon=daemon, place=place)


@asynccontextmanager
async def of_docker(
    world: DockerWorld, *, platform: str | None = None, **changes: object
) -> AsyncIterator[DockerProvider]:
    provider = DockerProvider(
        "docker",
        replace(world.settings, **changes),  # type: ignore[arg-type]
        owner=Owner(platform=platform or f"plt-{secrets.token_hex(4)}", secret="of the tests"),
        guest=guest_runtime(world.place),
    )
    try:
        yield provider
    finally:
        await provider.close()
