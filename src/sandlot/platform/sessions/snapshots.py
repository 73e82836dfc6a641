"""Snapshots of sessions' sandboxes, for other sessions to begin with."""

from __future__ import annotations

import contextlib

from sandlot.platform.core.errors import InvalidRequest, NotFound
from sandlot.platform.core.ports import Snapshotting
from sandlot.platform.providers.health import ProviderRegistry
from sandlot.platform.sessions.state import SessionState


class SessionSnapshots:
    def __init__(self, *, state: SessionState, providers: ProviderRegistry) -> None:
        self._state, self._providers = state, providers

    async def take(self, session_id: str, name: str) -> tuple[str, str]:
        """The provider, and its name for the snapshot. Raises `InvalidRequest` if it cannot, `ProviderRefused`."""
        session = await self._state.store.get(session_id)
        if session is None or session.provider_sandbox_id is None:
            raise NotFound(f"sandbox {session_id!r} does not exist any more")
        async with self._providers.calling(session.provider) as provider:
            if not isinstance(provider, Snapshotting):
                raise InvalidRequest(f"provider {session.provider!r} has no snapshots")
            return session.provider, await provider.snapshot(session.provider_sandbox_id, name)

    async def drop(self, provider: str, snapshot: str) -> None:
        """Nothing happens if there is none."""
        async with self._providers.calling(provider) as calling:
            if isinstance(calling, Snapshotting):
                with contextlib.suppress(NotFound):
                    await calling.drop_snapshot(snapshot)
