"""Builds stock templates in the background of a server: those to be prepared, on first use, and again when a recipe has changed."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from sandlot.recipes import stock
from sandlot.recipes.build import Options, build_stock
from sandlot.recipes.connection import Connection
from sandlot.recipes.recipe import RecipeFailed
from sandlot.recipes.stock import StockNotes

log = logging.getLogger(__name__)

BuildStock = Callable[[Connection, str, StockNotes, Options], Awaitable[object]]
State = Literal["absent", "building", "failed", "ready"]

BUILD_TIMEOUT_S = 3600
REASON_LENGTH = 300
MOST_LINES = 2000  # of a build's log, kept for those who follow it
LINE_LENGTH = 500


@dataclass(slots=True)
class _Making:
    """One build: its task, and what it logged. `dropped` lines before those that are kept are gone."""

    task: asyncio.Task[None]
    failed_before: str | None
    began: float = field(default_factory=time.monotonic)
    lines: list[str] = field(default_factory=list)
    dropped: int = 0

    def add(self, line: str) -> None:
        self.lines.append(line[:LINE_LENGTH])
        if len(self.lines) > MOST_LINES:
            self.dropped += len(self.lines) - MOST_LINES
            del self.lines[:-MOST_LINES]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a stock template is; `remaining_s` is a guess by how long its build takes elsewhere."""

    name: str
    state: State
    seconds: int | None = None
    remaining_s: int | None = None
    doing: str | None = None
    problem: str | None = None


class StockTemplates:
    """At most one build of each template runs at a time, however many ask for it.

    `connection` is awaited when a build begins: the server's own address is known only once it listens.
    """

    def __init__(
        self, *, connection: Callable[[], Awaitable[Connection]], notes: StockNotes, build: BuildStock = build_stock
    ) -> None:
        self._connection, self._notes, self._build_stock = connection, notes, build
        self._builds: dict[str, _Making] = {}
        self._closed = False

    def name_of(self, ref: str) -> str | None:
        """The stock template that a name means; None if it is none, or none is built any more."""
        return None if self._closed else stock.find(ref.partition(":")[0])

    def all(self) -> Sequence[Progress]:
        return [self.progress(name) for name in stock.names()]

    def progress(self, name: str) -> Progress:
        making = self._builds.get(name)
        if making is None or (making.task.done() and _failure(making.task) is None):
            return Progress(name=name, state="ready" if self._notes.get(name) else "absent")
        if making.task.done():
            return Progress(name=name, state="failed", problem=_failure(making.task))
        seconds = int(time.monotonic() - making.began)
        expected = stock.read(name).build_s
        return Progress(
            name=name,
            state="building",
            seconds=seconds,
            remaining_s=max(expected - seconds, 0) if expected else None,
            doing=making.lines[-1] if making.lines else None,
            problem=making.failed_before,
        )

    def lines(self, name: str, after: int) -> tuple[Sequence[str], int]:
        """What its latest build logged after this many lines, and how many there are."""
        making = self._builds.get(name)
        if making is None:
            return (), 0
        return making.lines[max(0, after - making.dropped) :], making.dropped + len(making.lines)

    def begin(self, name: str) -> Progress:
        """Begin to build it, unless that is under way."""
        if not self._closed:
            self._begin(name)
        return self.progress(name)

    async def wait(self, name: str, within_s: float) -> Progress:
        """The same, and wait until it is built, or this long."""
        if self._closed:
            return Progress(name=name, state="failed", problem="the server is stopping")
        await asyncio.wait({self._begin(name)}, timeout=within_s)
        return self.progress(name)

    async def make(self, ref: str, output: Callable[[str], None]) -> bool:
        """Build it and wait until it is ready. False: it is no stock template. Raises `RecipeFailed`."""
        name = self.name_of(ref)
        if name is None:
            return False
        output(f"the stock template {name!r} is being built for its first use; this build goes on when it is ready")
        await self._wait_for(name, self._begin(name))
        output(f"the stock template {name!r} is ready")
        return True

    def prepare(self, names: Iterable[str]) -> list[str]:
        """Build those that were never built here; which."""
        wanted = [found for name in names if (found := stock.find(name)) and self._notes.get(found) is None]
        for name in wanted:
            log.info("the stock template %s is built in the background, so that its first use need not wait", name)
            self._begin(name)
        return wanted

    def renew(self) -> list[str]:
        """Build those again whose recipe has changed since they were built here, after an upgrade; which."""
        changed = [name for name in stock.names() if self._notes.get(name) not in (None, stock.digest(name))]
        for name in changed:
            log.info("the recipe of the stock template %s has changed; it is built again", name)
            self._begin(name)
        return changed

    async def close(self) -> None:
        """Cancel the builds that run; none begins any more."""
        self._closed = True
        tasks = [making.task for making in self._builds.values() if not making.task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self, name: str) -> asyncio.Task[None]:
        making = self._builds.get(name)
        if making is None or making.task.done():
            task = asyncio.create_task(self._build(name), name=f"stock template {name}")
            task.add_done_callback(_failure)  # logged already; nobody may be waiting for it
            making = self._builds[name] = _Making(task, _failure(making.task) if making else None)
        return making.task

    def _told(self, name: str, line: str) -> None:
        self._builds[name].add(line)
        if line.startswith("["):  # a step begins
            log.info("building the stock template %s: %s", name, line[:LINE_LENGTH])

    async def _build(self, name: str) -> None:
        log.info("building the stock template %s", name)
        try:
            for needed in stock.needed(name):  # upon the new one, not upon the one it replaces
                if needed in self._builds and not self._builds[needed].task.done():
                    await self._wait_for(needed, self._builds[needed].task)
            options = Options(output=lambda line: self._told(name, line))
            async with asyncio.timeout(BUILD_TIMEOUT_S):
                await self._build_stock(await self._connection(), name, self._notes, options)
        except TimeoutError as error:
            log.error("the stock template %s was not built within %d s", name, BUILD_TIMEOUT_S)
            raise RecipeFailed(f"the build took longer than {BUILD_TIMEOUT_S} s") from error
        except RecipeFailed as error:
            log.error("the stock template %s could not be built: %s", name, error)
            raise
        except Exception:
            log.exception("the stock template %s could not be built", name)
            raise
        log.info("the stock template %s is ready", name)

    async def _wait_for(self, name: str, task: asyncio.Task[None]) -> None:
        try:
            await asyncio.shield(task)
        except RecipeFailed as error:
            raise RecipeFailed(
                f"the stock template {name!r}, which this is built upon, could not be built: {str(error)[-REASON_LENGTH:]}"
            ) from error


def _failure(task: asyncio.Task[None] | None) -> str | None:
    """Why a build failed; None if it did not, or has not ended."""
    if task is None or not task.done() or task.cancelled() or task.exception() is None:
        return None
    return str(task.exception())
