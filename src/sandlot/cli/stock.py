"""Stock templates as the CLI has them built: by the server, and followed until they are ready."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from sandlot.cli import client
from sandlot.cli.output import Failure

if TYPE_CHECKING:
    from sandlot.recipes.build import BuiltTemplate
    from sandlot.settings import Settings

LOOK_S = 0.5


def build(settings: Settings, name: str, tell: Callable[[str], None]) -> BuiltTemplate:
    """Have the server build one, or join the build that is under way; `tell` gets the lines of its log.

    Raises `Failure` if it cannot be built.
    """
    path, began = f"/stock-templates/{quote(name, safe='')}", time.monotonic()
    state, seen = client.send(settings, "POST", path), 0
    while True:
        page = client.get(settings, f"{path}?after={seen}")
        for line in page["lines"]:
            tell(line)
        seen = page["next"]
        if page["state"] == "failed":
            raise Failure(page["problem"])
        if page["state"] != "building":
            return _built(settings, state["name"], time.monotonic() - began)
        time.sleep(LOOK_S)


def _built(settings: Settings, name: str, seconds: float) -> BuiltTemplate:
    from sandlot.recipes.build import BuiltTemplate

    rows = [row for row in client.get(settings, "/templates") if client.template_name(row) == name]
    row = rows[0] if rows else {}
    return BuiltTemplate(
        template_id=row.get("templateID", name),
        build_id=row.get("buildID", ""),
        name=name,
        seconds=round(seconds, 2),
    )


def make(settings: Settings, name: str, tell: Callable[[str], None]) -> bool:
    """Build one that is not there yet, or wait for its build; False: it was there."""
    state = client.get(settings, f"/stock-templates/{quote(name, safe='')}")["state"]
    if state == "ready":
        return False
    build(settings, name, tell)
    return True


def is_news(row: dict[str, Any]) -> bool:
    return row["state"] in ("building", "failed")


def described(row: dict[str, Any]) -> str:
    """One stock template in a line: how far its build is, or why it failed."""
    if row["state"] == "failed":
        return f"{row['name']} failed: {row['problem']}"
    left = f", about {row['remaining_s']} s left" if row["remaining_s"] else ""
    return f"{row['name']} for {row['seconds']} s{left}" + (f": {row['doing'][:80]}" if row["doing"] else "")


def listed(settings: Settings) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.get(settings, "/stock-templates")
    return found
