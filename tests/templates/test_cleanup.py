"""Disk under templates: what each takes up, and that pruning removes only what nobody needs."""

from __future__ import annotations

import asyncio
import json
import os
import time
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from e2b import Template
from tests.e2e.server import Server
from tests.templates.conftest import Build

from sandlot.engine.builds.cleanup import Cleanup
from sandlot.engine.core.errors import NotFound
from sandlot.engine.node.images import storage
from sandlot.engine.node.images.imported_images import ImportedImages
from sandlot.engine.node.images.layers import Layers
from sandlot.engine.node.images.storage import LayerStorage
from sandlot.engine.node.images.uploads import DiskUploads

pytestmark = pytest.mark.timeout(300)  # builds take as long as the machine is busy


def test_templates_say_what_they_take_up_and_recent_layers_are_not_pruned(server: Server, build: Build) -> None:
    name = f"usage-{uuid.uuid4().hex[:8]}"
    build(Template().from_base_image().run_cmd("head -c 8M /dev/urandom > ~/data"), name)
    with server.http() as client:
        rows = {row["name"]: row for row in client.get("/templates/usage").json()}
    assert 8 << 20 <= rows[name]["ownBytes"] < 12 << 20 < rows[name]["bytes"]
    assert "MiB" in server.cli("template", "list", "--disk").stdout
    assert json.loads(server.cli("template", "prune", "--json").stdout) == {"layers": 0, "bytes": 0}
    sandbox = server.create(name)
    assert sandbox.commands.run("stat -c %s ~/data").stdout == f"{8 << 20}\n"
    sandbox.kill()


async def test_only_layers_that_no_instance_needs_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layers = Layers(tmp_path / "layers")

    async def fill(directory: Path) -> None:
        (directory / "file").write_bytes(b"x" * 10_000)

    for name in ("mine", "theirs", "nobodys", "of-a-gone-instance"):
        await layers.publish(name, fill)

    def of(instance: str) -> LayerStorage:
        data_dir = tmp_path / instance
        data_dir.mkdir(exist_ok=True)
        images = ImportedImages(tmp_path / "images", layers)
        return LayerStorage(cache_dir=tmp_path, layers=layers, imported=images, instance=instance, data_dir=data_dir)

    of("bbbbbb").claim(["theirs"])
    of("cccccc").claim(["of-a-gone-instance"])
    (tmp_path / "cccccc").rmdir()
    assert await of("aaaaaa").prune(["mine"]) == {}, "layers of the last hour may belong to a build that is under way"
    monkeypatch.setattr(storage, "RECENT_S", -60)
    assert set(await of("aaaaaa").prune(["mine"])) == {"nobodys", "of-a-gone-instance"}
    assert layers.names() == ["mine", "theirs"]


DAY_S = 86400


async def uploads_of_ages(directory: Path, *days: float) -> tuple[DiskUploads, list[str]]:
    """Archives of 1000 bytes, by their hash, that were last asked for so long ago."""

    async def chunks() -> AsyncIterator[bytes]:
        yield b"x" * 1000

    uploads = DiskUploads(directory, 1 << 20)
    hashes = [f"{number:064x}" for number in range(len(days))]
    for files_hash, age in zip(hashes, days, strict=True):
        await uploads.receive("team", files_hash, chunks())
        at = time.time() - age * DAY_S
        os.utime(uploads.path("team", files_hash), (at, at))
    return uploads, hashes


async def test_archives_that_no_build_asked_for_in_a_week_are_deleted(tmp_path: Path) -> None:
    uploads, (old, asked, young) = await uploads_of_ages(tmp_path, 8, 8, 6)
    half = tmp_path / "team" / f".{old}-0123"
    half.write_bytes(b"x")
    os.utime(half, (0, 0))
    assert uploads.has("team", asked)
    assert uploads.purge() == 2
    assert (uploads.has("team", old), uploads.has("team", asked), uploads.has("team", young)) == (False, True, True)
    with pytest.raises(NotFound, match="were not uploaded"):
        uploads.digest("team", old)
    assert len(list((tmp_path / "team").iterdir())) == 4, "two archives with their digests"


async def test_of_too_many_archives_the_oldest_go_but_none_that_may_be_in_use(tmp_path: Path) -> None:
    uploads, (oldest, older, fresh) = await uploads_of_ages(tmp_path, 2, 1, 0)
    assert uploads.purge(keep_bytes=2000) == 1
    assert not uploads.path("team", oldest).exists() and uploads.path("team", older).exists()
    assert uploads.purge(keep_bytes=0) == 1
    assert uploads.path("team", fresh).exists()


async def test_housekeeping_deletes_archives_again_and_again() -> None:
    class Disk:
        asked = swept = 0

        def purge(self) -> int:
            self.asked += 1
            if self.asked == 2:
                raise OSError("a disk that is away for a moment")
            return 1

        def sweep(self) -> int:
            self.swept += 1
            return 0

    disk, pauses = Disk(), []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            raise asyncio.CancelledError

    unused: object = None
    cleanup = Cleanup(templates=unused, builds=unused, node=unused, storage=disk, archives=disk)  # type: ignore[arg-type]
    with pytest.raises(asyncio.CancelledError):
        await cleanup.run(sleep)
    assert (disk.asked, disk.swept) == (3, 2)


async def test_what_killed_processes_left_unfinished_is_removed_unless_somebody_works_on_it(tmp_path: Path) -> None:
    layers = Layers(tmp_path)

    async def fill(directory: Path) -> None:
        (directory / "file").write_bytes(b"x")
        assert layers.sweep(-60) == 4, "all but what is being made"

    await layers.publish("whole", fill_nothing)
    for name in ("s1.tmp-0a", ".gone-1", ".placing-2", ".pulls/.pull-3"):
        (tmp_path / name / "some").mkdir(parents=True)
    assert layers.sweep(DAY_S) == 0
    await layers.publish("other", fill)
    assert layers.names() == ["other", "whole"]
    assert {path.name for path in tmp_path.iterdir() if not path.name.endswith(".lock")} == {"other", "whole", ".pulls"}


async def fill_nothing(directory: Path) -> None:
    pass
