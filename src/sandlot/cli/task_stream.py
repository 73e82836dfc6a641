"""Follows a task: what is in its timeline and what comes, each entry once, over as many connections as it takes."""

from __future__ import annotations

import contextlib
import http.client
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

from sandlot.cli import client, output
from sandlot.cli.client import Refused
from sandlot.cli.output import Failure
from sandlot.program import SANDLOT

if TYPE_CHECKING:
    from sandlot.settings import Settings

SILENCE_S = 60.0  # keep-alives come much sooner
RETRY_S = 1.0
GIVE_UP_S = 300.0  # without a server
GONE = 75  # the exit code for "later it may work"
MAX_LINE = 16 << 20
PAGE = 500
RESTING = frozenset({"needs_you", "review", "done", "failed", "cancelled"})


@dataclass(frozen=True, slots=True)
class Told:
    """One piece of news: an entry of the timeline, the task as it is now, or both."""

    entry: dict[str, Any] | None = None
    task: dict[str, Any] | None = None


def entries(settings: Settings, id: str, after: int = 0) -> Iterator[dict[str, Any]]:
    """All that is in the timeline now."""
    while True:
        page = client.get(settings, f"{path(id)}/timeline?after={after}&limit={PAGE}")
        yield from page["entries"]
        if len(page["entries"]) < PAGE:
            return
        after = int(page["next"])


def follow(settings: Settings, id: str, after: int = 0) -> Iterator[Told]:
    """Until the task rests: then the last piece of news is the task, and every entry came before it."""
    missing_since: float | None = None
    while True:
        try:
            for told in _connection(settings, id, after):
                missing_since = None
                if told.entry is not None:
                    after = max(after, int(told.entry["seq"]))
                    yield Told(entry=told.entry)
                if told.task is not None and is_over(told.task):
                    # The task is read before its entries are: what it did last may not have come yet.
                    for entry in entries(settings, id, after):
                        after = int(entry["seq"])
                        yield Told(entry=entry)
                    yield Told(task=told.task)
                    return
                if told.task is not None:
                    yield Told(task=told.task)
            time.sleep(RETRY_S)  # the server closed it, in order
        except Refused as error:
            if error.code < 500:
                raise
            missing_since = _wait(settings, missing_since)
        except (OSError, http.client.HTTPException, Failure):
            missing_since = _wait(settings, missing_since)


def is_over(task: dict[str, Any]) -> bool:
    """Nothing happens by itself any more. What waits for another task has a reason, and begins later."""
    return task["state"] in RESTING or (task["state"] == "todo" and not task["reason"])


def path(id: str) -> str:
    from urllib.parse import quote

    return f"/tasks/{quote(id, safe='')}"


def _wait(settings: Settings, since: float | None) -> float:
    now = time.monotonic()
    if since is None:
        output.warn("the server does not answer; the task is followed again as soon as it does")
        since = now
    if now - since > GIVE_UP_S:
        start = client.start_command(settings)
        message = f"the server did not come back in {GIVE_UP_S:.0f} s. The task is kept. Start the server: {start}"
        raise Failure(f"{message}, and look: {SANDLOT} task list", status=GONE)
    time.sleep(RETRY_S)
    return since


def _connection(settings: Settings, id: str, after: int) -> Iterator[Told]:
    address = f"{path(id)}/events?after={after}"
    with client.opened(settings, address, timeout_s=SILENCE_S) as answer:
        for data in _data(answer):
            with contextlib.suppress(ValueError, TypeError, KeyError):  # a line that was cut with its connection
                record = json.loads(data)
                if "entry" in record:
                    yield Told(entry=record.pop("entry"), task=record)
                elif "kind" in record:
                    yield Told(entry=record)
                else:
                    yield Told(task=record)


def _data(answer: IO[bytes]) -> Iterator[bytes]:
    while line := answer.readline(MAX_LINE):
        if line.startswith(b"data: ") and line.endswith(b"\n"):
            yield line[6:]
