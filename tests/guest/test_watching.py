"""Watches of directories by themselves: when they answer, and what they follow."""

from __future__ import annotations

import asyncio
import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from envd import watching
from envd.watching import CREATE, REMOVE, RENAME, WRITE, TooManyEvents, Watch

FOREVER = 3600.0
Start = Callable[[Path], Watch]


@pytest.fixture
def watch() -> Iterator[Start]:
    started: list[Watch] = []

    def start(root: Path) -> Watch:
        started.append(Watch(str(root), True, None))
        return started[-1]

    yield start
    for each in started:
        each.close()


async def told(watch: Watch, name: str, kind: int) -> None:
    """Wait until this was told."""
    async with asyncio.timeout(60):
        while {"name": name, "type": kind} not in await watch.wait(FOREVER):
            pass


async def test_what_has_happened_already_is_told_without_a_wait(tmp_path: Path, watch: Start) -> None:
    started = watch(tmp_path)
    (tmp_path / "f").touch()
    started._readable()  # as the loop does it, with nobody waiting
    assert {"name": "f", "type": CREATE} in await asyncio.wait_for(started.wait(FOREVER), 60)


async def test_who_waits_is_woken_by_what_happens_and_by_time(tmp_path: Path, watch: Start) -> None:
    started = watch(tmp_path)
    assert await asyncio.wait_for(started.wait(0.01), 60) == []
    waiting = asyncio.create_task(started.wait(FOREVER))
    await asyncio.sleep(0)
    (tmp_path / "f").touch()
    assert {"name": "f", "type": CREATE} in await asyncio.wait_for(waiting, 60)


async def test_a_loss_is_told_after_what_was_kept_and_without_a_wait(
    tmp_path: Path, watch: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "MAX_EVENTS", 2)
    started = watch(tmp_path)
    for number in range(5):
        (tmp_path / str(number)).mkdir()
    started._readable()
    kept = await asyncio.wait_for(started.wait(FOREVER), 60)
    assert [event["name"] for event in kept] == ["0", "1"]
    with pytest.raises(TooManyEvents):
        await asyncio.wait_for(started.wait(FOREVER), 60)


async def test_directories_that_come_are_watched_and_those_that_go_are_not(tmp_path: Path, watch: Start) -> None:
    root, elsewhere = tmp_path / "root", tmp_path / "elsewhere"
    (elsewhere / "below").mkdir(parents=True)
    root.mkdir()
    started = watch(root)
    (root / "fresh").mkdir()
    await told(started, "fresh", CREATE)
    (root / "fresh" / "f").write_text("1")
    await told(started, "fresh/f", WRITE)
    elsewhere.rename(root / "moved")
    await told(started, "moved", CREATE)
    (root / "moved" / "below" / "f").write_text("1")
    await told(started, "moved/below/f", WRITE)
    (root / "moved").rename(tmp_path / "away")
    await told(started, "moved", RENAME)
    (tmp_path / "away" / "below" / "g").write_text("1")
    (root / "fresh" / "f").unlink()
    async with asyncio.timeout(60):
        seen: list[tuple[object, object]] = []
        while ("fresh/f", REMOVE) not in seen:
            seen += [(event["name"], event["type"]) for event in await started.wait(FOREVER)]
    assert not [name for name, _ in seen if "below" in str(name)], seen


async def test_a_directory_that_is_gone_before_it_can_be_watched_harms_nothing(tmp_path: Path, watch: Start) -> None:
    started = watch(tmp_path)
    (tmp_path / "brief").mkdir()
    (tmp_path / "brief").rmdir()
    started._readable()  # both at once, too late for the first
    await told(started, "brief", REMOVE)
    (tmp_path / "f").touch()
    await told(started, "f", CREATE)


async def test_network_mounts_are_known_by_their_kind(
    tmp_path: Path, watch: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    started = watch(root)
    assert not started.is_on_network_mount()
    import ctypes

    buffer = ctypes.create_string_buffer(256)
    assert watching.libc().statfs(os.fsencode(root), buffer) == 0
    kind = struct.unpack_from("@l", buffer.raw)[0] & 0xFFFFFFFF
    monkeypatch.setattr(watching, "_NETWORK_MOUNTS", frozenset({kind, 0}))
    assert started.is_on_network_mount()
    root.rmdir()
    assert not started.is_on_network_mount(), "of what cannot be asked nothing is known"
