"""Deep recipes: layers are joined before there are more of them than can be mounted."""

from __future__ import annotations

import os
import shutil
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sandlot.engine.builds import steps as steps_module
from sandlot.engine.builds.context import Context
from sandlot.engine.builds.steps import StepLimits, Steps
from sandlot.engine.core.model import LayerResult, NetworkPolicy, Resources, Step
from sandlot.engine.node.build_runner import LocalBuildRunner
from sandlot.engine.node.images.layers import Layers


@dataclass
class CountingRunner:
    """Makes layers that are only names, and caches every step."""

    cache: dict[str, LayerResult] = field(default_factory=dict)
    edits: int = 0
    joined: list[tuple[str, ...]] = field(default_factory=list)

    def cached_step(self, key: str) -> LayerResult | None:
        return self.cache.get(key)

    def cache_step(self, key: str, result: LayerResult) -> None:
        self.cache[key] = result

    async def edit_files(self, layers: Any, acts: Any, disk_mb: int) -> LayerResult:
        self.edits += 1
        return LayerResult(layer=f"layer-{self.edits}")

    async def join(self, layers: Any) -> LayerResult:
        self.joined.append(tuple(layers))
        return LayerResult(layer=f"joined-{len(self.joined)}")


async def apply_workdirs(build_runner: CountingRunner, count: int) -> Context:
    steps = Steps(
        team_id="t",
        cache_scope="t",
        build_runner=build_runner,  # type: ignore[arg-type]
        uploads=None,  # type: ignore[arg-type]
        limits=StepLimits(runtime="r", resources=Resources(), network=NetworkPolicy(), timeout_s=1),
        hold=lambda name: nullcontext(),
        log=lambda message, level, step: None,
    )
    context = Context(layers=("base",), key="0")
    for number in range(count):
        context = await steps.apply(context, number, Step(type="WORKDIR", args=(f"/{number}",)))
    return context


async def test_layers_are_joined_before_they_are_too_many_and_the_cache_still_fits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(steps_module, "MOST_LAYERS", 4)
    build_runner = CountingRunner()
    context = await apply_workdirs(build_runner, 8)
    assert context.layers == ("joined-2", "layer-7", "layer-8")
    assert build_runner.joined == [
        ("base", "layer-1", "layer-2", "layer-3"),
        ("joined-1", "layer-4", "layer-5", "layer-6"),
    ]
    assert await apply_workdirs(build_runner, 8) == context
    assert (build_runner.edits, len(build_runner.joined)) == (8, 2)


async def test_a_joined_layer_is_what_the_others_show_together(tmp_path: Path) -> None:
    layers = Layers(tmp_path / "layers")

    async def bottom(root: Path) -> None:
        (root / "etc").mkdir()
        (root / "etc" / "kept").write_text("kept")
        (root / "etc" / "gone").write_text("gone")
        (root / "etc" / "link").symlink_to("/etc/passwd")
        (root / "bin").write_text("#!/bin/sh")
        (root / "bin").chmod(0o4755)

    async def middle(root: Path) -> None:
        (root / "etc").mkdir(mode=0o700)
        os.mknod(root / "etc" / "gone", 0o600 | 0o020000, os.makedev(0, 0))
        os.chown(root / "etc", 7, 8)

    async def top(root: Path) -> None:
        (root / "etc").mkdir()
        shutil.copy("/etc/hostname", root / "etc" / "new")

    for name, fill in (("a", bottom), ("b", middle), ("c", top)):
        await layers.publish(name, fill)
    build_runner = LocalBuildRunner(machines=None, layers=layers, commands=None, steps_dir=tmp_path / "steps")  # type: ignore[arg-type]
    joined = await build_runner.join(["a", "b", "c"])
    root = layers.path(joined.layer or "")
    assert sorted(path.name for path in (root / "etc").iterdir()) == ["kept", "link", "new"]
    assert (root / "etc" / "kept").read_text() == "kept" and (root / "etc" / "link").readlink() == Path("/etc/passwd")
    assert (root / "bin").stat().st_mode & 0o7777 == 0o4755
    assert not [path for path in layers.directory.iterdir() if path.name.startswith(".joining")]
