"""The log of one command: its output as events, in batches and up to a limit, in the order in which it came."""

from __future__ import annotations

import asyncio
import logging
import secrets

from sandlot.platform.core.errors import PlatformError
from sandlot.platform.core.events import Event, SandboxEventType
from sandlot.platform.core.model import Session
from sandlot.platform.core.ports import Channel
from sandlot.platform.sessions.state import SessionState

log = logging.getLogger(__name__)
MAX_LOGGED = 1 << 20  # characters of a command's output that go into the event log
MAX_SHOWN = 2000  # characters of a command in its events
BATCH_CHARS, BATCH_S = 16 * 1024, 0.2


def new_command_id() -> str:
    return f"cmd_{secrets.token_hex(8)}"


class CommandLog:
    """Output is logged in batches, so that a command that writes much does not become a flood of rows."""

    def __init__(self, state: SessionState, session: Session, command_id: str) -> None:
        self.id = command_id
        self._state, self._session = state, session
        self._batch: list[tuple[Channel, str]] = []
        self._batched = self._logged = 0
        self._opened = asyncio.Event()
        self._turn = asyncio.Lock()  # batches reach the log in their order
        self._later: asyncio.Task[None] | None = None

    def open(self) -> None:
        """The command's start is in the log, so its output may follow."""
        self._opened.set()

    def close(self) -> None:
        if self._later is not None:
            self._later.cancel()

    def event(self, type: str, **data: object) -> Event:
        return self._state.event(self._session, type, command_id=self.id, **data)

    async def append(self, type: str, **data: object) -> None:
        """A failure to log is a warning: the command runs all the same."""
        try:
            await self._state.events.append(self.event(type, **data))
        except PlatformError as error:
            log.warning("%s of %s could not be logged: %s", type, self.id, error)

    async def output(self, channel: Channel, text: str) -> None:
        room = MAX_LOGGED - self._logged - self._batched
        if room <= 0:
            return
        self._batch.append((channel, text[:room]))
        self._batched += min(len(text), room)
        if self._batched >= BATCH_CHARS:
            await self.flush()
        elif self._later is None:
            self._later = asyncio.create_task(self._flush_soon())

    async def flush(self) -> None:
        await self._opened.wait()
        async with self._turn:
            await self._write(self._take_batch())

    async def _flush_soon(self) -> None:
        await asyncio.sleep(BATCH_S)
        self._later = None
        await self.flush()

    def _take_batch(self) -> list[tuple[Channel, str]]:
        batch, self._batch = self._batch, []
        self._logged += self._batched
        self._batched = 0
        joined: list[tuple[Channel, str]] = []
        for channel, text in batch:
            if joined and joined[-1][0] == channel:
                joined[-1] = (channel, joined[-1][1] + text)
            else:
                joined.append((channel, text))
        return [
            (channel, text[at : at + BATCH_CHARS])
            for channel, text in joined
            for at in range(0, len(text), BATCH_CHARS)
        ]

    async def _write(self, joined: list[tuple[Channel, str]]) -> None:
        if not joined:
            return
        cut = True if self._logged >= MAX_LOGGED else None
        events = [
            self.event(SandboxEventType.COMMAND_OUTPUT, channel=channel, text=_without_nul(text), cut=cut)
            for channel, text in joined
        ]
        try:
            await self._state.events.append(*events)
        except PlatformError as error:
            log.warning("output of %s could not be logged: %s", self.id, error)


def _without_nul(text: str) -> str:
    return text.replace("\x00", "\N{REPLACEMENT CHARACTER}")  # PostgreSQL keeps no NUL
