"""The warm pool: machines that are started ahead and frozen, how many of each kind, and leasing them, each once.

A warm machine belongs to no sandbox: it counts in no limit and is in no list. Leasing gives it to a sandbox; from then on it is
the sandbox's like any other. A server that starts finds what the last one left in its pool without a row, and removes it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from sandlot.engine.core.errors import EngineError
from sandlot.engine.core.ids import new_machine_id
from sandlot.engine.core.model import NetworkPolicy, NewMachine
from sandlot.engine.node.boot_snapshots import BootSnapshots
from sandlot.engine.node.machine_kind import MachineKind
from sandlot.engine.node.machine_table import LiveMachine
from sandlot.engine.node.machines import MachineFactory
from sandlot.spans import span

log = logging.getLogger(__name__)

TICK_S = 5.0
QUIET_S = 0.1  # after a start: the first command of a new sandbox is not to meet the next one's start
BURST_S = 10.0  # as many as were asked for within this time are kept warm for the next such burst
DEMAND_S = 300.0  # for how long a burst is remembered
KEEP_S = 1800.0  # for how long a kind that nobody asks for is kept warm
RETRY_S = 30.0
MOST_NOTED = 256
UNKNOWN_BYTES = 64 << 20  # what a machine is taken to use before one was measured
MEMORY_INFO = Path("/proc/meminfo")


@dataclass(slots=True)
class _Lane:
    """The machines of one kind, and how often they were asked for."""

    like: NewMachine
    ready: deque[str] = field(default_factory=deque)
    asked: deque[float] = field(default_factory=lambda: deque(maxlen=MOST_NOTED))
    bytes_each: int = UNKNOWN_BYTES
    failed_at: float | None = None

    def wants(self, least: int, now: float) -> int:
        """How many machines should be warm."""
        if not self.asked or now - self.asked[-1] > KEEP_S:
            return 0
        return max(least, self._burst(now))

    def _burst(self, now: float) -> int:
        """The most that were asked for in a short time, lately."""
        times = [at for at in self.asked if now - at <= DEMAND_S]
        first, most = 0, 0
        for last, at in enumerate(times):
            while at - times[first] > BURST_S:
                first += 1
            most = max(most, last - first + 1)
        return most


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLimits:
    """How much may be kept warm."""

    size: int = 0  # the least for every kind that was used lately; 0: no pool at all
    memory_bytes: int = 1 << 30


class WarmPool:
    """Machines by kind. `is_pressed` tells when the host is so short of memory that warm machines should go."""

    def __init__(
        self,
        *,
        machines: MachineFactory,
        starts: BootSnapshots,
        limits: PoolLimits,
        is_pressed: Callable[[], bool] | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._machines, self._starts, self._limits = machines, starts, limits
        self._is_pressed, self._now = is_pressed or host_is_pressed, now
        self._lanes: dict[MachineKind, _Lane] = {}
        self._leaving: set[str] = set()
        self._starting = 0
        self._started_at = -QUIET_S
        self._calm = asyncio.Event()
        self._hits = self._misses = 0
        self._wake = asyncio.Event()
        self._is_open = limits.size > 0

    # Leasing

    async def lease(self, new: NewMachine) -> LiveMachine | None:
        """A warm machine, given to this sandbox. None: there is none that works."""
        while (warm := self._take(new)) is not None:
            try:
                with span("lease"):
                    return await self._machines.lease(warm, new)
            except EngineError as error:
                log.warning("a warm machine is of no use (%s); another is started", error)
        return None

    def _take(self, new: NewMachine) -> LiveMachine | None:
        """The next warm machine of this kind that is alive; from here on it is no longer the pool's."""
        if not self._is_open or not _can_be_warm(new):
            return None
        kind = MachineKind.of(new)
        lane = self._lanes.setdefault(kind, _Lane(_blank(new)))
        self._started_at = self._now()  # it is about to: nothing is started ahead in the moment before it does
        lane.asked.append(self._started_at)
        self._wake.set()
        while lane.ready and _fits(new):
            machine_id = lane.ready.popleft()
            if (live := self._alive(machine_id)) is not None:
                self._hits += 1
                return live
            self._leaving.add(machine_id)
        self._misses += 1
        return None

    def _alive(self, machine_id: str) -> LiveMachine | None:
        live = self._machines.table.get(machine_id)
        return live if live is not None and not live.has_ended else None

    @contextlib.contextmanager
    def yielding(self) -> Iterator[None]:
        """While inside, somebody's sandbox starts: nothing is started ahead beside it."""
        self._starting += 1
        self._calm.clear()
        try:
            yield
        finally:
            self._starting -= 1
            self._started_at = self._now()
            if not self._starting:
                self._calm.set()

    def numbers(self) -> tuple[Mapping[str, int], int, int]:
        """Warm machines by runtime; how often one was, and was not, there when it was asked for."""
        ready: dict[str, int] = {}
        for kind, lane in self._lanes.items():
            ready[kind.runtime] = ready.get(kind.runtime, 0) + len(lane.ready)
        return ready, self._hits, self._misses

    # Filling

    async def run(self) -> None:
        """Keep machines warm for as long as the server runs."""
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), TICK_S)
            self._wake.clear()
            try:
                while self._is_open and await self.step():
                    pass
            except Exception:  # a host that is broken for a moment: the next look catches up
                log.exception("could not keep machines warm; it is tried again")

    async def step(self) -> bool:
        """Do the one thing that is most needed. False: nothing is."""
        self._drop_dead()
        if self._is_pressed():
            self._empty(self._lanes)
        elif (extra := self._surplus()) is not None:
            self._leaving.add(extra)
        if self._leaving:
            await self._remove(next(iter(self._leaving)))
            return True
        kind = self._neediest()
        if kind is None:
            return False
        await self.quiet()
        lane = self._lanes.get(kind)
        if lane is not None and not self._is_pressed() and await self._has_room(kind, lane):
            await self._fill(kind, lane)
            return True
        return False

    async def drain(self, template_id: str) -> None:
        """The template is gone, or is another one now: stop its warm machines, also the one in the making."""
        kinds = [kind for kind in self._lanes if kind.template_id == template_id]
        self._empty(kinds)
        for kind in kinds:
            del self._lanes[kind]
        while self._leaving:
            await self._remove(next(iter(self._leaving)))

    async def close(self) -> None:
        """Stop every warm machine. No more is leased."""
        self._is_open = False
        self._empty(self._lanes)
        self._lanes.clear()
        await asyncio.gather(*(self._remove(machine_id) for machine_id in list(self._leaving)))

    def _empty(self, kinds: Mapping[MachineKind, _Lane] | list[MachineKind]) -> None:
        for kind in kinds:
            ready = self._lanes[kind].ready
            self._leaving.update(ready)
            ready.clear()

    def _drop_dead(self) -> None:
        for lane in self._lanes.values():
            dead = [machine_id for machine_id in lane.ready if self._alive(machine_id) is None]
            for machine_id in dead:
                lane.ready.remove(machine_id)
            self._leaving.update(dead)

    def _surplus(self) -> str | None:
        now = self._now()
        for kind, lane in list(self._lanes.items()):
            wanted = lane.wants(self._limits.size, now)
            if len(lane.ready) > wanted:
                return lane.ready.popleft()
            if not wanted and not lane.ready:
                del self._lanes[kind]
        return None

    def _neediest(self) -> MachineKind | None:
        """The kind that was asked for last, of those that lack a machine."""
        now = self._now()
        short = [
            (lane.asked[-1], kind)
            for kind, lane in self._lanes.items()
            if len(lane.ready) < lane.wants(self._limits.size, now)
            and (lane.failed_at is None or now - lane.failed_at >= RETRY_S)
        ]
        return max(short, key=lambda each: each[0])[1] if short else None

    async def quiet(self) -> None:
        """Wait until nobody's sandbox starts, has just started, or was just asked for."""
        while self._starting or (wait_s := self._started_at + QUIET_S - self._now()) > 0:
            if self._starting:
                await self._calm.wait()
            else:
                await asyncio.sleep(wait_s)

    async def _has_room(self, kind: MachineKind, lane: _Lane) -> bool:
        """Whether one more fits; machines of kinds that were asked for longer ago make way."""
        used = sum(each.bytes_each * len(each.ready) for each in self._lanes.values())
        if used + lane.bytes_each <= self._limits.memory_bytes:
            return True
        others = [each for each in self._lanes.values() if each.ready and each.asked[-1] < lane.asked[-1]]
        if lane.ready or not others:
            return False
        await self._remove(min(others, key=lambda each: each.asked[-1]).ready.popleft())
        return True

    async def _fill(self, kind: MachineKind, lane: _Lane) -> None:
        new = replace(lane.like, sandbox_id=new_machine_id(), envd_token=secrets.token_hex(32))
        try:
            used = await self._prepare(new)
        except (EngineError, OSError) as error:  # a full disk, say
            lane.failed_at = self._now()
            log.warning("no machine could be started ahead for template %s: %s", kind.template_id, error)
            return
        lane.bytes_each, lane.failed_at = max(used, 1 << 20), None
        if self._is_open and self._lanes.get(kind) is lane:
            lane.ready.append(new.sandbox_id)
        else:  # the template changed while it was made
            await self._remove(new.sandbox_id)

    async def _prepare(self, new: NewMachine) -> int:
        """Start a machine that belongs to no sandbox, and freeze it; what it takes of the host's memory."""
        live = await self._starts.start(new, is_leased=False)
        try:
            await self._machines.warm_up(live, new)
            await self._machines.freeze(new.sandbox_id)
            return (await self._machines.usage(new.sandbox_id)).mem_used
        except BaseException:
            await self._machines.stop(new.sandbox_id)
            raise

    async def _remove(self, machine_id: str) -> None:
        self._leaving.add(machine_id)
        try:
            await self._machines.stop(machine_id)
        except EngineError as error:  # found again when rows and machines are compared
            log.error("a warm machine could not be stopped: %s", error)
        finally:
            self._leaving.discard(machine_id)


def _can_be_warm(new: NewMachine) -> bool:
    """Snapshots are not started ahead: what ran in them would run on, unseen, before anybody asked for it."""
    return new.template.source is None


def _fits(new: NewMachine) -> bool:
    """What a start command did while its machine was started ahead, it did without the caller's variables and rules.

    It had those of the template: a caller who gives the same ones again takes nothing from it.
    """
    if new.template.start_cmd is None or new.checkpoint is not None:
        return True
    given = {name: value for name, value in new.env_vars.items() if new.template.env.get(name) != value}
    return not given and replace(new.network, allow_public_traffic=True) == NetworkPolicy()


def _blank(new: NewMachine) -> NewMachine:
    return replace(new, network=NetworkPolicy(), env_vars={})


def host_is_pressed() -> bool:
    """Whether the host is so short of memory that warm machines should go."""
    try:
        lines = dict(line.split(":", 1) for line in MEMORY_INFO.read_text().splitlines())
        total, available = (int(lines[name].split()[0]) << 10 for name in ("MemTotal", "MemAvailable"))
    except (OSError, KeyError, ValueError):
        return False
    return available < max(total // 10, 512 << 20)
