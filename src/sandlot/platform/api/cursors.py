"""Places in lists and logs, as callers carry them."""

from __future__ import annotations

import base64
import binascii
from datetime import datetime

from sandlot.platform.core.errors import InvalidRequest


def cursor_of(at: datetime, name: str) -> str:
    return base64.urlsafe_b64encode(f"{at.isoformat()} {name}".encode()).decode()


def parse_cursor(text: str) -> tuple[datetime, str]:
    try:
        at, _, name = base64.urlsafe_b64decode(text.encode()).decode().partition(" ")
        parsed = datetime.fromisoformat(at)
        if parsed.tzinfo is None or not name:
            raise ValueError
        return parsed, name
    except (ValueError, binascii.Error):
        raise InvalidRequest("after is not what an earlier answer gave as next") from None


def place_of(text: str | None) -> int | None:
    """The id of an event, as `Last-Event-ID` has it."""
    if text is None or not text.strip():
        return None
    if not text.strip().isdecimal() or len(text) > 18:
        raise InvalidRequest("Last-Event-ID is not the id of an event")
    return int(text)
