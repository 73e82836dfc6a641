"""Listing: pages of sandboxes and the opaque tokens that lead from one to the next."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from sandlot.engine.core.errors import InvalidRequest
from sandlot.engine.core.model import Sandbox


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One page of a list. `next_token` is None on the last one."""

    sandboxes: Sequence[Sandbox]
    next_token: str | None


def encode_cursor(at: datetime, last_id: str) -> str:
    """Leads on from a row by the time it is ordered by, and its id."""
    text = json.dumps([at.isoformat(), last_id])
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode_cursor(token: str) -> tuple[datetime, str]:
    try:
        started_at, sandbox_id = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        when = datetime.fromisoformat(started_at)
        if (
            when.tzinfo is None
            or not isinstance(sandbox_id, str)
            or not (sandbox_id.isascii() and sandbox_id.isalnum())
        ):
            raise ValueError("not a cursor")
        return when.astimezone(UTC), sandbox_id
    except (ValueError, TypeError, RecursionError, OverflowError) as error:
        raise InvalidRequest("nextToken is not one that this server gave out; start again without it") from error
