"""Secrets of a team: values that leave with requests of its sandboxes, and are never inside them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    """All that is told of a secret. Its value is in no record."""

    id: str
    team_id: str
    name: str  # lower case, unique in its team
    version: int  # how often it was given a value; earlier values are gone
    created_at: datetime
    updated_at: datetime
    metadata: Mapping[str, str] = field(default_factory=dict)
    last_used_at: datetime | None = None
