"""Creating sandboxes: the template, the node, the row, the machine, in this order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from sandlot.engine.control.admission import KeyInUse
from sandlot.engine.control.parts import ControlParts
from sandlot.engine.control.placement import Scheduler, emptiest
from sandlot.engine.control.sandbox_records import first_row, new_machine, running_row, start_failure
from sandlot.engine.control.sandbox_request import NewSandbox, SandboxLimits, check_request
from sandlot.engine.control.stock_templates import MissingTemplates, NoMissingTemplates
from sandlot.engine.control.template_lookup import PATIENCE_S, TemplateLookup
from sandlot.engine.core.errors import Conflict
from sandlot.engine.core.ids import new_sandbox_id, new_token
from sandlot.engine.core.model import Sandbox, State, Template
from sandlot.spans import span

log = logging.getLogger(__name__)

START_LIMIT_S = 120.0  # a node has tighter limits of its own; this one bounds a node that hangs


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateOptions:
    """What every creation on this server has in common."""

    default_runtime: str
    limits: SandboxLimits
    missing: MissingTemplates = NoMissingTemplates()  # noqa: RUF009
    schedule: Scheduler = emptiest
    make_id: Callable[[], str] = new_sandbox_id
    make_token: Callable[[], str] = new_token


class Creation:
    """Creates sandboxes for teams."""

    def __init__(self, parts: ControlParts, options: CreateOptions) -> None:
        self._states, self._inflight, self._lookup = parts.states, parts.inflight, parts.lookup
        self._nodes, self._admission, self._ending = parts.nodes, parts.admission, parts.ending
        self._templates, self._clock, self._options = parts.templates, parts.clock, options
        self._template_lookup = TemplateLookup(parts.templates, options.missing)

    async def create(self, team_id: str, new: NewSandbox, *, patience_s: float = PATIENCE_S) -> Sandbox:
        """A running sandbox. A repeat with the same idempotency key returns the same one.

        A stock template that is not built yet is waited for, no longer than `patience_s`.

        A caller that goes away while it starts leaves nothing behind, unless it gave a key: then it may come back for it.
        """
        with span("template"):
            template = await self._template_lookup.find(team_id, new.template, patience_s)
        return await self.launch(team_id, new, template)

    async def launch(self, team_id: str, new: NewSandbox, template: Template) -> Sandbox:
        """The same from a template that is at hand."""
        check_request(new, self._options.limits)
        row = self._row(team_id, new, template)
        start = self._inflight.start(row.id, self._start(row, template))
        try:
            return await asyncio.shield(start)
        except KeyInUse as use:
            return await self._repeat(use.sandbox, row)
        except asyncio.CancelledError:
            if new.idempotency_key is None:
                self._inflight.later(self._take_back(start))
            raise

    def _row(self, team_id: str, new: NewSandbox, template: Template) -> Sandbox:
        return first_row(
            team_id,
            new,
            template,
            sandbox_id=self._options.make_id(),
            runtime=template.runtime or self._options.default_runtime,
            node=self._options.schedule(template, self._nodes.statuses()).name,
            now=self._clock(),
            make_token=self._options.make_token,
        )

    async def _start(self, row: Sandbox, template: Template) -> Sandbox:
        with span("admit"):
            await self._admission.admit(row)
        try:
            with span("node"):
                told = await self._nodes.told(row)
                start = self._nodes.of(row).machines.start(new_machine(told, template))
                machine = await asyncio.wait_for(start, START_LIMIT_S)
            with span("row"):
                running = await self._states.swap(row, running_row(row, machine, self._clock()))
        except (Exception, asyncio.CancelledError) as error:
            failure = start_failure(row, error, within_s=START_LIMIT_S)
            await self._abandon(row, str(failure))
            raise failure from error
        self._inflight.later(self._templates.spawned(template.id, running.started_at))
        return running

    async def _abandon(self, row: Sandbox, reason: str) -> None:
        try:
            await self._ending.free(row.id, reason)
        except Exception:  # the caller is to see why the start failed; the reconciler finishes this
            log.exception("could not clean up after sandbox %s failed to start; it will be tried again", row.id)

    async def _repeat(self, earlier: Sandbox, row: Sandbox) -> Sandbox:
        """The answer to a request whose idempotency key was used before."""
        if earlier.request_digest != row.request_digest:
            raise Conflict(
                f"Idempotency-Key {row.idempotency_key!r} was used with a different request; use a new key for this one"
            )
        start = self._inflight.moving.get(earlier.id)
        if start is not None:
            await asyncio.wait([start])
            return await self._repeat(await self._lookup.get(None, earlier.id, include_ended=True), row)
        sandbox = await self._lookup.find(earlier.id) or earlier
        if sandbox.state in (State.CREATING, State.STOPPING, State.ENDED):
            raise Conflict(
                f"Idempotency-Key {row.idempotency_key!r} belongs to sandbox {sandbox.id!r}, which is "
                f"{sandbox.state.value}; use a new key to create another"
            )
        return sandbox

    async def _take_back(self, start: asyncio.Task[Sandbox]) -> None:
        await asyncio.wait([start])
        if not start.cancelled() and start.exception() is None:
            await self._ending.finish(start.result().id, "the caller went away while it was starting")
