"""Trees that guests made, in the hands of the host: links and depth must not lead it anywhere."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandlot.engine.node import trees
from sandlot.engine.node.images.layers import Layers

DEPTH = 3000


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A directory of the host that every link in these trees points to."""
    directory = tmp_path / "outside"
    (directory / "sandlot-build").mkdir(parents=True)
    (directory / "sandlot-build" / "precious").write_text("kept")
    return directory


@pytest.mark.parametrize("name", ["run", "run/sandlot-build", "/run/sandlot-build"])
def test_a_link_on_the_way_or_at_the_end_is_not_followed(tmp_path: Path, outside: Path, name: str) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "run").symlink_to(outside)
    trees.remove_below(tree, name)
    assert (outside / "sandlot-build" / "precious").read_text() == "kept"
    assert not trees.is_empty(tree, but_for="run") or name == "run"


def test_links_below_go_and_what_they_point_to_stays(tmp_path: Path, outside: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "run" / "sandlot-build" / "inner").mkdir(parents=True)
    for place in ("run/sandlot-build/link", "run/sandlot-build/inner/link"):
        (tree / place).symlink_to(outside)
    trees.remove_below(tree, "/run/sandlot-build")
    assert list((tree / "run").iterdir()) == []
    assert trees.is_empty(tree, but_for="run")
    assert (outside / "sandlot-build" / "precious").exists()


@pytest.mark.parametrize("target", ["/", "../../..", "/proc/self/root"])
def test_a_name_is_looked_up_as_the_machine_would(tmp_path: Path, outside: Path, target: str) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "usr").symlink_to(target)
    (tree / "lib").symlink_to("/real")
    (tree / "real").mkdir()
    (tree / "real" / "sudo").symlink_to("/nowhere")
    assert not trees.exists(tree, "usr/bin/env") and Path("/usr/bin/env").exists()
    assert not trees.exists(tree, f"usr{outside}")
    assert trees.exists(tree, "lib/sudo")


async def test_a_layer_nested_deeper_than_python_recurses_can_be_removed(tmp_path: Path) -> None:
    layers = Layers(tmp_path / "layers")

    async def fill(root: Path) -> None:
        nest(root, DEPTH)

    await layers.publish("deep", fill)
    await layers.remove("deep")
    assert [path for path in layers.directory.iterdir() if path.is_dir()] == []


async def test_a_failed_build_leaves_nothing_of_a_deep_tree(tmp_path: Path) -> None:
    layers = Layers(tmp_path / "layers")

    async def fill(root: Path) -> None:
        nest(root, DEPTH)
        raise ValueError("the step failed")

    with pytest.raises(ValueError, match="the step failed"):
        await layers.publish("deep", fill)
    assert [path for path in layers.directory.iterdir() if path.is_dir()] == []


def nest(root: Path, depth: int) -> None:
    directory = os.open(root, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=directory)
        inner = os.open("d", os.O_RDONLY, dir_fd=directory)
        os.close(directory)
        directory = inner
    os.close(directory)
