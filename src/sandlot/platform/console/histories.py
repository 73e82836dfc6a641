"""The lives of sandboxes as the console shows them: what happened and why it ended, forks of forks, and those that are over."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sandlot.platform.console.sandboxes import SESSION_MARK, ConsoleSandboxes
from sandlot.platform.core.console import Inspection, PastSandbox, Remembering, SeenLife, SeenMark
from sandlot.platform.core.events import SANDBOX, EventFilter, SandboxEventType
from sandlot.platform.core.model import TERMINAL, Caller, Session
from sandlot.platform.core.ports import EventStore
from sandlot.platform.identity.keys import may_see
from sandlot.platform.sessions.state import SessionState

MOST_ANCESTORS, MOST_NODES, MOST_EVENTS = 16, 100, 500
E = SandboxEventType
SHOWN = frozenset(map(str, (E.CREATED, E.READY, E.PAUSED, E.RESUMED, E.ERROR, E.DELETED, E.TERMINAL_OPENED)))
# The words of a provider for ends that need a sentence.
WHY = {
    "killed": "Somebody ended it.",
    "timeout": "Its time was over. A longer timeout, or a pause at the end of it, would have kept it.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownLife:
    """`why`: a sentence on its end; None while it lives, or if nobody knows."""

    sandbox: PastSandbox | None
    session: Session | None
    marks: Sequence[SeenMark]
    why: str | None


class ConsoleHistories:
    """What a caller may not see is not found."""

    def __init__(self, *, sandboxes: ConsoleSandboxes, state: SessionState, events: EventStore) -> None:
        self._sandboxes, self._state, self._events = sandboxes, state, events

    async def life(self, caller: Caller, sandbox_id: str) -> ShownLife:
        session = await self._sandboxes.session_of(caller, sandbox_id)
        async with self._sandboxes.looking(caller, sandbox_id) as (inspection, known_as):
            life = await _life(inspection, known_as)
        told = await self._told(session)
        marks = sorted((*(life.marks if life is not None else ()), *told), key=lambda mark: mark.at)
        record = life.sandbox if life is not None else None
        return ShownLife(sandbox=record, session=session, marks=marks, why=_why(record, session, told))

    async def tree(self, caller: Caller, sandbox_id: str) -> Sequence[PastSandbox]:
        """The first ancestor that is remembered, and all that came from it, parents before children."""
        async with self._sandboxes.looking(caller, sandbox_id) as (inspection, known_as):
            root = await _life(inspection, known_as)
            for _ in range(MOST_ANCESTORS):
                above = await _life(inspection, root.sandbox.source) if root and root.sandbox.source else None
                if above is None:
                    break
                root = above
            if root is None:
                return ()
            found, waiting = [root.sandbox], deque(root.forks)
            while waiting and len(found) < MOST_NODES:
                node = waiting.popleft()
                found.append(node)
                life = await _life(inspection, node.id)
                waiting.extend(life.forks if life is not None else ())
            return found

    async def ended(self, caller: Caller, limit: int) -> Sequence[tuple[PastSandbox, Session | None]]:
        """Newest first: those of the caller's sessions; for admins, all that the default provider remembers."""
        async with self._sandboxes.inspecting() as inspection:
            found = await inspection.ended(None, 1000) if isinstance(inspection, Remembering) else ()
        rows = await self._state.store.query(user_id=None if caller.is_admin else caller.user_id, statuses=TERMINAL)
        owners = {row.provider_sandbox_id: row for row in rows}
        by_id = {row.id: row for row in rows}
        pairs = [(one, owners.get(one.id) or by_id.get(one.metadata.get(SESSION_MARK, ""))) for one in found]
        visible = [pair for pair in pairs if caller.is_admin or (pair[1] and may_see(caller, pair[1].user_id))]
        return visible[:limit]

    async def _told(self, session: Session | None) -> list[SeenMark]:
        """What the session's events say."""
        if session is None:
            return []
        wanted = EventFilter(subject_kind=SANDBOX, subject_id=session.id, types=SHOWN)
        events = await self._events.after(0, MOST_EVENTS, wanted)
        return [SeenMark(at=one.at, kind=f"session {one.type}", detail=_detail(one.data)) for one in events]


async def _life(inspection: Inspection, sandbox_id: str) -> SeenLife | None:
    return await inspection.life(sandbox_id) if isinstance(inspection, Remembering) else None


def _detail(data: object) -> str | None:
    reason = data.get("reason") or data.get("message") if isinstance(data, Mapping) else None
    return str(reason) if reason else None


def _why(record: PastSandbox | None, session: Session | None, told: Sequence[SeenMark]) -> str | None:
    """The platform's own reason says more than the provider's "killed"."""
    gone = next((mark.detail for mark in reversed(told) if mark.kind == "session deleted"), None)
    if session is not None and session.status in TERMINAL:
        ours = gone or session.problem
        if ours and (record is None or record.end_reason in (None, "killed")):
            return f"{ours[0].upper()}{ours[1:]}{'' if ours.endswith('.') else '.'}"
    if record is None or record.state != "ended":
        return None
    reason = record.end_reason or "Nobody noted why."
    return WHY.get(reason, f"{reason[0].upper()}{reason[1:]}")
