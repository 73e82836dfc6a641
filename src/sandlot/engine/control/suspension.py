"""Suspension: pauses and resumes sandboxes, takes snapshots, forks. It moves rows by the same table as `lifecycle`.

A pause writes the whole state to disk before the machine goes, and a resume removes it only when the machine is back:
whenever the server dies, the sandbox is running or paused, and `reconcile` finds out which.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypeVar

from sandlot.engine.control.lifecycle import Lifecycle
from sandlot.engine.control.sandbox_records import wanted
from sandlot.engine.control.sandbox_request import Limits, NewSandbox, check_timeout
from sandlot.engine.control.sandbox_states import require_running
from sandlot.engine.core.errors import Conflict, EngineError, InvalidRequest, MachineFailed, NotFound
from sandlot.engine.core.model import NewMachine, OnTimeout, PauseMode, Sandbox, State, Template
from sandlot.engine.core.ports import Clock, TemplateStore

log = logging.getLogger(__name__)
T = TypeVar("T")

MOST_FORKS = 100
WAKE_TIMEOUT_S = 300  # the least that a sandbox woken by a request stays up
RETRY = timedelta(seconds=60)  # when a pause by timeout fails, the sandbox goes on and is tried again
MOVE_LIMIT_S = 600.0
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,127}")


class Suspension:
    """Methods that take `team_id` see only that team's sandboxes and snapshots."""

    def __init__(
        self,
        *,
        lifecycle: Lifecycle,
        templates: TemplateStore,
        clock: Clock,
        limits: Limits,
        drain: Callable[[str], Awaitable[object]],
    ) -> None:
        self._lifecycle = lifecycle
        self._rows = lifecycle.rows
        self._transitions = lifecycle.transitions
        self._templates = templates
        self._clock = clock
        self._limits = limits
        self._drain = drain
        self._naming = asyncio.Lock()
        lifecycle.at_deadline(self._at_deadline)

    # Pausing

    async def pause(self, team_id: str | None, sandbox_id: str, *, memory: bool = True) -> Sandbox:
        """Keep the sandbox's state and give its machine up. Raises `Conflict` if it is paused already."""
        sandbox = await self._lifecycle.settled(team_id, sandbox_id)
        if sandbox.state is State.PAUSED:
            raise Conflict(f"sandbox {sandbox.id!r} is already paused")
        require_running(sandbox, "pause")
        return await self._move(sandbox.id, self._pause(sandbox, memory))

    async def _pause(self, sandbox: Sandbox, memory: bool) -> Sandbox:
        pausing = await self._rows.swap(sandbox, replace(sandbox, state=State.PAUSING))
        try:
            await self._drain(sandbox.id)
            mode = await self._lifecycle.node_of(sandbox).pause(sandbox.id, memory=memory)
        except BaseException:
            await self._recover_or(pausing, self._lose(pausing))
            raise
        return await self._rest(pausing, mode)

    async def _rest(self, row: Sandbox, mode: PauseMode) -> Sandbox:
        return await self._rows.change(
            row.id, lambda old: _if_still(row.state, old, state=State.PAUSED, pause_mode=mode)
        )

    async def _at_deadline(self, due: Sandbox) -> None:
        """What the sweeper does with a sandbox past its deadline. A pause that fails must not lose the sandbox."""
        if due.on_timeout is not OnTimeout.PAUSE:
            await self._lifecycle.end(due, "timeout")
            return
        if due.id in self._transitions.moving:
            return
        try:
            await self.pause(None, due.id, memory=due.pause_memory)
        except (Conflict, NotFound):  # somebody else was quicker; if it runs on, it is due again
            return
        except EngineError as error:
            log.error("could not pause sandbox %s at its deadline, it goes on for a minute: %s", due.id, error)
            later = self._clock() + RETRY
            await self._rows.change(due.id, lambda old: _if_still(State.RUNNING, old, end_at=max(old.end_at, later)))

    # Resuming

    async def connect(
        self, team_id: str | None, sandbox_id: str, timeout_s: int, *, memory: bool = True
    ) -> tuple[Sandbox, bool]:
        """The running sandbox, with its deadline put off, and whether it had to be resumed."""
        sandbox = await self._lifecycle.settled(team_id, sandbox_id)
        if sandbox.state is not State.PAUSED:
            return await self._lifecycle.refresh(team_id, sandbox_id, timeout_s), False
        return await self.resume(sandbox, timeout_s, memory=memory), True

    async def resume(self, paused: Sandbox, timeout_s: int, *, memory: bool = True) -> Sandbox:
        """The sandbox, running again. Many callers at once wake it once."""
        if timeout_s <= 0:
            raise InvalidRequest(f"timeout must be above 0 seconds, not {timeout_s}")
        check_timeout(timeout_s, self._limits)
        task = self._transitions.moving.get(paused.id)
        if task is None:
            return await self._move(paused.id, self._resume(paused, timeout_s, memory))
        await self._transitions.settle(paused.id)
        return (await self.connect(paused.team_id, paused.id, timeout_s, memory=memory))[0]

    async def wake(self, sandbox_id: str) -> Sandbox | None:
        """For a request from outside: the sandbox, resumed if it lets itself be woken; else None."""
        sandbox = await self._lifecycle.settled(None, sandbox_id)
        if sandbox.state is State.RUNNING:
            return sandbox
        if sandbox.state is not State.PAUSED or not sandbox.auto_resume or sandbox.pause_mode is not PauseMode.FULL:
            return None
        timeout_s = min(max(sandbox.timeout_s, WAKE_TIMEOUT_S), self._limits.max_timeout_s)
        return await self.resume(sandbox, timeout_s)

    async def _resume(self, paused: Sandbox, timeout_s: int, memory: bool) -> Sandbox:
        memory = memory and paused.pause_mode is not PauseMode.FILESYSTEM
        node = self._lifecycle.node_of(paused)
        wanted = replace(await self._wanted(paused), memory=memory)
        resuming = await self._lifecycle.readmit(paused)
        try:
            machine = await node.resume(wanted)
        except BaseException:
            await self._recover_or(resuming, self._rest(resuming, paused.pause_mode or PauseMode.FULL))
            raise
        now = self._clock()
        running = await self._rows.change(
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

    async def _wanted(self, sandbox: Sandbox) -> NewMachine:
        return wanted(sandbox, await self._base(sandbox))

    # Snapshots

    async def snapshot(self, team_id: str, sandbox_id: str, *, name: str | None, memory: bool = True) -> Template:
        """Keep the state of a running sandbox as something to create from; the sandbox goes on."""
        if name is not None and not _NAME.fullmatch(name):
            raise InvalidRequest(
                f"a snapshot cannot be named {name[:80]!r}: use lower-case letters, digits, '.', '_' and '-'"
            )
        if name is not None:
            await self._named(team_id, name)  # refused before anything is written
        checkpoint = f"snp{secrets.token_hex(10)}"
        with self._transitions.holding(checkpoint):
            sandbox = await self._capture(team_id, sandbox_id, checkpoint, memory=memory, doing="take a snapshot of")
            node = self._lifecycle.node_of(sandbox)
            try:
                base = await self._base(sandbox)
                async with self._naming:  # two snapshots of one name leave one row
                    earlier = await self._named(team_id, name) if name is not None else None
                    snapshot = self._as_template(sandbox, base, checkpoint, name, earlier)
                    await self._templates.put(snapshot)
            except BaseException:
                await node.discard(checkpoint)
                raise
        if earlier is not None and earlier.checkpoint is not None:
            await node.discard(earlier.checkpoint)
        return snapshot

    async def _named(self, team_id: str, name: str) -> Template | None:
        """The team's snapshot of this name, which a new one replaces. Raises `Conflict` if a template has the name."""
        found = await self._templates.resolve(team_id, name)
        if found is None or (found.team_id not in (team_id, None) and found.id != name):
            return None
        if found.team_id != team_id or found.source is None:
            raise Conflict(f"a template named {name!r} exists; choose another name for the snapshot")
        return found

    def _as_template(
        self, sandbox: Sandbox, base: Template, checkpoint: str, name: str | None, earlier: Template | None
    ) -> Template:
        now = self._clock()
        identity = earlier.id if earlier else checkpoint
        return replace(
            base,
            id=identity,
            team_id=sandbox.team_id,
            name=name or identity,
            build_id=checkpoint,
            created_at=now,
            updated_at=now,
            runtime=sandbox.runtime,
            resources=sandbox.resources,
            public=False,
            checkpoint=checkpoint,
            source=sandbox.id,
            node=sandbox.node,
            spawn_count=0,
            last_spawned_at=None,
        )

    async def _base(self, sandbox: Sandbox) -> Template:
        return await self._templates.of(sandbox) or _gone(sandbox)

    async def snapshots(
        self, team_id: str, *, source: str | None, name: str | None, limit: int, after: Any = None
    ) -> Sequence[Template]:
        return await self._templates.snapshots(team_id, source=source, name=name, limit=limit, after=after)

    async def delete_snapshot(self, team_id: str, ref: str) -> bool:
        """False if the team has no such snapshot. Sandboxes that began with it are not touched."""
        found = await self._templates.resolve(team_id, ref.removesuffix(":default"))
        if found is None or found.team_id != team_id or found.checkpoint is None or found.node is None:
            return False
        await self._templates.delete(found.id)
        await self._lifecycle.node(found.node).discard(found.checkpoint)
        return True

    # Forks

    async def fork(self, team_id: str, sandbox_id: str, *, count: int, timeout_s: int) -> list[Sandbox | EngineError]:
        """`count` sandboxes that begin with this one's state, each with its own identity; the sandbox goes on."""
        if not 1 <= count <= MOST_FORKS:
            raise InvalidRequest(f"count must be from 1 to {MOST_FORKS}, not {count}")
        if timeout_s <= 0:
            raise InvalidRequest(f"timeout must be above 0 seconds, not {timeout_s}")
        check_timeout(timeout_s, self._limits)
        name = f"frk{secrets.token_hex(10)}"
        with self._transitions.holding(name):
            sandbox = await self._capture(team_id, sandbox_id, name, memory=True, lasting=False, doing="fork")
            try:
                template = _forked(await self._base(sandbox), sandbox, name)
                new = _like(sandbox, timeout_s)
                launches = (self._lifecycle.launch(team_id, new, template) for _ in range(count))
                outcomes = await asyncio.gather(*launches, return_exceptions=True)
            finally:
                await self._lifecycle.node_of(sandbox).discard(name)
        return [_outcome(outcome) for outcome in outcomes]

    async def _capture(
        self, team_id: str, sandbox_id: str, name: str, *, memory: bool, lasting: bool = True, doing: str
    ) -> Sandbox:
        """Hold the sandbox's traffic, write its state, let it go on. Waits for others who move it."""
        while True:
            sandbox = await self._lifecycle.settled(team_id, sandbox_id)
            require_running(sandbox, doing)
            if sandbox.id not in self._transitions.moving:
                break
        await self._move(sandbox.id, self._capture_now(sandbox, name, memory, lasting))
        return sandbox

    async def _capture_now(self, sandbox: Sandbox, name: str, memory: bool, lasting: bool) -> None:
        capturing = await self._rows.swap(sandbox, replace(sandbox, state=State.CAPTURING))
        node = self._lifecycle.node_of(sandbox)
        try:
            await self._drain(sandbox.id)
            await node.capture(sandbox.id, name, memory=memory, lasting=lasting)
        except BaseException:
            await self._recover_or(capturing, self._lose(capturing))
            raise
        await self._rows.change(sandbox.id, lambda old: _if_still(State.CAPTURING, old, state=State.RUNNING))

    # After a crash, or a failure in the middle

    async def recover(self, row: Sandbox, *, prolong: bool = True) -> bool:
        """Find out where a sandbox stands that was about to rest or to wake. False: nothing is left of it.

        `prolong`: whoever wanted it to rest or to wake was told nothing, so it does not meet an old deadline at once.
        """
        node = self._lifecycle.node_of(row)
        try:
            found = await node.recover(await self._wanted(row))
        except NotFound:
            return False
        if isinstance(found, PauseMode):
            await self._rest(row, found)
            return True
        end_at = row.end_at
        if prolong and row.state is not State.CAPTURING:
            end_at = max(end_at, self._clock() + timedelta(seconds=row.timeout_s))
        await self._rows.change(
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
        end = self._lifecycle.end(row, "lost: the machine ended while its state was being written")
        self._transitions.later(end)  # it waits for the move that we are in

    async def _move(self, sandbox_id: str, work: Coroutine[Any, Any, T]) -> T:
        if sandbox_id in self._transitions.moving:
            work.close()
            raise Conflict(f"sandbox {sandbox_id!r} is being changed by somebody else; try again")

        async def bounded() -> T:
            try:
                return await asyncio.wait_for(work, MOVE_LIMIT_S)
            except TimeoutError as error:
                raise MachineFailed(f"sandbox {sandbox_id!r} did not get there within {MOVE_LIMIT_S:g} s") from error

        return await asyncio.shield(
            self._transitions.track(self._transitions.moving, sandbox_id, bounded(), self._lifecycle.moved)
        )


def _if_still(expected: State, old: Sandbox, /, **changes: Any) -> Sandbox:
    """The changed row if it is still in that state; a sandbox that was killed meanwhile stays so."""
    return replace(old, **changes) if old.state is expected else old


def _forked(base: Template, sandbox: Sandbox, checkpoint: str) -> Template:
    return replace(
        base,
        checkpoint=checkpoint,
        source=sandbox.id,
        node=sandbox.node,
        runtime=sandbox.runtime,
        resources=sandbox.resources,
    )


def _like(sandbox: Sandbox, timeout_s: int) -> NewSandbox:
    """A request for another sandbox like this one."""
    return NewSandbox(
        template=sandbox.template_id,
        timeout_s=timeout_s,
        metadata=sandbox.metadata,
        env_vars=sandbox.env_vars,
        network=sandbox.network,
        secure=sandbox.envd_token is not None,
        on_timeout=sandbox.on_timeout,
        auto_resume=sandbox.auto_resume,
        pause_memory=sandbox.pause_memory,
    )


def _outcome(outcome: Sandbox | BaseException) -> Sandbox | EngineError:
    if isinstance(outcome, Sandbox | EngineError):
        return outcome
    log.error("a fork failed", exc_info=outcome)
    return MachineFailed("the fork could not be started; the server's log has the reason")


def _gone(sandbox: Sandbox) -> Template:
    """A stand-in for a template that was deleted since: a saved state needs nothing of it but names."""
    return Template(
        id=sandbox.template_id,
        team_id=sandbox.team_id,
        name=sandbox.template_name,
        layers=(),
        build_id="",
        created_at=sandbox.created_at,
        updated_at=sandbox.created_at,
        resources=sandbox.resources,
        envd_version=sandbox.envd_version,
    )
