"""The pool: which machines stand ready before anybody asks, how many, and who gets each of them, once.

A machine of the pool was started under an id that no sandbox has yet, and is held still. Handing it out is giving that id to
a row; from then on it is the sandbox's like any other. What the pool has is nobody's: it counts in no limit and is in no
list, and a server that starts finds it without a row and takes it away.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from sandlot.engine.core.errors import EngineError
from sandlot.engine.core.model import NetworkPolicy, NewMachine, Resources

log = logging.getLogger(__name__)

TICK_S = 5.0
QUIET_S = 0.1  # after a start: the first command of a new sandbox is not to meet the next one's start
BURST_S = 10.0  # as many as were asked for within this time stand ready for the next such burst
DEMAND_S = 300.0  # for how long a burst is remembered
KEEP_S = 1800.0  # for how long machines stand ready for what nobody asks for
RETRY_S = 30.0
MOST_NOTED = 256
UNKNOWN_BYTES = 64 << 20  # what a machine is taken to use before one was measured
MEMORY_INFO = Path("/proc/meminfo")


@dataclass(frozen=True, slots=True)
class Kind:
    """What machines have in common that can stand in for each other."""

    template_id: str
    build_id: str
    runtime: str
    resources: Resources
    layers: tuple[str, ...]
    checkpoint: str | None
    commands: tuple[str | None, str | None]
    defaults: tuple[object, ...]

    @classmethod
    def of(cls, new: NewMachine) -> Kind:
        template = new.template
        return cls(
            template_id=template.id,
            build_id=template.build_id,
            runtime=new.runtime,
            resources=new.resources,
            layers=template.layers,
            checkpoint=new.checkpoint,
            commands=(template.start_cmd, template.ready_cmd),
            defaults=(template.default_user, template.default_workdir, *sorted(template.env.items())),
        )


@dataclass(slots=True)
class _Shelf:
    """The machines of one kind, and how often they were asked for."""

    like: NewMachine
    ready: deque[str] = field(default_factory=deque)
    asked: deque[float] = field(default_factory=lambda: deque(maxlen=MOST_NOTED))
    bytes_each: int = UNKNOWN_BYTES
    failed_at: float | None = None

    def wants(self, least: int, now: float) -> int:
        """How many machines should stand ready."""
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
class Plan:
    """How much may stand ready."""

    size: int = 0  # the least for every kind that was used lately; 0: no pool at all
    memory_bytes: int = 1 << 30
    make_id: Callable[[], str] = lambda: f"i{secrets.token_hex(10)}"


class Pool:
    """`prepare` starts a machine, holds it still and says how much memory it takes; `discard` takes it away."""

    def __init__(
        self,
        *,
        prepare: Callable[[NewMachine], Awaitable[int]],
        discard: Callable[[str], Awaitable[None]],
        plan: Plan,
        pressed: Callable[[], bool] | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._prepare, self._discard, self._make_id = prepare, discard, plan.make_id
        self._size, self._memory_bytes = plan.size, plan.memory_bytes
        self._pressed = pressed or host_is_pressed
        self._now = now
        self._shelves: dict[Kind, _Shelf] = {}
        self._tokens: dict[str, str] = {}  # of every machine that the pool answers for: what its daemon believes
        self._promised: dict[str, Kind] = {}
        self._leaving: set[str] = set()
        self._starting = 0
        self._started_at = -QUIET_S
        self._calm = asyncio.Event()
        self._hits = self._misses = 0
        self._wake = asyncio.Event()
        self._is_open = plan.size > 0

    # Handing out

    def take(self, wish: NewMachine) -> str | None:
        """The id of a machine that stands ready for this, promised to the caller alone; None: there is none."""
        if not self._is_open or not _can_stand_ready(wish):
            return None
        kind = Kind.of(wish)
        shelf = self._shelves.setdefault(kind, _Shelf(_blank(wish)))
        self._started_at = self._now()  # it is about to: nothing is made ready in the moment before it does
        shelf.asked.append(self._started_at)
        self._wake.set()
        if not shelf.ready or not _fits(wish):
            self._misses += 1
            return None
        self._hits += 1
        sandbox_id = shelf.ready.popleft()
        self._promised[sandbox_id] = kind
        return sandbox_id

    def put_back(self, sandbox_id: str) -> None:
        """A promise that is not needed after all. Any other id is fine."""
        kind = self._promised.pop(sandbox_id, None)
        if kind is not None:
            if (shelf := self._shelves.get(kind)) is not None and self._is_open:
                shelf.ready.appendleft(sandbox_id)
            else:
                self._leaving.add(sandbox_id)
            self._wake.set()

    def promised(self, sandbox_id: str) -> str | None:
        """What the daemon of a machine believes that was promised under this id; None: none was."""
        return self._tokens.get(sandbox_id) if sandbox_id in self._promised else None

    def release(self, sandbox_id: str) -> str | None:
        """The pool no longer answers for this machine: it is somebody's, or it is gone. What its daemon believes, if it was ours."""
        self._promised.pop(sandbox_id, None)
        self._leaving.discard(sandbox_id)
        for shelf in self._shelves.values():
            with contextlib.suppress(ValueError):
                shelf.ready.remove(sandbox_id)
        self._wake.set()
        return self._tokens.pop(sandbox_id, None)

    def lost(self, sandbox_id: str) -> bool:
        """A machine has ended by itself. False: it was not the pool's."""
        if sandbox_id not in self._tokens:
            return False
        if sandbox_id not in self._promised:  # else whoever it was promised to finds out
            for shelf in self._shelves.values():
                with contextlib.suppress(ValueError):
                    shelf.ready.remove(sandbox_id)
            self._leaving.add(sandbox_id)
            self._wake.set()
        return True

    def ids(self) -> frozenset[str]:
        """Every machine that is the pool's: ready, promised, in the making or on its way out."""
        return frozenset(self._tokens)

    @contextlib.contextmanager
    def yielding(self) -> Iterator[None]:
        """While inside, somebody's sandbox starts: nothing is made ready beside it."""
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
        """Machines that are ready, by runtime; how often one was, and was not, there when it was asked for."""
        ready: dict[str, int] = {}
        for kind, shelf in self._shelves.items():
            ready[kind.runtime] = ready.get(kind.runtime, 0) + len(shelf.ready)
        return ready, self._hits, self._misses

    # Keeping ready

    async def run(self) -> None:
        """Keep machines ready for as long as the server runs."""
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), TICK_S)
            self._wake.clear()
            try:
                while self._is_open and await self.step():
                    pass
            except Exception:  # a host that is broken for a moment: the next look catches up
                log.exception("could not keep machines ready; it is tried again")

    async def step(self) -> bool:
        """Do the one thing that is most needed. False: nothing is."""
        if self._pressed():
            self._empty(self._shelves)
        elif (extra := self._surplus()) is not None:
            self._leaving.add(extra)
        if self._leaving:
            await self._remove(next(iter(self._leaving)))
            return True
        kind = self._neediest()
        if kind is None:
            return False
        await self.quiet()
        shelf = self._shelves.get(kind)
        if shelf is not None and not self._pressed() and await self._has_room(kind, shelf):
            await self._fill(kind, shelf)
            return True
        return False

    async def drain(self, template_id: str) -> None:
        """The template is gone, or is another one now: take its machines away, also the one in the making."""
        kinds = [kind for kind in self._shelves if kind.template_id == template_id]
        self._empty(kinds)
        for kind in kinds:
            del self._shelves[kind]
        while self._leaving:
            await self._remove(next(iter(self._leaving)))

    async def close(self) -> None:
        """Take every machine away that is nobody's. No more is handed out."""
        self._is_open = False
        self._empty(self._shelves)
        self._shelves.clear()
        await asyncio.gather(*(self._remove(sandbox_id) for sandbox_id in list(self._leaving)))

    def _empty(self, kinds: Mapping[Kind, _Shelf] | list[Kind]) -> None:
        for kind in kinds:
            ready = self._shelves[kind].ready
            self._leaving.update(ready)
            ready.clear()

    def _surplus(self) -> str | None:
        now = self._now()
        for kind, shelf in list(self._shelves.items()):
            wanted = shelf.wants(self._size, now)
            if len(shelf.ready) > wanted:
                return shelf.ready.popleft()
            if not wanted and not shelf.ready:
                del self._shelves[kind]
        return None

    def _neediest(self) -> Kind | None:
        """The kind that was asked for last, of those that lack a machine."""
        now = self._now()
        short = [
            (shelf.asked[-1], kind)
            for kind, shelf in self._shelves.items()
            if len(shelf.ready) < shelf.wants(self._size, now)
            and (shelf.failed_at is None or now - shelf.failed_at >= RETRY_S)
        ]
        return max(short, key=lambda each: each[0])[1] if short else None

    async def quiet(self) -> None:
        """Wait until nobody's sandbox starts, has just started, or was just asked for."""
        while self._starting or (wait_s := self._started_at + QUIET_S - self._now()) > 0:
            if self._starting:
                await self._calm.wait()
            else:
                await asyncio.sleep(wait_s)

    async def _has_room(self, kind: Kind, shelf: _Shelf) -> bool:
        """Whether one more fits; machines of kinds that were asked for longer ago make way."""
        used = sum(each.bytes_each * len(each.ready) for each in self._shelves.values())
        if used + shelf.bytes_each <= self._memory_bytes:
            return True
        others = [each for each in self._shelves.values() if each.ready and each.asked[-1] < shelf.asked[-1]]
        if shelf.ready or not others:
            return False
        await self._remove(min(others, key=lambda each: each.asked[-1]).ready.popleft())
        return True

    async def _fill(self, kind: Kind, shelf: _Shelf) -> None:
        sandbox_id, token = self._make_id(), secrets.token_hex(32)
        self._tokens[sandbox_id] = token
        try:
            used = await self._prepare(replace(shelf.like, sandbox_id=sandbox_id, envd_token=token))
        except (EngineError, OSError) as error:  # a full disk, say
            self._tokens.pop(sandbox_id, None)
            shelf.failed_at = self._now()
            log.warning("no machine could be made ready for template %s: %s", kind.template_id, error)
            return
        except BaseException:
            self._tokens.pop(sandbox_id, None)
            raise
        shelf.bytes_each, shelf.failed_at = max(used, 1 << 20), None
        if sandbox_id not in self._leaving and self._is_open and self._shelves.get(kind) is shelf:
            shelf.ready.append(sandbox_id)
        else:  # it has ended, or was drained, while it was made
            await self._remove(sandbox_id)

    async def _remove(self, sandbox_id: str) -> None:
        self._leaving.add(sandbox_id)
        try:
            await self._discard(sandbox_id)
        except EngineError as error:  # found again when rows and machines are compared
            log.error("a machine of the pool could not be taken away: %s", error)
        finally:
            self._leaving.discard(sandbox_id)
            self._tokens.pop(sandbox_id, None)


def _can_stand_ready(wish: NewMachine) -> bool:
    """Snapshots are not made ready ahead: what ran in them would run on, unseen, before anybody asked for it."""
    return wish.template.source is None


def _fits(wish: NewMachine) -> bool:
    """What a start command did while its machine was made ready, it did without the caller's variables and rules."""
    if wish.template.start_cmd is None or wish.checkpoint is not None:
        return True
    return not wish.env_vars and replace(wish.network, allow_public_traffic=True) == NetworkPolicy()


def _blank(wish: NewMachine) -> NewMachine:
    return replace(wish, network=NetworkPolicy(), env_vars={})


def host_is_pressed() -> bool:
    """Whether the host is so short of memory that what is only in store should go."""
    try:
        lines = dict(line.split(":", 1) for line in MEMORY_INFO.read_text().splitlines())
        total, available = (int(lines[name].split()[0]) << 10 for name in ("MemTotal", "MemAvailable"))
    except (OSError, KeyError, ValueError):
        return False
    return available < max(total // 10, 512 << 20)
