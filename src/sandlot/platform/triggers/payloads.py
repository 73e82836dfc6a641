"""What GitHub's webhooks say, read with suspicion: names of branches, titles and texts are anybody's."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sandlot.platform.core.forges import is_branch_name

Payload = Mapping[str, Any]
MAX_TEXT = 60_000
_SHA = re.compile(r"[0-9a-f]{40}")
_LOGIN = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]{0,98})(?:\[bot\])?")
_TASK_BRANCH = re.compile(r"task-([bcdfghjkmnpqrstvwxz2-9]{8})")
_FENCE = re.compile(r"^(```|~~~).*?^\1", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Sender:
    login: str
    is_bot: bool


def part(payload: Payload, *steps: str) -> Payload:
    """A record inside; an empty one if there is none."""
    found: Any = payload
    for step in steps:
        found = found.get(step) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def text(payload: Payload, name: str, most: int = MAX_TEXT) -> str:
    found = payload.get(name)
    if not isinstance(found, str):
        return ""
    clean = "".join(letter for letter in found.replace("\r\n", "\n") if letter.isprintable() or letter in "\n\t")
    return clean if len(clean) <= most else clean[:most] + "\n\n(It is longer; this is its beginning.)"


def line(payload: Payload, name: str, most: int = 300) -> str:
    return " ".join(text(payload, name, most).split())


def number(payload: Payload, name: str = "number") -> int:
    found = payload.get(name)
    return found if isinstance(found, int) and not isinstance(found, bool) and 0 < found < 1 << 53 else 0


def sha(payload: Payload, name: str) -> str | None:
    found = payload.get(name)
    return found if isinstance(found, str) and _SHA.fullmatch(found) else None


def branch(payload: Payload, name: str) -> str | None:
    found = payload.get(name)
    return found if isinstance(found, str) and is_branch_name(found) else None


def task_of(branch: str | None) -> str | None:
    """The task whose branch this is, by its name."""
    found = _TASK_BRANCH.fullmatch(branch or "")
    return found[1] if found else None


def sender(payload: Payload) -> Sender | None:
    found = part(payload, "sender")
    login = found.get("login")
    if not isinstance(login, str) or not _LOGIN.fullmatch(login):
        return None
    return Sender(login, found.get("type") != "User" or login.endswith("[bot]"))


def is_from_fork(pull: Payload) -> bool:
    """Also if nobody knows: a fork that was deleted has no repository."""
    head, base = part(pull, "head", "repo").get("id"), part(pull, "base", "repo").get("id")
    return head is None or head != base


def said_to(name: str, comment: str) -> str | None:
    """What a comment says to us: what follows the mention. Quoted lines and code do not count."""
    plain = _FENCE.sub("", comment)
    plain = "\n".join(line for line in plain.splitlines() if not line.lstrip().startswith(">"))
    plain = re.sub(r"`[^`\n]*`", "", plain)
    found = re.search(rf"(?<![\w/@.-])@{re.escape(name)}(?![\w/-])", plain, re.IGNORECASE)
    if found is None:
        return None
    return (plain[: found.start()] + plain[found.end() :]).strip(" \t\n,:")
