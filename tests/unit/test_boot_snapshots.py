"""Which boot snapshots are made and kept: what is asked for again, for as long as it can be used."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import pytest
from tests.fakes_machines import FakeFactory

from sandlot.engine.core.errors import MachineFailed
from sandlot.engine.core.model import Checkpoint, Instance, NetworkPolicy, NewMachine, PauseMode, Resources, Template
from sandlot.engine.node.boot_snapshots import RETRY_S, BootSnapshots
from sandlot.engine.node.checkpoint_store import CheckpointStore
from sandlot.engine.node.machine_table import LiveMachine
from sandlot.engine.node.machines import MachineFactory

NOW = datetime(2030, 1, 1, tzinfo=UTC)
TEMPLATE = Template(id="t1", team_id=None, name="base", layers=("l1",), build_id="b1", created_at=NOW, updated_at=NOW)
NEW = NewMachine(
    sandbox_id="i1", runtime="fake", template=TEMPLATE, resources=Resources(), network=NetworkPolicy(), envd_token="t"
)


class Program:
    """A runtime that writes memory, as far as boot snapshots look at one."""

    captures_memory = True

    def __init__(self, host: Host) -> None:
        self._host = host

    async def program(self) -> str:
        return self._host.installed

    def keep_programs(self, needed: Collection[str]) -> None:
        return None

    async def capture(self, instance: Instance, into: Path, *, final: bool) -> None:
        return None


class Host(FakeFactory):
    """A host whose checkpoints are small files."""

    def __init__(self, directory: Path, *, most: int = 3, guest: str = "g1") -> None:
        super().__init__()
        self.now, self.booted = 1000.0, list[NewMachine]()
        self.installed = "p1"
        self.layers = directory / "layers"
        (self.layers / "l1").mkdir(parents=True, exist_ok=True)
        self.checkpoints = CheckpointStore(directory / "checkpoints", 1 << 30)
        self.guest = guest
        self.runtimes = {"fake": Program(self)}
        self.snapshots = BootSnapshots(
            machines=cast(MachineFactory, self),
            checkpoints=self.checkpoints,
            guest=guest,
            layers_dir=self.layers,
            most=most,
            now=lambda: self.now,
        )

    def runtime(self, name: str) -> object:
        return self.runtimes[name]

    async def save(
        self, live: LiveMachine, name: str, mode: PauseMode, *, final: bool, lasting: bool = True
    ) -> Checkpoint | None:
        new = self.machines[live.sandbox_id]
        self.booted.append(new)
        return await self.keep(new, name)

    async def keep(self, new: NewMachine, name: str) -> Checkpoint:
        facts = Checkpoint(
            name=name, runtime="fake", program="p1", mode=PauseMode.FULL, guest=self.guest, layers=new.template.layers,
            resources=new.resources, boot_id="b", envd_token="secret", created_at=NOW, size_bytes=0,
        )  # fmt: skip

        async def fill(state: Path) -> None:
            state.mkdir()

        return await self.checkpoints.write(facts, fill)

    async def asked(self, *requests: NewMachine) -> Sequence[str | None]:
        found = []
        for new in requests:
            found.append(await self.snapshots.find(new))
            while self.snapshots._wanted:
                await self.snapshots.step()
        return found


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


async def test_what_is_asked_for_again_is_saved_for_the_time_after(host: Host) -> None:
    first, second, third = await host.asked(NEW, replace(NEW, sandbox_id="i2"), replace(NEW, sandbox_id="i3"))
    assert (first, second) == (None, None) and third is not None and len(host.booted) == 1


async def test_nothing_of_whoever_asked_is_in_it(host: Host) -> None:
    own = replace(NEW, env_vars={"SECRET": "x"}, network=NetworkPolicy(allow_internet=False))
    await host.asked(own, own)
    assert not host.booted[0].env_vars and host.booted[0].network == NetworkPolicy()
    assert (await host.asked(NEW))[0] is not None, "and what differs only in that begins with it too"


async def test_another_build_size_or_program_has_another_one(host: Host) -> None:
    await host.asked(NEW, NEW)
    others = (
        replace(NEW, template=replace(TEMPLATE, build_id="b2")),
        replace(NEW, template=replace(TEMPLATE, layers=("l1", "l2"))),
        replace(NEW, resources=replace(Resources(), memory_mb=768)),
    )
    assert await host.asked(*others) == [None, None, None]
    host.installed = "p2"
    assert await host.asked(NEW) == [None]


async def test_what_has_a_state_of_its_own_needs_none(host: Host) -> None:
    assert await host.asked(*[replace(NEW, checkpoint="tpl1")] * 3) == [None] * 3
    assert not host.booted


async def test_one_that_could_not_be_made_is_tried_again_later(host: Host) -> None:
    host.broken = True
    await host.asked(NEW, NEW)
    host.broken = False
    assert await host.asked(NEW, NEW) == [None, None] and not host.booted
    host.now += RETRY_S
    await host.asked(NEW)
    assert (await host.asked(NEW))[0] is not None


async def test_one_that_was_no_good_is_gone_and_not_made_again_at_once(host: Host) -> None:
    *_, name = await host.asked(NEW, NEW, NEW)
    assert name is not None
    await host.snapshots.discard(name)
    assert not host.checkpoints.names()
    assert await host.asked(NEW, NEW) == [None, None] and len(host.booted) == 1


async def test_it_goes_with_its_template(host: Host) -> None:
    other = replace(NEW, template=replace(TEMPLATE, id="t10"))
    await host.asked(NEW, NEW, other, other)
    await host.snapshots.forget("t1")
    assert await host.asked(NEW) == [None]
    assert (await host.asked(other))[0] is not None


async def test_it_goes_with_its_layers_and_with_the_guest_it_was_made_with(host: Host, tmp_path: Path) -> None:
    await host.asked(NEW, NEW)
    later = Host(tmp_path, guest="g2")
    await later.snapshots.tidy()
    assert not later.checkpoints.names()
    await later.asked(NEW, NEW)
    (later.layers / "l1").rmdir()
    await later.snapshots.tidy()
    assert not later.checkpoints.names()


async def test_it_goes_when_another_program_is_installed(host: Host) -> None:
    await host.asked(NEW, NEW)
    host.installed = "p2"
    await host.snapshots.tidy()
    assert not host.checkpoints.names()


async def test_a_full_disk_ends_nothing(host: Host) -> None:
    host.broken, host.failure = True, OSError(28, "No space left on device")
    assert await host.asked(NEW, NEW, NEW) == [None] * 3


async def test_another_process_finds_it(host: Host, tmp_path: Path) -> None:
    await host.asked(NEW, NEW)
    assert (await Host(tmp_path).asked(NEW))[0] is not None


async def test_what_was_not_used_for_longest_makes_way(host: Host) -> None:
    kinds = [replace(NEW, template=replace(TEMPLATE, id=f"t{number}")) for number in range(4)]
    for age, kind in enumerate(kinds[:3]):
        await host.asked(kind, kind)
        (name,) = await host.asked(kind)
        os.utime(host.checkpoints._directory / str(name), (age + 1, age + 1))
    await host.asked(kinds[0])  # the oldest is of use once more
    await host.asked(kinds[3], kinds[3])
    assert [await host.snapshots.find(kind) is not None for kind in kinds] == [True, False, True, True]


async def test_other_saved_states_are_left_alone(host: Host) -> None:
    await host.keep(NEW, "tpl1")
    await host.snapshots.forget("t1")
    (host.layers / "l1").rmdir()
    await host.snapshots.tidy()
    assert host.checkpoints.names() == {"tpl1"}


async def test_none_is_kept_where_none_is_wanted(tmp_path: Path) -> None:
    host = Host(tmp_path, most=0)
    assert await host.asked(NEW, NEW, NEW) == [None] * 3 and not host.booted


async def test_it_is_made_when_it_is_quiet(host: Host) -> None:
    quiet = asyncio.Event()

    async def is_quiet() -> None:
        await quiet.wait()

    running = asyncio.create_task(host.snapshots.run(is_quiet))
    try:
        await host.snapshots.find(NEW)
        await host.snapshots.find(NEW)
        for _ in range(20):
            await asyncio.sleep(0)
        assert not host.booted
        quiet.set()
        for _ in range(1000):
            if host.booted:
                break
            await asyncio.sleep(0.01)
        assert len(host.booted) == 1
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_machine_that_cannot_begin_with_one_boots(host: Host) -> None:
    await host.asked(NEW, NEW)
    broken = {"left": 1}
    start = host.start

    async def once_broken(new: NewMachine, *, boot_snapshot: str | None = None, is_leased: bool = True) -> LiveMachine:
        if boot_snapshot is not None and broken["left"]:
            broken["left"] -= 1
            raise MachineFailed("the snapshot cannot be read")
        return await start(new, boot_snapshot=boot_snapshot, is_leased=is_leased)

    host.start = once_broken  # type: ignore[method-assign]
    await host.snapshots.start(replace(NEW, sandbox_id="i9"))
    assert "i9" in host.machines and host.snapshots_used[-1] is None and not host.checkpoints.names()


async def test_a_snapshot_of_a_sandbox_that_cannot_be_read_is_an_error(host: Host) -> None:
    host.broken = True
    with pytest.raises(MachineFailed):
        await host.snapshots.start(replace(NEW, checkpoint="snp1", template=replace(TEMPLATE, source="i1")))
