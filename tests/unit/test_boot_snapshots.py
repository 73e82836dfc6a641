"""Which states of booted machines are kept: what is asked for again, for as long as it can be used."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sandlot.engine.core.errors import MachineFailed
from sandlot.engine.core.model import Checkpoint, NetworkPolicy, NewMachine, PauseMode, Resources, Template
from sandlot.engine.node.boot_snapshots import RETRY_S, BootSnapshots
from sandlot.engine.node.checkpoint_store import Checkpoints

NOW = datetime(2030, 1, 1, tzinfo=UTC)
TEMPLATE = Template(id="t1", team_id=None, name="base", layers=("l1",), build_id="b1", created_at=NOW, updated_at=NOW)
WISH = NewMachine(
    sandbox_id="i1", runtime="fake", template=TEMPLATE, resources=Resources(), network=NetworkPolicy(), envd_token="t"
)


class Ground:
    """A host whose saved states are small files."""

    def __init__(self, directory: Path, *, most: int = 3, guest: str = "g1") -> None:
        self.now, self.broken, self.sown = 1000.0, False, list[NewMachine]()
        self.failure: Exception = MachineFailed("broken on purpose")
        self.installed = "p1"
        self.layers = directory / "layers"
        (self.layers / "l1").mkdir(parents=True, exist_ok=True)
        self.checkpoints = Checkpoints(directory / "checkpoints", 1 << 30)
        self.guest = guest
        self.seeds = BootSnapshots(
            checkpoints=self.checkpoints,
            guest=guest,
            layers_dir=self.layers,
            sow=self.sow,
            most=most,
            programs=self.programs,
            now=lambda: self.now,
        )

    async def programs(self) -> set[str]:
        return {self.installed}

    async def sow(self, new: NewMachine, name: str) -> None:
        if self.broken:
            raise self.failure
        self.sown.append(new)
        facts = Checkpoint(
            name=name, runtime="fake", program="p1", mode=PauseMode.FULL, guest=self.guest, layers=new.template.layers,
            resources=new.resources, boot_id="b", envd_token="secret", created_at=NOW, size_bytes=0,
        )  # fmt: skip

        async def fill(state: Path) -> None:
            state.mkdir()

        await self.checkpoints.write(facts, fill)

    async def asked(self, *wishes: NewMachine, program: str = "p1") -> Sequence[str | None]:
        found = []
        for wish in wishes:
            found.append(self.seeds.find(wish, program))
            while self.seeds._wanted:
                await self.seeds.step()
        return found


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


async def test_what_is_asked_for_again_is_saved_for_the_time_after(ground: Ground) -> None:
    first, second, third = await ground.asked(WISH, replace(WISH, sandbox_id="i2"), replace(WISH, sandbox_id="i3"))
    assert (first, second) == (None, None) and third is not None and len(ground.sown) == 1


async def test_nothing_of_whoever_asked_is_in_it(ground: Ground) -> None:
    own = replace(WISH, env_vars={"SECRET": "x"}, network=NetworkPolicy(allow_internet=False))
    await ground.asked(own, own)
    assert not ground.sown[0].env_vars and ground.sown[0].network == NetworkPolicy()
    assert (await ground.asked(WISH))[0] is not None, "and what differs only in that begins with it too"


async def test_another_build_size_or_program_has_another_one(ground: Ground) -> None:
    await ground.asked(WISH, WISH)
    others = (
        replace(WISH, template=replace(TEMPLATE, build_id="b2")),
        replace(WISH, template=replace(TEMPLATE, layers=("l1", "l2"))),
        replace(WISH, resources=replace(Resources(), memory_mb=768)),
    )
    assert await ground.asked(*others) == [None, None, None]
    assert await ground.asked(WISH, program="p2") == [None]


async def test_what_has_a_state_of_its_own_needs_none(ground: Ground) -> None:
    assert await ground.asked(*[replace(WISH, checkpoint="tpl1")] * 3) == [None] * 3
    assert not ground.sown


async def test_one_that_could_not_be_made_is_tried_again_later(ground: Ground) -> None:
    ground.broken = True
    await ground.asked(WISH, WISH)
    ground.broken = False
    assert await ground.asked(WISH, WISH) == [None, None] and not ground.sown
    ground.now += RETRY_S
    await ground.asked(WISH)
    assert (await ground.asked(WISH))[0] is not None


async def test_one_that_was_no_good_is_gone_and_not_made_again_at_once(ground: Ground) -> None:
    *_, name = await ground.asked(WISH, WISH, WISH)
    assert name is not None
    await ground.seeds.spoiled(name)
    assert not ground.checkpoints.names()
    assert await ground.asked(WISH, WISH) == [None, None] and len(ground.sown) == 1


async def test_it_goes_with_its_template(ground: Ground) -> None:
    other = replace(WISH, template=replace(TEMPLATE, id="t10"))
    await ground.asked(WISH, WISH, other, other)
    await ground.seeds.forget("t1")
    assert await ground.asked(WISH) == [None]
    assert (await ground.asked(other))[0] is not None


async def test_it_goes_with_its_layers_and_with_the_guest_it_was_made_with(ground: Ground, tmp_path: Path) -> None:
    await ground.asked(WISH, WISH)
    later = Ground(tmp_path, guest="g2")
    await later.seeds.tidy()
    assert not later.checkpoints.names()
    await later.asked(WISH, WISH)
    (later.layers / "l1").rmdir()
    await later.seeds.tidy()
    assert not later.checkpoints.names()


async def test_it_goes_when_another_program_is_installed(ground: Ground) -> None:
    await ground.asked(WISH, WISH)
    ground.installed = "p2"
    await ground.seeds.tidy()
    assert not ground.checkpoints.names()


async def test_a_full_disk_ends_nothing(ground: Ground) -> None:
    ground.broken, ground.failure = True, OSError(28, "No space left on device")
    assert await ground.asked(WISH, WISH, WISH) == [None] * 3


async def test_another_process_finds_it(ground: Ground, tmp_path: Path) -> None:
    await ground.asked(WISH, WISH)
    assert (await Ground(tmp_path).asked(WISH))[0] is not None


async def test_what_was_not_used_for_longest_makes_way(ground: Ground) -> None:
    kinds = [replace(WISH, template=replace(TEMPLATE, id=f"t{number}")) for number in range(4)]
    for age, kind in enumerate(kinds[:3]):
        await ground.asked(kind, kind)
        (name,) = await ground.asked(kind)
        os.utime(ground.checkpoints._directory / str(name), (age + 1, age + 1))
    await ground.asked(kinds[0])  # the oldest is of use once more
    await ground.asked(kinds[3], kinds[3])
    assert [ground.seeds.find(kind, "p1") is not None for kind in kinds] == [True, False, True, True]


async def test_other_saved_states_are_left_alone(ground: Ground) -> None:
    await ground.sow(WISH, "tpl1")
    await ground.seeds.forget("t1")
    (ground.layers / "l1").rmdir()
    await ground.seeds.tidy()
    assert ground.checkpoints.names() == {"tpl1"}


async def test_none_is_kept_where_none_is_wanted(tmp_path: Path) -> None:
    ground = Ground(tmp_path, most=0)
    assert await ground.asked(WISH, WISH, WISH) == [None] * 3 and not ground.sown


async def test_it_is_made_when_it_is_quiet(ground: Ground) -> None:
    quiet = asyncio.Event()

    async def is_quiet() -> None:
        await quiet.wait()

    running = asyncio.create_task(ground.seeds.run(is_quiet))
    try:
        ground.seeds.find(WISH, "p1")
        ground.seeds.find(WISH, "p1")
        for _ in range(20):
            await asyncio.sleep(0)
        assert not ground.sown
        quiet.set()
        for _ in range(1000):
            if ground.sown:
                break
            await asyncio.sleep(0.01)
        assert len(ground.sown) == 1
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
