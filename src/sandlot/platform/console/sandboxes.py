"""Sandboxes as the console shows and changes them: those of sessions, and for admins all that the default provider has."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from sandlot.platform.core.console import (
    Forking,
    GrantedAddress,
    Granting,
    Inspectable,
    Inspection,
    Remembering,
    SeenSandbox,
)
from sandlot.platform.core.errors import Conflict, InvalidRequest, NotFound, SandboxGone
from sandlot.platform.core.model import LIVE, Caller, Session, SessionStatus
from sandlot.platform.core.ports import Box, Provider
from sandlot.platform.identity.keys import may_see
from sandlot.platform.providers.health import ProviderRegistry
from sandlot.platform.sessions.service import Sessions, SessionTarget
from sandlot.platform.sessions.state import SessionState

SESSION_MARK = "sandlot-session"  # in the metadata of sandboxes that the platform made; nobody else can set it
OWN_PREFIX = "sbx_"  # of the platform's own ids
CONNECT_S = 300
MAX_ID = 128


@dataclass(frozen=True, slots=True)
class ShownSandbox:
    """A sandbox of a provider, and the session that it belongs to, if it belongs to one.

    `fork_of`: the session from whose sandbox somebody made it without the platform. It belongs to the same user.
    """

    provider: str
    seen: SeenSandbox
    session: Session | None
    fork_of: Session | None = None

    @property
    def owner(self) -> Session | None:
        return self.session or self.fork_of


class ConsoleSandboxes:
    """`default`: the provider whose sandboxes are shown. What a caller may not see is not found."""

    def __init__(self, *, sessions: Sessions, state: SessionState, providers: ProviderRegistry, default: str) -> None:
        self._sessions, self._state, self._providers, self._default = sessions, state, providers, default

    async def list(self, caller: Caller) -> Sequence[ShownSandbox]:
        rows = await self._state.store.query(statuses=LIVE)
        owners = {row.provider_sandbox_id: row for row in rows if row.provider == self._default}
        async with self.inspecting() as inspection:
            found = await inspection.sandboxes()
        shown = [await self._shown(self._default, seen, owners.get(seen.id)) for seen in found]
        return [one for one in shown if _is_visible(caller, one.owner)]

    async def _shown(self, provider: str, seen: SeenSandbox, session: Session | None) -> ShownSandbox:
        """A sandbox with a session's mark that is not the session's own began with a copy of that one's state."""
        mark = seen.metadata.get(SESSION_MARK) if session is None else None
        return ShownSandbox(provider, seen, session, await self._state.store.get(mark) if mark else None)

    async def get(self, caller: Caller, sandbox_id: str) -> ShownSandbox:
        """By the provider's id, or by the platform's own. Raises `NotFound`."""
        session, provider, provider_id = await self._resolve(caller, sandbox_id)
        async with self.inspecting(provider) as inspection:
            return await self._shown(provider, await inspection.sandbox(provider_id), session)

    @contextlib.asynccontextmanager
    async def looking(self, caller: Caller, sandbox_id: str) -> AsyncIterator[tuple[Inspection, str]]:
        """What looks at this sandbox, and its id there. Also at one that has ended."""
        _, provider, provider_id = await self._resolve(caller, sandbox_id, include_ended=True)
        async with self.inspecting(provider) as inspection:
            yield inspection, provider_id

    @contextlib.asynccontextmanager
    async def inspecting(self, provider: str | None = None) -> AsyncIterator[Inspection]:
        async with self._providers.calling(provider or self._default) as calling:
            if not isinstance(calling, Inspectable):
                raise InvalidRequest(f"provider {calling.name!r} does not tell what it has")
            yield calling.inspection

    # -- changing ---------------------------------------------------------------------------------------------------

    async def pause(self, caller: Caller, sandbox_id: str) -> None:
        session, provider, provider_id = await self._resolve(caller, sandbox_id)
        if session is None:
            async with self._providers.calling(provider) as calling:
                await calling.pause(provider_id)
        elif session.status is not SessionStatus.PAUSED and not await self._sessions.pause(
            session, "paused in the console"
        ):
            raise Conflict(f"sandbox {sandbox_id!r} is in use just now; try again when nothing runs in it")

    async def resume(self, caller: Caller, sandbox_id: str) -> None:
        session, provider, provider_id = await self._resolve(caller, sandbox_id)
        if session is None:
            async with self._providers.calling(provider) as calling:
                await calling.connect(provider_id, CONNECT_S)
        else:
            await self._sessions.connect(_target(caller, session))

    async def kill(self, caller: Caller, sandbox_id: str) -> None:
        session, provider, provider_id = await self._resolve(caller, sandbox_id)
        if session is None:
            async with self._providers.calling(provider) as calling:
                await calling.kill(provider_id)
        else:
            await self._sessions.delete(_target(caller, session))

    async def set_timeout(self, caller: Caller, sandbox_id: str, timeout_s: int) -> None:
        session, provider, provider_id = await self._resolve(caller, sandbox_id)
        if session is None:
            async with self._providers.calling(provider) as calling:
                await calling.set_timeout(provider_id, timeout_s)
        else:
            await self._sessions.set_timeout(_target(caller, session), timeout_s)

    async def fork(self, caller: Caller, sandbox_id: str, timeout_s: int) -> str:
        """The provider's id of a second sandbox that begins with this one's state."""
        session, provider, provider_id = await self._resolve(caller, sandbox_id)
        async with self._providers.calling(provider) as calling:
            if not isinstance(calling, Forking):
                raise InvalidRequest(f"provider {provider!r} cannot fork sandboxes")
            inspection = calling.inspection if isinstance(calling, Inspectable) else None
            remembers = isinstance(inspection, Remembering) and await inspection.life(provider_id) is not None
            if session is not None and not remembers:
                # The copy would carry the session's mark, and could not be told from a stray.
                raise Conflict(
                    "a sandbox that belongs to a session cannot be forked at this provider; "
                    "start a session from a snapshot of it"
                )
            return await calling.fork(provider_id, timeout_s)

    # -- using ------------------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def using(self, caller: Caller, sandbox_id: str) -> AsyncIterator[Box]:
        """A running sandbox to act in. Looking into a paused one does not wake it: raises `Conflict`."""
        session, provider, provider_id = await self._resolve(caller, sandbox_id)
        if session is not None:
            if session.status is SessionStatus.PAUSED:
                raise Conflict(f"sandbox {sandbox_id!r} is paused; resume it first")
            async with self._sessions.using(_target(caller, session)) as handle:
                yield handle.box
            return
        async with self._providers.calling(provider) as calling:
            box = await self._awake(calling, provider_id)
        yield box

    async def port_address(self, caller: Caller, sandbox_id: str, port: int) -> GrantedAddress:
        """Where a browser gets into this port, if need be by a grant that works once. The sandbox must be running."""
        _, provider, provider_id = await self._resolve(caller, sandbox_id)
        async with self.using(caller, sandbox_id) as box:
            plain = box.url(port)
        async with self._providers.calling(provider) as calling:
            granted = await calling.grant(provider_id, port) if isinstance(calling, Granting) else None
        return granted or GrantedAddress(url=plain)

    async def _awake(self, provider: Provider, provider_id: str) -> Box:
        found = await provider.find(provider_id)
        if found is None:
            raise SandboxGone(f"sandbox {provider_id!r} was not found")
        if found.is_paused:
            raise Conflict(f"sandbox {provider_id!r} is paused; resume it first")
        return await provider.connect(provider_id, CONNECT_S)

    async def session_of(self, caller: Caller, sandbox_id: str) -> Session | None:
        """The session that it belongs or belonged to, or was forked from. Raises `NotFound`."""
        session, _, _ = await self._resolve(caller, sandbox_id, include_ended=True)
        return session

    async def _resolve(
        self, caller: Caller, sandbox_id: str, *, include_ended: bool = False
    ) -> tuple[Session | None, str, str]:
        """Its session, its provider and its id there. Raises `NotFound` for what this caller may not see."""
        sandbox_id = sandbox_id[:MAX_ID]
        if sandbox_id.startswith(OWN_PREFIX):
            own = await self._own(caller, sandbox_id, include_ended)
            if own.provider_sandbox_id is None:
                raise Conflict(f"sandbox {sandbox_id!r} has not started yet")
            return own, own.provider, own.provider_sandbox_id
        session = await self._state.store.of_provider_sandbox(sandbox_id, include_ended=include_ended)
        if not _is_visible(caller, session) and not (session is None and await self._is_fork_of(caller, sandbox_id)):
            raise NotFound(f"sandbox {sandbox_id!r} was not found")
        return session, session.provider if session is not None else self._default, sandbox_id

    async def _own(self, caller: Caller, sandbox_id: str, include_ended: bool) -> Session:
        found = await self._state.store.get(sandbox_id) if include_ended else None
        if found is not None and may_see(caller, found.user_id):
            return found
        return await self._sessions.find(SessionTarget(caller=caller, sandbox_id=sandbox_id))

    async def _is_fork_of(self, caller: Caller, sandbox_id: str) -> bool:
        """Whether it was made from the sandbox of one of this caller's sessions."""
        async with self.inspecting() as inspection:
            try:
                metadata = (await inspection.sandbox(sandbox_id)).metadata
            except SandboxGone:
                life = await inspection.life(sandbox_id) if isinstance(inspection, Remembering) else None
                metadata = life.sandbox.metadata if life is not None else {}
        mark = metadata.get(SESSION_MARK)
        source = await self._state.store.get(mark) if mark else None
        return source is not None and may_see(caller, source.user_id)


def _is_visible(caller: Caller, session: Session | None) -> bool:
    """What belongs to no session is for admins."""
    return caller.is_admin if session is None else may_see(caller, session.user_id)


def _target(caller: Caller, session: Session) -> SessionTarget:
    return SessionTarget(caller=caller, sandbox_id=session.id)
