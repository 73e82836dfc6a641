"""Lifecycle: the only writer of sandbox state. Every step is checked against `MOVES` and written by compare-and-set.

Two rules keep machines from leaking. A row exists before its machine does, so whatever a crash leaves behind is found by
`reconcile`. And a row reaches ENDED only after its node has freed everything, so an ended sandbox holds nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from weakref import WeakValueDictionary

from sandlot.engine.control.inflight import InFlight
from sandlot.engine.control.listing import Page, decode_cursor, encode_cursor
from sandlot.engine.control.placement import Scheduler, first_node
from sandlot.engine.control.sandbox_records import first_row, running_row, start_failure, wanted
from sandlot.engine.control.sandbox_request import (
    Limits,
    NewSandbox,
    check_request,
    check_timeout,
    new_sandbox_id,
    new_token,
    parse_sandbox_id,
)
from sandlot.engine.control.sandbox_states import HOLDING, SandboxStates, ended, require_running, stopping
from sandlot.engine.core.errors import (
    Conflict,
    EngineError,
    InvalidRequest,
    MachineFailed,
    NoCapacity,
    NotFound,
    Unavailable,
)
from sandlot.engine.core.model import Exit, NetworkPolicy, Sandbox, State, Template
from sandlot.engine.core.ports import Clock, Node, SandboxStore, TemplateStore
from sandlot.spans import span

log = logging.getLogger(__name__)

START_LIMIT_S = 120.0  # a node has tighter limits of its own; this one bounds a node that hangs
STOP_LIMIT_S = 60.0
SETTLE_TRIES = 5
TRANSIENT = frozenset({State.CREATING, State.PAUSING, State.CAPTURING, State.RESUMING})
EXPIRE_WAIT_S = 2.0
LISTED = (State.RUNNING, State.CAPTURING, State.PAUSING, State.PAUSED, State.RESUMING)
ENDS_AT_ONCE = 8  # stopping is work for the host; a hundred at the same moment would starve running sandboxes


class Lifecycle:
    """Creates, changes and ends sandboxes. Methods that take `team_id` see only that team's; None sees all."""

    def __init__(
        self,
        *,
        sandboxes: SandboxStore,
        templates: TemplateStore,
        nodes: Mapping[str, Node],
        clock: Clock,
        default_runtime: str,
        limits: Limits,
        schedule: Scheduler = first_node,
        make_id: Callable[[], str] = new_sandbox_id,
        make_token: Callable[[], str] = new_token,
    ) -> None:
        self._sandboxes = sandboxes
        self.rows = SandboxStates(sandboxes)
        self._templates = templates
        self._nodes = nodes
        self._clock = clock
        self._default_runtime = default_runtime
        self._limits = limits
        self._schedule = schedule
        self._make_id = make_id
        self._make_token = make_token
        self._admission = asyncio.Lock()
        self._end_slots = asyncio.Semaphore(ENDS_AT_ONCE)
        self._policy_locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self.transitions = InFlight()
        self._exits: dict[str, Exit] = {}  # machines that ended before their sandbox was running
        self._deadlines: dict[str, datetime] = {}
        self._at_deadline: Callable[[Sandbox], Awaitable[object]] = lambda due: self.end(due, "timeout")
        self._missing: Callable[[str], Awaitable[str | None]] = _not_coming
        self.rows.on_change(self._note_deadline)
        for node in nodes.values():
            node.on_exit(self.machine_exited)

    def on_change(self, callback: Callable[[Sandbox], None]) -> None:
        """Call back, at once and without waiting, with every row written from here."""
        self.rows.on_change(callback)

    def at_deadline(self, act: Callable[[Sandbox], Awaitable[object]]) -> None:
        """Do this with a sandbox that has reached its deadline, instead of ending it."""
        self._at_deadline = act

    def when_missing(self, ask: Callable[[str], Awaitable[str | None]]) -> None:
        """Ask this about a template that is not there: it may know that it is on its way."""
        self._missing = ask

    def node(self, name: str) -> Node:
        node = self._nodes.get(name)
        if node is None:
            raise Unavailable(f"node {name!r} is not one of this server's")
        return node

    def node_of(self, sandbox: Sandbox) -> Node:
        return self.node(sandbox.node)

    # Reading

    async def find(self, sandbox_id: str) -> Sandbox | None:
        """The row of any team in any state, or None. For the edge and for operators."""
        return await self._sandboxes.get(parse_sandbox_id(sandbox_id))

    async def get(self, team_id: str | None, sandbox_id: str, *, include_ended: bool = False) -> Sandbox:
        """Raises `NotFound` for what is unknown, another team's, or (unless asked for) ended."""
        sandbox = await self.find(sandbox_id)
        if (
            sandbox is None
            or (team_id is not None and sandbox.team_id != team_id)
            or (sandbox.state is State.ENDED and not include_ended)
        ):
            raise NotFound(f"sandbox {sandbox_id!r} was not found; it may have been killed or have reached its timeout")
        return sandbox

    async def list(
        self,
        team_id: str | None,
        *,
        states: Collection[State] = LISTED,
        metadata: Mapping[str, str] | None = None,
        template: str | None = None,
        started_after: datetime | None = None,
        descending: bool = True,
        limit: int = 100,
        token: str | None = None,
    ) -> Page:
        """One page, ordered by start. Raises `InvalidRequest` for a token that was not made here."""
        rows = await self._sandboxes.query(
            team_id=team_id,
            states=states,
            metadata=metadata,
            template=template,
            started_after=started_after,
            descending=descending,
            limit=limit + 1,
            after=decode_cursor(token) if token else None,
        )
        more = len(rows) > limit
        rows = rows[:limit]
        return Page(sandboxes=rows, next_token=encode_cursor(rows[-1].started_at, rows[-1].id) if more else None)

    async def count(self, team_id: str | None, states: Collection[State] = (State.RUNNING,)) -> int:
        return await self._sandboxes.count(team_id=team_id, states=states)

    # Starting

    async def create(self, team_id: str, new: NewSandbox) -> Sandbox:
        """A running sandbox. A repeat with the same idempotency key returns the same one.

        A caller that goes away while it starts leaves nothing behind, unless it gave a key: then it may come back for it.
        """
        with span("template"):
            template = await self.template(team_id, new.template)
        check_request(new, self._limits)
        node = self._place(template)
        row = self._row(team_id, new, template, node)
        ready = node.reserve(wanted(row, template))
        return await self._launched(new, row if ready is None else replace(row, id=ready), template, node)

    async def launch(self, team_id: str, new: NewSandbox, template: Template) -> Sandbox:
        """A running sandbox from a template that is at hand, with a machine of its own; the same promises as `create`."""
        check_request(new, self._limits)
        node = self._place(template)
        return await self._launched(new, self._row(team_id, new, template, node), template, node)

    async def _launched(self, new: NewSandbox, row: Sandbox, template: Template, node: Node) -> Sandbox:
        # From the reservation to here nothing waits: whoever compares rows with machines sees one or the other.
        start = self.transitions.start(row.id, self._start(row, template, node), self.moved)
        try:
            return await asyncio.shield(start)
        except _KeyInUse as use:
            return await self._repeat(use.sandbox, row)
        except asyncio.CancelledError:
            if new.idempotency_key is None:
                self.transitions.later(self._take_back(start))
            raise

    async def template(self, team_id: str, ref: str) -> Template:
        template = await self._templates.resolve(team_id, ref)
        unbuilt = template is None or (not template.layers and template.checkpoint is None)
        if unbuilt and (coming := await self._missing(ref)) is not None:
            raise Unavailable(coming)
        if template is None:
            raise NotFound(f"template {ref!r} not found; `./sandlot template list` shows the ones there are")
        if unbuilt:
            raise NotFound(
                f"template {ref!r} has no finished build tagged 'default'; build it, or name a tag: {ref}:tag"
            )
        return template

    def _place(self, template: Template) -> Node:
        if template.node is None:
            return self._schedule(template.resources, tuple(self._nodes.values()))
        node = self._nodes.get(template.node)
        if node is None:
            raise Unavailable(
                f"snapshot {template.name!r} is on node {template.node!r}, which this server does not have"
            )
        return node

    def _row(self, team_id: str, new: NewSandbox, template: Template, node: Node) -> Sandbox:
        return first_row(
            team_id,
            new,
            template,
            sandbox_id=self._make_id(),
            runtime=template.runtime or self._default_runtime,
            node=node.name,
            now=self._clock(),
            make_token=self._make_token,
        )

    async def _start(self, row: Sandbox, template: Template, node: Node) -> Sandbox:
        try:
            with span("admit"):
                await self._admit(row)
        except BaseException:
            node.unreserve(row.id)
            raise
        try:
            with span("node"):
                machine = await asyncio.wait_for(node.start(wanted(row, template)), START_LIMIT_S)
            with span("row"):
                running = await self.rows.swap(row, running_row(row, machine, self._clock()))
        except (Exception, asyncio.CancelledError) as error:
            failure = start_failure(row, error, within_s=START_LIMIT_S)
            await self._abandon(row, str(failure))
            raise failure from error
        self.transitions.later(self._templates.spawned(template.id, running.started_at))
        return running

    async def _admit(self, row: Sandbox) -> None:
        """Write the first row, if there is room. The lock makes the count and the row one step."""
        async with self._admission:
            if row.idempotency_key is not None:
                earlier = await self._sandboxes.by_idempotency_key(row.team_id, row.idempotency_key)
                if earlier is not None:
                    raise _KeyInUse(earlier)
            if not await self._sandboxes.add(row, most=self._limits.max_sandboxes, counting=HOLDING):
                raise self._full()

    def _full(self) -> NoCapacity:
        return NoCapacity(
            f"this server runs at most {self._limits.max_sandboxes} sandboxes at once; kill one, "
            "or raise SANDLOT_MAX_SANDBOXES"
        )

    async def readmit(self, paused: Sandbox) -> Sandbox:
        """The row of a paused sandbox on its way back, if there is room."""
        async with self._admission:
            if await self._sandboxes.count(states=HOLDING) >= self._limits.max_sandboxes:
                raise self._full()
            return await self.rows.swap(paused, replace(paused, state=State.RESUMING))

    async def _abandon(self, row: Sandbox, reason: str) -> None:
        try:
            await self._finish(row.id, reason)
        except Exception:  # the caller is to see why the start failed; the reconciler finishes this
            log.exception("could not clean up after sandbox %s failed to start; it will be tried again", row.id)

    async def _repeat(self, earlier: Sandbox, row: Sandbox) -> Sandbox:
        """The answer to a request whose idempotency key was used before."""
        if earlier.request_digest != row.request_digest:
            raise Conflict(
                f"Idempotency-Key {row.idempotency_key!r} was used with a different request; use a new key for this one"
            )
        start = self.transitions.moving.get(earlier.id)
        if start is not None:
            await asyncio.wait([start])
            return await self._repeat(await self.get(None, earlier.id, include_ended=True), row)
        sandbox = await self.find(earlier.id) or earlier
        if sandbox.state in (State.CREATING, State.STOPPING, State.ENDED):
            raise Conflict(
                f"Idempotency-Key {row.idempotency_key!r} belongs to sandbox {sandbox.id!r}, which is "
                f"{sandbox.state.value}; use a new key to create another"
            )
        return sandbox

    async def _take_back(self, start: asyncio.Task[Sandbox]) -> None:
        await asyncio.wait([start])
        if not start.cancelled() and start.exception() is None:
            await self._ended(start.result().id, "the caller went away while it was starting")

    def moved(self, sandbox_id: str) -> None:
        """A transition is over: look at a machine that ended meanwhile."""
        exit = self._exits.pop(sandbox_id, None)
        if exit is not None:
            self.transitions.later(self.machine_exited(sandbox_id, exit))

    # Changing

    async def set_timeout(self, team_id: str | None, sandbox_id: str, timeout_s: int) -> Sandbox:
        """End `timeout_s` from now, sooner or later than before; 0 ends it before this returns."""
        if timeout_s < 0:
            raise InvalidRequest(f"timeout must be 0 seconds or more, not {timeout_s}")
        check_timeout(timeout_s, self._limits)
        end_at = self._clock() + timedelta(seconds=timeout_s)
        sandbox = await self._update(team_id, sandbox_id, lambda old: replace(old, end_at=end_at))
        if timeout_s == 0:
            await self._at_deadline(sandbox)
        return sandbox

    async def refresh(self, team_id: str | None, sandbox_id: str, timeout_s: int) -> Sandbox:
        """End `timeout_s` from now, but not sooner than before."""
        if timeout_s < 0:
            raise InvalidRequest(f"duration must be 0 seconds or more, not {timeout_s}")
        check_timeout(timeout_s, self._limits)
        end_at = self._clock() + timedelta(seconds=timeout_s)
        return await self._update(team_id, sandbox_id, lambda old: replace(old, end_at=max(old.end_at, end_at)))

    async def set_network(self, team_id: str | None, sandbox_id: str, policy: NetworkPolicy) -> Sandbox:
        """Replace what the sandbox may reach. Who may reach the sandbox stays as it was created.

        In force on the node before it is in the row: after a crash in between, the row's policy is put in force again,
        and the caller was told nothing. The lock keeps two callers from leaving one policy here and the other there.
        """
        sandbox = await self.settled(team_id, sandbox_id)
        lock = self._policy_locks.setdefault(sandbox.id, asyncio.Lock())
        async with lock:
            sandbox = await self.settled(team_id, sandbox_id)
            require_running(sandbox, "change the network of")
            wanted = replace(
                policy,
                allow_public_traffic=sandbox.network.allow_public_traffic,
                mask_request_host=sandbox.network.mask_request_host,
                https_ports=sandbox.network.https_ports,
            )
            await self.node_of(sandbox).set_network(sandbox.id, wanted)
            return await self._update(team_id, sandbox_id, lambda old: replace(old, network=wanted))

    async def _update(self, team_id: str | None, sandbox_id: str, change: Callable[[Sandbox], Sandbox]) -> Sandbox:
        sandbox = await self.settled(team_id, sandbox_id)

        def changed(old: Sandbox) -> Sandbox:
            require_running(old, "change")
            return change(old)

        return await self.rows.change(sandbox.id, changed)

    async def settled(self, team_id: str | None, sandbox_id: str) -> Sandbox:
        """The row, after waiting for a start, a pause or a resume in flight."""
        sandbox = await self.get(team_id, sandbox_id)
        for _ in range(SETTLE_TRIES):
            # A row that is still halfway, with nobody moving it, was read just before its last write.
            if sandbox.id not in self.transitions.moving and sandbox.state not in TRANSIENT:
                break
            await self.transitions.settle(sandbox.id)
            sandbox = await self.get(team_id, sandbox_id)
        return sandbox

    # Ending

    async def kill(self, team_id: str | None, sandbox_id: str) -> None:
        """End a sandbox in any state; nothing of it is left when this returns. Raises `NotFound`."""
        sandbox = await self.get(team_id, sandbox_id)
        await self._ended(sandbox.id, "killed")

    async def end(self, seen: Sandbox, reason: str) -> bool:
        """End a sandbox only if it is still as it was seen. False: it moved on, and the reason may no longer hold."""
        if seen.state is State.STOPPING:
            current = await self._sandboxes.get(seen.id)
            if current is None or current.revision != seen.revision:
                return False
        else:
            try:
                await self.rows.swap(seen, stopping(seen, reason))
            except Conflict:
                return False
        await self._ended(seen.id, reason)
        return True

    async def machine_exited(self, sandbox_id: str, exit: Exit) -> None:
        """A node says that a machine ended by itself."""
        if sandbox_id in self.transitions.moving:
            self._exits[sandbox_id] = exit  # looked at when the start is over
            return
        try:
            sandbox = await self._sandboxes.get(sandbox_id)
            if sandbox is not None and sandbox.state is State.RUNNING:
                await self.end(sandbox, exit.reason)
        except EngineError as error:  # nobody waits for an answer; the reconciler tries again
            log.error("could not end sandbox %s after its machine ended (%s): %s", sandbox_id, exit.reason, error)

    async def expire(self) -> int:
        """One pass of the sweeper: end what is past its deadline; return how many that was."""
        due = await self._sandboxes.expired(self._clock())
        for sandbox in due:
            self._deadlines.pop(sandbox.id, None)
        ends = [self.transitions.later(self._expired(sandbox)) for sandbox in due]
        if ends:  # a stop that hangs goes on by itself: it must not hold up the deadlines of others
            await asyncio.wait(ends, timeout=EXPIRE_WAIT_S)
        return len(due)

    async def _expired(self, due: Sandbox) -> None:
        await self._at_deadline(due)

    async def purge(self, keep: timedelta) -> int:
        """Forget sandboxes that ended longer ago than `keep`."""
        return await self._sandboxes.purge(self._clock() - keep)

    def next_deadline(self) -> datetime | None:
        """The soonest deadline written from here; rows of an earlier process are found by the sweeper's own look."""
        return min(self._deadlines.values(), default=None)

    def _note_deadline(self, sandbox: Sandbox) -> None:
        if sandbox.state is State.RUNNING:
            self._deadlines[sandbox.id] = sandbox.end_at
        else:
            self._deadlines.pop(sandbox.id, None)

    async def _ended(self, sandbox_id: str, reason: str) -> None:
        """Wait for the end that is in progress, or be the one who does it. Goes on if the caller goes away."""
        ending = self.transitions.ending
        task = ending.get(sandbox_id)
        if task is None:
            task = self.transitions.track(ending, sandbox_id, self._end(sandbox_id, reason))
        await asyncio.shield(task)

    async def _end(self, sandbox_id: str, reason: str) -> None:
        # STOPPING first: a start in flight then fails its swap, and cleans up before the machine is stopped here.
        await self.rows.change(sandbox_id, lambda old: stopping(old, reason))
        await self.transitions.settle(sandbox_id)
        await self._finish(sandbox_id, reason)

    async def _finish(self, sandbox_id: str, reason: str) -> None:
        sandbox = await self.rows.change(sandbox_id, lambda old: stopping(old, reason))
        if sandbox.state is State.ENDED:
            return
        async with self._end_slots:
            await self._stop(sandbox)
        await self.rows.change(sandbox_id, lambda old: ended(old, self._clock()))
        log.info("sandbox %s ended: %s", sandbox_id, sandbox.end_reason)

    async def _stop(self, sandbox: Sandbox) -> None:
        try:
            await asyncio.wait_for(self.node_of(sandbox).stop(sandbox.id), STOP_LIMIT_S)
        except TimeoutError as error:
            raise MachineFailed(
                f"the machine of sandbox {sandbox.id!r} did not stop within {STOP_LIMIT_S:g} seconds; it is tried again"
            ) from error

    # What reconcile needs

    @asynccontextmanager
    async def no_new_starts(self) -> AsyncIterator[None]:
        """While held, no row and no machine appears that was not there before: what has no row is nobody's."""
        async with self._admission:
            yield

    def moving(self) -> frozenset[str]:
        """Sandboxes that this process is moving right now, and names that no row has yet."""
        return self.transitions.ids()

    async def adopt(self, sandbox: Sandbox) -> None:
        """Take over a running sandbox of an earlier process."""
        await self.node_of(sandbox).adopt(sandbox)
        self.rows.announce(sandbox)

    async def close(self) -> None:
        """Give up starts in flight, finish what is being ended. Running sandboxes stay."""
        await self.transitions.finish()


async def _not_coming(ref: str) -> str | None:
    return None


class _KeyInUse(Conflict):
    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        super().__init__(f"the idempotency key belongs to sandbox {sandbox.id!r}")
