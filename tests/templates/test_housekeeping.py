"""Disk under templates: what each takes up, and that pruning removes only what nobody needs."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest
from e2b import Template
from tests.e2e.server import Server
from tests.templates.conftest import Build

from sandlot.engine.images import storage
from sandlot.engine.images.layers import Layers
from sandlot.engine.images.shelved import ImportedImages
from sandlot.engine.images.storage import LayerStorage


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
