"""Terminals in sandboxes: a shell for as long as somebody is connected to it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field

from sandlot.platform.core.errors import PlatformError
from sandlot.platform.core.events import SandboxEventType
from sandlot.platform.core.model import TerminalSize
from sandlot.platform.core.ports import OnData, Terminal
from sandlot.platform.sessions.service import Sessions, SessionTarget
from sandlot.platform.sessions.state import SessionState


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminalSpec:
    size: TerminalSize
    cwd: str | None = None
    envs: Mapping[str, str] = field(default_factory=dict, repr=False)
    user: str | None = None


class Terminals:
    def __init__(self, *, sessions: Sessions, state: SessionState) -> None:
        self._sessions, self._state = sessions, state

    @contextlib.asynccontextmanager
    async def open(self, target: SessionTarget, spec: TerminalSpec, on_data: OnData) -> AsyncIterator[Terminal]:
        """A shell that is ended at the end of the block. Its sandbox is in use until then, so it is not paused for idleness."""
        async with self._sessions.using(target) as handle:
            terminal = await handle.box.terminals.open(
                spec.size, cwd=spec.cwd, envs=spec.envs, user=spec.user, on_data=on_data
            )
            try:
                await self._state.log(handle.session, SandboxEventType.TERMINAL_OPENED, pid=terminal.pid)
                yield terminal
            finally:
                with contextlib.suppress(PlatformError):  # the sandbox may be gone, and the shell with it
                    await terminal.kill()
                await terminal.detach()
                with contextlib.suppress(PlatformError):
                    await self._state.log(handle.session, SandboxEventType.TERMINAL_CLOSED, pid=terminal.pid)
