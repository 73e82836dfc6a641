"""Rows of sandboxes for tests that care about a few of their fields."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from sandlot.engine.core.model import Resources, Sandbox, State

NOW = datetime(2030, 1, 1, tzinfo=UTC)
_ANY = Sandbox(
    id="i1",
    team_id="t",
    template_id="base",
    template_name="base",
    state=State.RUNNING,
    runtime="fake",
    node="local",
    resources=Resources(),
    created_at=NOW,
    started_at=NOW,
    end_at=NOW,
    envd_version="0.6.13",
)


def a_row(**changes: object) -> Sandbox:
    return replace(_ANY, **changes)  # type: ignore[arg-type]
