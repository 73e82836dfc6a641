"""Moves in flight: work on a sandbox that goes on when its caller goes away, and what others must leave alone meanwhile."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

log = logging.getLogger(__name__)
T = TypeVar("T")


class InFlight:
    """Starts, pauses, resumes and ends in flight, by sandbox id; and names of states that no row has yet."""

    def __init__(self) -> None:
        self.moving: dict[str, asyncio.Task[Any]] = {}  # starting, pausing, resuming: one at a time per sandbox
        self.ending: dict[str, asyncio.Task[None]] = {}
        self._starts: set[asyncio.Task[Any]] = set()
        self._background: set[asyncio.Task[Any]] = set()
        self._held: set[str] = set()

    def ids(self) -> frozenset[str]:
        return frozenset(self.moving) | frozenset(self.ending) | frozenset(self._held)

    @contextmanager
    def holding(self, name: str) -> Iterator[None]:
        """While inside, what is stored under this name belongs to somebody, though no row says so."""
        self._held.add(name)
        try:
            yield
        finally:
            self._held.discard(name)

    async def settle(self, sandbox_id: str) -> None:
        """Wait until nothing moves the sandbox any more; ends are not waited for."""
        while (task := self.moving.get(sandbox_id)) is not None:
            await asyncio.wait([task])
            await asyncio.sleep(0)  # lets the task's own callback take it off the list

    def start(self, sandbox_id: str, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """A move that may be given up: nothing is lost with a sandbox that never ran."""
        task = self.track(self.moving, sandbox_id, work)
        self._starts.add(task)
        task.add_done_callback(self._starts.discard)
        return task

    def track(
        self,
        tasks: dict[str, asyncio.Task[Any]],
        sandbox_id: str,
        work: Coroutine[Any, Any, T],
    ) -> asyncio.Task[T]:
        """Run `work` on its own, so that a caller that goes away does not stop it halfway."""
        task = asyncio.create_task(work)
        tasks[sandbox_id] = task

        def done(task: asyncio.Task[T]) -> None:
            del tasks[sandbox_id]
            if not task.cancelled():
                task.exception()  # whoever waits is told; if nobody does, that is no reason for a warning

        task.add_done_callback(done)
        return task

    def later(self, work: Coroutine[Any, Any, object]) -> asyncio.Task[None]:
        async def guarded() -> None:
            try:
                await work
            except Exception:  # nobody waits for it; what it left is found by the reconciler
                log.exception("work in the background failed")

        task = asyncio.create_task(guarded())
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    async def finish(self) -> None:
        """Give up starts in flight; wait for everything else."""
        for task in self._starts:
            task.cancel()
        while tasks := {*self.moving.values(), *self.ending.values(), *self._background}:
            await asyncio.wait(tasks)
            await asyncio.sleep(0)
