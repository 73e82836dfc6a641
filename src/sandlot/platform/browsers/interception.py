"""Which messages of clients do not go to the browser as they are: those that would end it, and where it puts downloads."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

DOWNLOADS = "/home/user/downloads"
MAX_LOOKED_AT = 64 << 10


@dataclass(frozen=True, slots=True)
class Decision:
    """What becomes of a message. `forward`: what the browser gets; `answer`: what the client gets at once."""

    forward: str | None = None
    answer: str | None = None
    leaves: bool = False


def decide(text: str) -> Decision:
    if len(text) > MAX_LOOKED_AT or '"Browser.' not in text:
        return Decision(forward=text)
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return Decision(forward=text)
    if not isinstance(found, dict):
        return Decision(forward=text)
    method = found.get("method")
    if method in ("Browser.close", "Browser.crash"):
        # Clients say it when they are done. Whether the browser ends is for its session to decide.
        return Decision(answer=_answer(found), leaves=True)
    if method == "Browser.setDownloadBehavior" and isinstance(found.get("params"), dict):
        if "downloadPath" in found["params"]:
            found["params"]["downloadPath"] = DOWNLOADS
        return Decision(forward=json.dumps(found))
    return Decision(forward=text)


def _answer(found: dict[str, Any]) -> str:
    named = {name: found[name] for name in ("id", "sessionId") if name in found}
    return json.dumps({**named, "result": {}})
