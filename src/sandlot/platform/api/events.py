"""The route of events: server-sent events, from any position of the log."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Header, Query, Response

from sandlot.platform.api.cursors import place_of
from sandlot.platform.api.deps import Deps, Given, Reader
from sandlot.platform.api.errors import PROBLEMS
from sandlot.platform.api.requests import Identifier
from sandlot.platform.api.streams import Stream
from sandlot.platform.core.errors import InvalidRequest
from sandlot.platform.core.events import SANDBOX, EventFilter, Subject, check_pattern
from sandlot.platform.core.model import Caller
from sandlot.platform.events.webhooks import event_json
from sandlot.platform.identity.keys import acting_user

router = APIRouter(tags=["events"], responses=PROBLEMS)
RETRY_MS = 1000
RESET = "events.reset"


@router.get("/events", response_class=Response, responses={200: {"content": {"text/event-stream": {}}}})
async def events(
    deps: Given,
    caller: Reader,
    user_id: Annotated[Identifier | None, Query()] = None,
    session_id: Annotated[Identifier | None, Query()] = None,
    sandbox_id: Annotated[Identifier | None, Query()] = None,
    subject: Annotated[str | None, Query(max_length=256, description="`kind:id`, or a kind: `sandbox`.")] = None,
    type: Annotated[
        list[str] | None, Query(description="One or more, also separated by commas; `command.*` works too.")
    ] = None,
    last_event_id: Annotated[str | None, Header()] = None,
    since: Annotated[str | None, Query(description="Like Last-Event-ID; 0 is the beginning of the log.")] = None,
    after: Annotated[
        str | None, Query(description="The same, under the name that lists give their cursors to.")
    ] = None,
) -> Response:
    """Events as they happen. With `Last-Event-ID` the stream continues after that event, without gaps.

    If events after it were purged meanwhile, the first event is `events.reset`: read again what you keep.
    """
    names = [name for part in type or () for name in part.split(",") if name]
    try:
        patterns = frozenset(map(check_pattern, names)) if names else None
    except ValueError as error:
        raise InvalidRequest(f"type: {error}; task.* means all types that begin with task.") from None
    kind, name = _subject(subject, sandbox_id)
    owner = _owner(caller, user_id)
    wanted = EventFilter(user_id=owner, subject_kind=kind, subject_id=name, session_id=session_id, types=patterns)
    return Stream(_stream(deps, wanted, place_of(last_event_id or since or after)), "text/event-stream")


def _subject(subject: str | None, sandbox_id: str | None) -> tuple[str | None, str | None]:
    """The kind and the id that are wanted. `sandbox_id` is short for a subject."""
    if sandbox_id is not None:
        if subject is not None:
            raise InvalidRequest("give either subject or sandbox_id, not both")
        return SANDBOX, sandbox_id
    if subject is None:
        return None, None
    kind, has_id, name = subject.partition(":")
    try:
        Subject(kind, name if has_id else "any")
    except ValueError as error:
        raise InvalidRequest(f"subject: {error}") from None
    return kind, name if has_id else None


def _owner(caller: Caller, user_id: str | None) -> str | None:
    """Only an admin sees the events of all users."""
    return None if caller.is_admin and user_id is None else acting_user(caller, user_id)


async def _stream(deps: Deps, wanted: EventFilter, place: int | None) -> AsyncGenerator[bytes]:
    yield f"retry: {RETRY_MS}\n\n".encode()
    if place and await deps.events.forgot(place, wanted.user_id):
        yield _reset(place, wanted.user_id)
    async for page in deps.events.read(place, wanted, deps.keep_alive_s):
        if not page:
            yield b": still here\n\n"
        for event in page:
            data = json.dumps(event_json(event), separators=(",", ":"))
            yield f"id: {event.id}\nevent: {event.type}\ndata: {data}\n\n".encode()


def _reset(place: int, user_id: str | None) -> bytes:
    """An event that is not in the log, and does not move the reader's place."""
    event = {
        "id": place,
        "type": RESET,
        "at": datetime.now(UTC).isoformat(),
        "user_id": user_id or "",
        "subject": {"kind": "events", "id": "log"},
        "data": {"reason": "events after this place were purged"},
    }
    return f"event: {RESET}\ndata: {json.dumps(event, separators=(',', ':'))}\n\n".encode()
