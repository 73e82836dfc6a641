"""The state of browsers: their table of moves, and the events about them. The only writer of browsers."""

from __future__ import annotations

from typing import Any

from sandlot.platform.core.browsers import (
    BROWSER,
    BROWSER_MOVES,
    Browser,
    BrowserEventType,
    BrowserStatus,
    BrowserStore,
)
from sandlot.platform.core.events import Event, Subject
from sandlot.platform.core.ports import Clock
from sandlot.platform.events.aggregate import AggregateState
from sandlot.platform.events.log import EventLog


class BrowserState(AggregateState[Browser, BrowserStatus]):
    def __init__(self, *, store: BrowserStore, events: EventLog, clock: Clock) -> None:
        super().__init__(noun="browser", store=store, events=events, clock=clock, moves=BROWSER_MOVES)
        self.store = store

    async def started(self, browser: Browser, sandbox_id: str) -> Browser:
        now = self.clock()
        return await self.move(
            browser,
            BrowserStatus.RUNNING,
            self._event(browser, BrowserEventType.STARTED),
            provider_sandbox_id=sandbox_id,
            started_at=now,
            updated_at=now,
        )

    async def ending(self, browser: Browser, outcome: BrowserStatus, why: str | None) -> Browser:
        """What it is to become is written first: a platform that stops in between finishes it at its next start."""
        return await self.move(browser, BrowserStatus.ENDING, outcome=outcome, problem=why, updated_at=self.clock())

    async def ended(self, browser: Browser) -> Browser:
        now, outcome = self.clock(), browser.outcome or BrowserStatus.COMPLETED
        said = self._event(browser, BrowserEventType.ENDED, status=outcome.value, reason=browser.problem)
        return await self.move(browser, outcome, said, ended_at=now, updated_at=now)

    def _event(self, browser: Browser, type: str, **data: Any) -> Event:
        return Event(
            type=type,
            at=self.clock(),
            user_id=browser.user_id,
            subject=Subject(BROWSER, browser.id),
            data={name: value for name, value in data.items() if value is not None},
        )
