"""Snapshots and forks: the state of a running sandbox as something to create others from."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sandlot.engine.control.create import Creation
from sandlot.engine.control.parts import ControlParts
from sandlot.engine.control.sandbox_request import NewSandbox, SandboxLimits, check_timeout
from sandlot.engine.control.suspend import Suspension
from sandlot.engine.core.errors import Conflict, EngineError, InvalidRequest, MachineFailed
from sandlot.engine.core.model import Sandbox, Template

log = logging.getLogger(__name__)

MOST_FORKS = 100
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,127}")


class Snapshots:
    """Methods take `team_id` and see only that team's sandboxes and snapshots."""

    def __init__(
        self, parts: ControlParts, *, suspension: Suspension, creation: Creation, limits: SandboxLimits
    ) -> None:
        self._inflight, self._nodes = parts.inflight, parts.nodes
        self._templates, self._clock, self._limits = parts.templates, parts.clock, limits
        self._suspension, self._creation = suspension, creation
        self._naming = asyncio.Lock()

    async def take(self, team_id: str, sandbox_id: str, *, name: str | None, memory: bool = True) -> Template:
        """Keep the state of a running sandbox as something to create from; the sandbox goes on."""
        if name is not None and not _NAME.fullmatch(name):
            raise InvalidRequest(
                f"a snapshot cannot be named {name[:80]!r}: use lower-case letters, digits, '.', '_' and '-'"
            )
        if name is not None:
            await self._named(team_id, name)  # refused before anything is written
        checkpoint = f"snp{secrets.token_hex(10)}"
        with self._inflight.holding(checkpoint):
            sandbox = await self._suspension.capture(
                team_id, sandbox_id, checkpoint, memory=memory, doing="take a snapshot of"
            )
            node = self._nodes.of(sandbox)
            try:
                base = await self._suspension.template_of(sandbox)
                async with self._naming:  # two snapshots of one name leave one row
                    earlier = await self._named(team_id, name) if name is not None else None
                    snapshot = self._as_template(sandbox, base, checkpoint, name, earlier)
                    await self._templates.put(snapshot)
            except BaseException:
                await node.snapshots.discard(checkpoint)
                raise
        if earlier is not None and earlier.checkpoint is not None:
            await node.snapshots.discard(earlier.checkpoint)
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

    async def page(
        self, team_id: str, *, source: str | None, name: str | None, limit: int, after: Any = None
    ) -> Sequence[Template]:
        return await self._templates.snapshots(team_id, source=source, name=name, limit=limit, after=after)

    async def delete(self, team_id: str, ref: str) -> bool:
        """False if the team has no such snapshot. Sandboxes that began with it are not touched."""
        found = await self._templates.resolve(team_id, ref.removesuffix(":default"))
        if found is None or found.team_id != team_id or found.source is None:
            return False
        await self._templates.delete(found.id)
        if found.node is not None and found.checkpoint is not None:
            await self._nodes.get(found.node).snapshots.discard(found.checkpoint)
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
        with self._inflight.holding(name):
            sandbox = await self._suspension.capture(
                team_id, sandbox_id, name, memory=True, lasting=False, doing="fork"
            )
            try:
                template = _forked(await self._suspension.template_of(sandbox), sandbox, name)
                new = _like(sandbox, timeout_s)
                launches = (self._creation.launch(team_id, new, template) for _ in range(count))
                outcomes = await asyncio.gather(*launches, return_exceptions=True)
            finally:
                await self._nodes.of(sandbox).snapshots.discard(name)
        return [_outcome(outcome) for outcome in outcomes]


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
