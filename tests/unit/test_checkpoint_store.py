"""States on disk: whole or not at all, checked before use, bounded, and gone when removed."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sandlot.engine.core.errors import NoCapacity, StateUnusable
from sandlot.engine.core.model import Checkpoint, PauseMode, Resources
from sandlot.engine.node.checkpoint_store import CheckpointStore

FACTS = Checkpoint(
    name="i1",
    runtime="fake",
    program="p1",
    mode=PauseMode.FULL,
    guest="g1",
    layers=("l1", "l2"),
    resources=Resources(),
    boot_id="b1",
    envd_token="secret",
    created_at=datetime(2030, 1, 1, tzinfo=UTC),
    size_bytes=0,
)


async def fill(state: Path, content: str = "memory") -> None:
    state.mkdir()
    (state / "pages").write_text(content)
    (state / "names").mkdir()
    (state / "names" / "hostname").write_text("box")
    (state / "names" / "link").symlink_to("/nowhere")


@pytest.fixture
def checkpoints(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(tmp_path / "checkpoints", 1 << 30)


@pytest.mark.parametrize("lasting", [True, False])
async def test_what_was_written_is_found_with_its_facts_also_by_another_process(
    checkpoints: CheckpointStore, tmp_path: Path, lasting: bool
) -> None:
    kept = await checkpoints.write(FACTS, fill, lasting=lasting)
    assert kept == replace(FACTS, size_bytes=kept.size_bytes) and kept.size_bytes > 0
    facts, state = CheckpointStore(tmp_path / "checkpoints", 1 << 30).open("i1")
    assert facts == kept and (state / "pages").read_text() == "memory"
    assert checkpoints.all() == {"i1": kept} and checkpoints.used_bytes() == kept.size_bytes


async def test_only_root_can_read_a_state(checkpoints: CheckpointStore, tmp_path: Path) -> None:
    await checkpoints.write(FACTS, fill)
    assert (tmp_path / "checkpoints").stat().st_mode & 0o077 == 0
    assert (tmp_path / "checkpoints" / "i1").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("error", [OSError("disk full"), asyncio.CancelledError()])
async def test_a_write_that_fails_leaves_nothing_and_the_earlier_state_as_it_was(
    checkpoints: CheckpointStore, tmp_path: Path, error: BaseException
) -> None:
    async def broken(state: Path) -> None:
        await fill(state, "half")
        raise error

    await checkpoints.write(FACTS, fill)
    with pytest.raises(type(error)):
        await checkpoints.write(FACTS, broken)
    assert (checkpoints.open("i1")[1] / "pages").read_text() == "memory"
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["i1"]


async def test_a_new_state_takes_the_place_of_the_earlier_one(checkpoints: CheckpointStore, tmp_path: Path) -> None:
    await checkpoints.write(FACTS, fill)
    await checkpoints.write(replace(FACTS, boot_id="b2"), lambda state: fill(state, "newer"))
    facts, state = checkpoints.open("i1")
    assert (facts.boot_id, (state / "pages").read_text()) == ("b2", "newer")
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["i1"]


async def test_what_a_killed_process_was_writing_is_taken_away(tmp_path: Path) -> None:
    draft = tmp_path / "checkpoints" / ".i1-0badcafe"
    draft.mkdir(parents=True)
    assert CheckpointStore(tmp_path / "checkpoints", 1).names() == set() and not draft.exists()


@pytest.mark.parametrize("harm", ["cut", "grown", "gone", "extra"])
async def test_a_damaged_state_is_not_opened_but_still_counted_and_removed(
    checkpoints: CheckpointStore, tmp_path: Path, harm: str
) -> None:
    await checkpoints.write(FACTS, fill)
    pages = tmp_path / "checkpoints" / "i1" / "state" / "pages"
    match harm:
        case "cut":
            pages.write_text("mem")
        case "grown":
            pages.write_text("memory and more")
        case "gone":
            pages.unlink()
        case "extra":
            (pages.parent / "other").touch()
    with pytest.raises(StateUnusable, match="damaged"):
        checkpoints.open("i1")
    assert checkpoints.get("i1") is not None and checkpoints.used_bytes() > 0
    await checkpoints.remove("i1")
    assert checkpoints.names() == set()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"name": "i1"}', "\x00"])
async def test_facts_that_cannot_be_read_are_a_state_that_is_missing(
    checkpoints: CheckpointStore, tmp_path: Path, text: str
) -> None:
    await checkpoints.write(FACTS, fill)
    (tmp_path / "checkpoints" / "i1" / "checkpoint.json").write_text(text)
    assert checkpoints.get("i1") is None and checkpoints.all() == {} and checkpoints.used_bytes() == 0
    with pytest.raises(StateUnusable, match="missing or unreadable"):
        checkpoints.open("i1")
    assert checkpoints.names() == {"i1"}, "the sweep still finds it"


async def test_facts_of_a_later_version_do_not_hide_a_state(checkpoints: CheckpointStore, tmp_path: Path) -> None:
    await checkpoints.write(FACTS, fill)
    path = tmp_path / "checkpoints" / "i1" / "checkpoint.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "added_later": 1}))
    assert checkpoints.open("i1")[0].name == "i1"


async def test_a_limit_that_is_reached_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    checkpoints = CheckpointStore(tmp_path / "checkpoints", 100_000)
    with pytest.raises(NoCapacity, match="SANDLOT_CHECKPOINT_DISK_GB"):
        await checkpoints.write(FACTS, fill, expected_bytes=100_000)
    await checkpoints.write(FACTS, lambda state: fill(state, "x" * 200_000))
    with pytest.raises(NoCapacity):
        await checkpoints.write(replace(FACTS, name="i2"), fill)
    assert checkpoints.names() == {"i1"}
    await checkpoints.remove("i1")
    await checkpoints.write(replace(FACTS, name="i2"), fill)


async def test_removing_twice_is_fine(checkpoints: CheckpointStore) -> None:
    await checkpoints.write(FACTS, fill)
    await checkpoints.remove("i1")
    await checkpoints.remove("i1")
    assert checkpoints.get("i1") is None
