"""Template layers: published whole or not at all, once, and where Debian packages come from."""

from __future__ import annotations

import asyncio
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from sandlot.engine.core.errors import NotFound, Unavailable
from sandlot.engine.node.images import archive, base
from sandlot.engine.node.images.layers import Layers
from sandlot.settings import Settings


async def fill(root: Path) -> None:
    (root / "file").write_text("content")


async def test_a_layer_is_published_whole_and_found_by_its_name(tmp_path: Path) -> None:
    layers = Layers(tmp_path / "layers")
    assert not layers.has("one-1")
    path = await layers.publish("one-1", fill)
    assert (path / "file").read_text() == "content"
    assert layers.path("one-1") == path
    assert layers.names() == ["one-1"]
    assert stat.S_IMODE((tmp_path / "layers").stat().st_mode) == 0o700


async def test_a_failed_build_leaves_nothing_and_can_be_tried_again(tmp_path: Path) -> None:
    layers = Layers(tmp_path)

    async def fail(root: Path) -> None:
        await fill(root)
        raise Unavailable("no network")

    with pytest.raises(Unavailable):
        await layers.publish("one-1", fail)
    assert layers.names() == []
    assert not list(tmp_path.glob("*tmp*"))
    assert (await layers.publish("one-1", fill)).is_dir()


async def test_a_cancelled_build_leaves_nothing(tmp_path: Path) -> None:
    layers, started = Layers(tmp_path), asyncio.Event()

    async def hang(root: Path) -> None:
        await fill(root)
        started.set()
        await asyncio.Event().wait()

    building = asyncio.create_task(layers.publish("one-1", hang))
    await started.wait()
    building.cancel()
    with pytest.raises(asyncio.CancelledError):
        await building
    assert not list(tmp_path.glob("one-1*"))


async def test_two_that_need_the_same_layer_build_it_once(tmp_path: Path) -> None:
    built, waited = 0, []
    go = asyncio.Event()

    async def slowly(root: Path) -> None:
        nonlocal built
        built += 1
        await go.wait()
        await fill(root)

    first = asyncio.create_task(Layers(tmp_path).publish("one-1", slowly))
    second = asyncio.create_task(
        Layers(tmp_path).publish("one-1", slowly, waiting=lambda: (waited.append(1), go.set())[1])
    )
    assert await first == await second
    assert built == 1
    assert waited == [1]


async def test_what_a_killed_build_left_is_removed_by_the_next(tmp_path: Path) -> None:
    leftover = tmp_path / "one-1.tmp-dead"
    leftover.mkdir()
    (leftover / "half").touch()
    await Layers(tmp_path).publish("one-1", fill)
    assert not leftover.exists()


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "a.tmp-1", "A", "x" * 200])
def test_a_name_that_could_leave_the_directory_is_no_layer(tmp_path: Path, name: str) -> None:
    with pytest.raises(NotFound):
        Layers(tmp_path).path(name)


def host(tmp_path: Path, release: str = "ID=debian\nVERSION_CODENAME=bookworm\n", **files: str) -> Path:
    (tmp_path / "etc/apt/sources.list.d").mkdir(parents=True)
    (tmp_path / "etc/os-release").write_text(release)
    for name, text in files.items():
        (tmp_path / "etc/apt/sources.list.d" / name.replace("_", ".")).write_text(text)
    return tmp_path


def test_a_debian_hosts_own_mirror_is_used(tmp_path: Path) -> None:
    root = host(
        tmp_path,
        a_list="deb https://third.example/apt bookworm main\ndeb [arch=amd64] https://other.example/linux/debian bookworm stable\n",
        debian_sources="""
Types: deb
# a comment
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main contrib
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://mirror.example/debian-security
Suites: bookworm-security
Components: main
""",
    )
    found = archive.of_this_host(root)
    assert (found.main, found.security) == ("http://mirror.example/debian", "http://mirror.example/debian-security")
    text = found.sources("bookworm", ("main",))
    assert "third.example" not in text and "other.example" not in text and "contrib" not in text


def test_the_one_line_format_is_understood(tmp_path: Path) -> None:
    root = host(
        tmp_path,
        x_list="# deb http://no.example/debian bookworm main\ndeb [signed-by=/k.gpg] http://m.example/debian/ bookworm main\n",
    )
    found = archive.of_this_host(root)
    assert (found.main, found.signed_by) == ("http://m.example/debian/", "/k.gpg")
    assert found.security == archive.Archive().security


def test_a_disabled_source_does_not_count(tmp_path: Path) -> None:
    root = host(
        tmp_path,
        x_sources="Types: deb\nEnabled: no\nURIs: http://m.example/debian\nSuites: bookworm\nComponents: main\n",
    )
    assert archive.of_this_host(root) == archive.Archive()


def test_other_systems_use_debians_own_archive(tmp_path: Path) -> None:
    root = host(
        tmp_path,
        "ID=ubuntu\nID_LIKE=debian\nVERSION_CODENAME=noble\n",
        x_list="deb http://u.example/ubuntu noble main\n",
    )
    assert archive.of_this_host(root) == archive.Archive()


def test_only_what_is_built_decides_the_name_of_the_layer(tmp_path: Path) -> None:
    source = base.TEMPLATES / "base"
    for name in ("template.toml", "setup.sh"):
        (tmp_path / name).write_text((source / name).read_text())
    original = base.read_recipe(tmp_path)
    assert original == base.read_recipe()
    recipe = tmp_path / "template.toml"
    recipe.write_text(recipe.read_text().replace("memory_mb = 1024", "memory_mb = 2048"))
    assert base.read_recipe(tmp_path).layer == original.layer
    recipe.write_text(recipe.read_text().replace('"jq",', '"jq", "tree",'))
    assert base.read_recipe(tmp_path).layer != original.layer


async def test_a_build_that_fails_tells_its_last_lines_and_what_to_do(tmp_path: Path) -> None:
    recipe = replace(base.read_recipe(), suite="no-such-suite", digest="f" * 64)
    with pytest.raises(Unavailable) as failure:
        await base.build_base(recipe, tmp_path)
    assert "no-such-suite" in str(failure.value)
    assert "./sandlot up" in str(failure.value)
    assert Layers(tmp_path).names() == []
    assert not list(tmp_path.glob("*tmp*"))


@pytest.mark.timeout(900)
async def test_the_base_layer_is_a_clean_debian_with_an_unprivileged_user() -> None:
    recipe, directory = base.read_recipe(), Settings().cache_dir / "layers"
    root = Layers(directory).path(await base.build_base(recipe, directory))
    assert "user:x:1000:1000::/home/user:/bin/bash" in (root / "etc/passwd").read_text().splitlines()
    assert ((root / "home/user").stat().st_uid, (root / "home/user").stat().st_gid) == (1000, 1000)
    assert "NOPASSWD" in (root / "etc/sudoers.d/user").read_text()
    assert (root / "usr/bin/sudo").stat().st_mode & stat.S_ISUID
    for program in ("bash", "curl", "git", "pgrep", "pip", "python3", "rg", "ss", "sudo", "gcc"):
        assert (root / "usr/bin" / program).exists(), program
    for program in ("node", "npm", "npx", "yarn"):
        assert (root / "usr/local/bin" / program).exists(), program
    assert (root / "usr/bin/gh").exists()
    assert not list(root.glob("usr/lib/python3*/EXTERNALLY-MANAGED"))
    for name in ("etc/machine-id", "etc/resolv.conf", "etc/hostname"):
        assert (root / name).read_text() == ""
    for pattern in (
        "tmp/*",
        "var/cache/apt/*.bin",
        "var/lib/apt/lists/*_*",
        "etc/ssh/ssh_host_*",
        "etc/apt/apt.conf.d/99*",
    ):
        assert not list(root.glob(pattern)), pattern
    assert [path.name for path in (root / "etc/apt/sources.list.d").iterdir()] == ["debian.sources"]
    assert archive.Archive().main in (root / "etc/apt/sources.list.d/debian.sources").read_text()
