"""Pausing and resuming sandboxes, and capturing the state of running ones.

A pause writes the whole state to disk before the machine goes, and a resume removes it only when the machine is back:
whenever the server dies, the sandbox is running or paused, and `reconcile` finds out which.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypeVar

from sandlot.engine.control.parts import ControlParts
from sandlot.engine.control.sandbox_records import missing_template, new_machine
from sandlot.engine.control.sandbox_request import SandboxLimits, check_timeout
from sandlot.engine.control.sandbox_states import require_running
from sandlot.engine.core.errors import Conflict, InvalidRequest, MachineFailed, NotFound
from sandlot.engine.core.model import NewMachine, PauseMode, Sandbox, State, Template

log = logging.getLogger(__name__)
T = TypeVar("T")

WAKE_TIMEOUT_S = 300  # the least that a sandbox resumed by a request stays up
MOVE_LIMIT_S = 600.0


class Suspension:
    """Methods that take `team_id` see only that team's sandboxes."""

    def __init__(self, parts: ControlParts, limits: SandboxLimits) -> None:
        self._states, self._inflight, self._lookup = parts.states, parts.inflight, parts.lookup
        self._nodes, self._admission, self._ending = parts.nodes, parts.admission, parts.ending
        self._templates, self._clock, self._limits = parts.templates, parts.clock, limits

    # Pausing

    async def pause(self, team_id: str | None, sandbox_id: str, *, memory: bool = True) -> Sandbox:
        """Keep the sandbox's state and give its machine up. Raises `Conflict` if it is paused already."""
        sandbox = await self._lookup.settled(team_id, sandbox_id)
        if sandbox.state is State.PAUSED:
            raise Conflict(f"sandbox {sandbox.id!r} is already paused")
        require_running(sandbox, "pause")
        return await self._move(sandbox.id, self._pause(sandbox, memory))

    async def _pause(self, sandbox: Sandbox, memory: bool) -> Sandbox:
        pausing = await self._begin(sandbox.id, State.PAUSING, "pause")
        try:
            mode = await self._nodes.of(sandbox).snapshots.pause(sandbox.id, memory=memory)
        except BaseException:
            await self._recover_or(pausing, self._lose(pausing))
            raise
        return await self._paused(pausing, mode)

    async def _begin(self, sandbox_id: str, to: State, doing: str) -> Sandbox:
        """The row as it is now, on its way: a deadline that was put off meanwhile is no reason to fail."""

        def begun(old: Sandbox) -> Sandbox:
            require_running(old, doing)
            return replace(old, state=to)

        return await self._states.change(sandbox_id, begun)

    async def _paused(self, row: Sandbox, mode: PauseMode) -> Sandbox:
        return await self._states.change(
            row.id, lambda old: _if_still(row.state, old, state=State.PAUSED, pause_mode=mode)
        )

    # Resuming

    async def connect(
        self, team_id: str | None, sandbox_id: str, timeout_s: int, *, memory: bool = True
    ) -> tuple[Sandbox, bool]:
        """The running sandbox, with its deadline put off, and whether it had to be resumed."""
        sandbox = await self._lookup.settled(team_id, sandbox_id)
        if sandbox.state is not State.PAUSED:
            return await self._put_off(sandbox, timeout_s), False
        return await self.resume(sandbox, timeout_s, memory=memory), True

    async def _put_off(self, sandbox: Sandbox, timeout_s: int) -> Sandbox:
        if timeout_s < 0:
            raise InvalidRequest(f"timeout must be 0 seconds or more, not {timeout_s}")
        check_timeout(timeout_s, self._limits)
        end_at = self._clock() + timedelta(seconds=timeout_s)

        def later(old: Sandbox) -> Sandbox:
            require_running(old, "connect to")
            return replace(old, end_at=max(old.end_at, end_at))

        return await self._states.change(sandbox.id, later)

    async def resume(self, paused: Sandbox, timeout_s: int, *, memory: bool = True) -> Sandbox:
        """The sandbox, running again. Many callers at once wake it once."""
        if timeout_s <= 0:
            raise InvalidRequest(f"timeout must be above 0 seconds, not {timeout_s}")
        check_timeout(timeout_s, self._limits)
        task = self._inflight.moving.get(paused.id)
        if task is None:
            return await self._move(paused.id, self._resume(paused, timeout_s, memory))
        await self._inflight.settle(paused.id)
        return (await self.connect(paused.team_id, paused.id, timeout_s, memory=memory))[0]

    async def wake(self, sandbox_id: str) -> Sandbox | None:
        """For a request from outside: the sandbox, resumed if it lets itself be woken; else None."""
        sandbox = await self._lookup.settled(None, sandbox_id)
        if sandbox.state is State.RUNNING:
            return sandbox
        if sandbox.state is not State.PAUSED or not sandbox.auto_resume or sandbox.pause_mode is not PauseMode.FULL:
            return None
        timeout_s = min(max(sandbox.timeout_s, WAKE_TIMEOUT_S), self._limits.max_timeout_s)
        return await self.resume(sandbox, timeout_s)

    async def _resume(self, paused: Sandbox, timeout_s: int, memory: bool) -> Sandbox:
        memory = memory and paused.pause_mode is not PauseMode.FILESYSTEM
        node = self._nodes.of(paused)
        wanted = replace(await self._new_machine(paused), memory=memory)
        resuming = await self._admission.readmit(paused)
        try:
            machine = await node.snapshots.resume(wanted)
        except BaseException:
            await self._recover_or(resuming, self._paused(resuming, paused.pause_mode or PauseMode.FULL))
            raise
        now = self._clock()
        running = await self._states.change(
            resuming.id,
            lambda old: _if_still(
                State.RESUMING,
                old,
                state=State.RUNNING,
                machine=machine,
                started_at=now,
                end_at=now + timedelta(seconds=timeout_s),
                pause_mode=None,
            ),
        )
        if running.state is not State.RUNNING:
            raise Conflict(f"sandbox {paused.id!r} was killed while it was resumed")
        return running

    async def _new_machine(self, sandbox: Sandbox) -> NewMachine:
        return new_machine(await self._nodes.told(sandbox), await self.template_of(sandbox))

    async def template_of(self, sandbox: Sandbox) -> Template:
        return await self._templates.of(sandbox) or missing_template(sandbox)

    # Capturing

    async def capture(
        self, team_id: str, sandbox_id: str, name: str, *, memory: bool, lasting: bool = True, doing: str
    ) -> Sandbox:
        """Write the state of a running sandbox under a name; the sandbox goes on. Waits for others who move it."""
        while True:
            sandbox = await self._lookup.settled(team_id, sandbox_id)
            require_running(sandbox, doing)
            if sandbox.id not in self._inflight.moving:
                break
        await self._move(sandbox.id, self._capture_now(sandbox, name, memory, lasting))
        return sandbox

    async def _capture_now(self, sandbox: Sandbox, name: str, memory: bool, lasting: bool) -> None:
        capturing = await self._begin(sandbox.id, State.CAPTURING, "capture")
        node = self._nodes.of(sandbox)
        try:
            await node.snapshots.capture(sandbox.id, name, memory=memory, lasting=lasting)
        except BaseException:
            await self._recover_or(capturing, self._lose(capturing))
            raise
        await self._states.change(sandbox.id, lambda old: _if_still(State.CAPTURING, old, state=State.RUNNING))

    # After a crash, or a failure in the middle

    async def recover(self, row: Sandbox, *, prolong: bool = True) -> bool:
        """Find out what became of a sandbox whose pause, resume or capture was interrupted. False: nothing is left of it.

        `prolong`: whoever asked was told nothing, so the sandbox does not meet an old deadline at once.
        """
        node = self._nodes.of(row)
        try:
            found = await node.snapshots.recover(await self._new_machine(row))
        except NotFound:
            return False
        if isinstance(found, PauseMode):
            await self._paused(row, found)
            return True
        end_at = row.end_at
        if prolong and row.state is not State.CAPTURING:
            end_at = max(end_at, self._clock() + timedelta(seconds=row.timeout_s))
        await self._states.change(
            row.id,
            lambda old: _if_still(
                row.state, old, state=State.RUNNING, machine=found, pause_mode=None, end_at=max(old.end_at, end_at)
            ),
        )
        return True

    async def _recover_or(self, row: Sandbox, nothing_left: Coroutine[Any, Any, object]) -> None:
        """What a failure asks for. If this fails too, the reconciler finds the row halfway and tries again."""
        try:
            if not await self.recover(row, prolong=False):
                await nothing_left
        except Exception:
            log.exception("could not find out what became of sandbox %s; it is tried again", row.id)
        finally:
            nothing_left.close()

    async def _lose(self, row: Sandbox) -> None:
        end = self._ending.end(row, "lost: the machine ended while its state was being written")
        self._inflight.later(end)  # it waits for the move that we are in

    async def _move(self, sandbox_id: str, work: Coroutine[Any, Any, T]) -> T:
        if sandbox_id in self._inflight.moving:
            work.close()
            raise Conflict(f"sandbox {sandbox_id!r} is being changed by somebody else; try again")

        async def bounded() -> T:
            try:
                return await asyncio.wait_for(work, MOVE_LIMIT_S)
            except TimeoutError as error:
                raise MachineFailed(f"sandbox {sandbox_id!r} did not get there within {MOVE_LIMIT_S:g} s") from error

        return await asyncio.shield(self._inflight.track(self._inflight.moving, sandbox_id, bounded()))


def _if_still(expected: State, old: Sandbox, /, **changes: Any) -> Sandbox:
    """The changed row if it is still in that state; a sandbox that was killed meanwhile stays so."""
    return replace(old, **changes) if old.state is expected else old
