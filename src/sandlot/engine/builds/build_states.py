"""The table of a build's statuses, and the one writer that moves a build from one to the next."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime

from sandlot.engine.core import compare_and_set
from sandlot.engine.core.errors import WrongState
from sandlot.engine.core.model import Build, BuildStatus
from sandlot.engine.core.ports import BuildStore

MOVES: Mapping[BuildStatus, frozenset[BuildStatus]] = {
    BuildStatus.WAITING: frozenset({BuildStatus.BUILDING}),
    BuildStatus.BUILDING: frozenset({BuildStatus.READY, BuildStatus.ERROR}),
    BuildStatus.READY: frozenset(),
    BuildStatus.ERROR: frozenset(),
}


class BuildStates:
    """Builds for writing: nobody else changes a build that is in the store."""

    def __init__(self, store: BuildStore) -> None:
        self._store = store

    async def change(self, build_id: str, change: Callable[[Build], Build]) -> Build:
        """Read, change, write; again if somebody was quicker. `change` returns its argument to leave the build alone.

        Raises `NotFound` if the build is gone, `WrongState` for a move that the table does not have.
        """
        return await compare_and_set.change(f"build {build_id!r}", lambda: self._store.get(build_id), self.swap, change)

    async def swap(self, old: Build, new: Build) -> Build:
        """Write `new` if nobody changed the build since `old` was read. Raises `Conflict`, or `WrongState`."""
        if new.status is not old.status and new.status not in MOVES[old.status]:
            raise WrongState(f"build {old.id!r} is {old.status.value}; it cannot become {new.status.value}")
        return await self._store.swap(old, new)


def started(old: Build, at: datetime) -> Build:
    """The build on its way. Raises `WrongState` if it was started before."""
    if old.status is not BuildStatus.WAITING:
        raise WrongState(f"build {old.id} has already been started; request another to build again")
    return replace(old, status=BuildStatus.BUILDING, updated_at=at)


def failed(old: Build, problem: str, step: str | None, at: datetime) -> Build:
    """The build that ended without a result. One that has ended already is left as it is."""
    if old.status is not BuildStatus.BUILDING:
        return old
    return replace(
        old,
        status=BuildStatus.ERROR,
        problem=problem.replace("\0", "")[:8000],
        problem_step=step,
        content=None,
        updated_at=at,
        finished_at=at,
    )


def emptied(old: Build) -> Build:
    """The build without its layers and saved state. What its sandboxes need to resume is kept: user, directory, commands."""
    if old.content is None or not old.content.layers:
        return old
    return replace(old, content=replace(old.content, layers=(), checkpoint=None, node=None))
