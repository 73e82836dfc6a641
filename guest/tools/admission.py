"""Who may use the tools: tokens that were given to this very sandbox, and the variables that came with them.

Template checkpoints, snapshots and forks are shared, so a token cannot be part of one. Whoever may run commands in a
sandbox admits a token once it runs; what is kept is the token's hash together with the sandbox's id. A sandbox that wakes
up from another's state has another id, and none of the other's tokens count.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import secrets
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

STATE = Path("/var/lib/sandlot-tools")
IDENTITY = Path("/run/e2b/.E2B_SANDBOX_ID")
MOST_TOKENS = 16
MOST_RECORD = 1 << 20
_DIGEST = re.compile(r"[0-9a-f]{64}")
# What belongs to the process that admitted the token, not to the sandbox.
_OWN = frozenset({"HOME", "LOGNAME", "OLDPWD", "PATH", "PWD", "SHELL", "SHLVL", "TERM", "USER", "_"})


class Refused(Exception):
    """A request without a token that counts; the text says what to do."""


class Admission:
    def __init__(self, state: Path = STATE, identity: Path = IDENTITY) -> None:
        self._tokens, self._environment, self._identity = state / "tokens", state / "environment.json", identity

    # -- for the server -----------------------------------------------------------------------------------------------

    def check(self, token: str | None) -> None:
        """Raises `Refused` unless this sandbox admitted the token."""
        here = self.sandbox_id
        own = [record["sha256"] for record in self._records() if record["sandbox"] == here]
        if not own:
            raise Refused("this sandbox has admitted no token yet; run `sandlot-tools token` in it to get one")
        if token is None:
            raise Refused("the tools need the sandbox's token: send it as `Authorization: Bearer <token>`")
        given = digest(token)
        if sum(hmac.compare_digest(given, known) for known in own) == 0:  # all are looked at, whatever is found
            raise Refused("this is not a token of this sandbox; run `sandlot-tools token` in it to get a new one")

    @property
    def sandbox_id(self) -> str:
        """Empty where nobody says which sandbox this is."""
        try:
            return self._identity.read_text(errors="replace").strip()[:200]
        except OSError:
            return ""

    def variables(self) -> Mapping[str, str]:
        """The sandbox's own variables, as the last admitted caller's command saw them."""
        found = self._arrival().get("variables")
        return {str(name): str(value) for name, value in found.items()} if isinstance(found, dict) else {}

    def address(self) -> str | None:
        """Where the tools' port is reached from outside, if the one who admitted knew."""
        found = self._arrival().get("url")
        return found if isinstance(found, str) else None

    # -- for whoever may run commands here ----------------------------------------------------------------------------

    def new_token(self, environment: Mapping[str, str], url: str | None = None) -> str:
        token = f"slt_{secrets.token_urlsafe(32)}"
        self.admit(digest(token), environment, url)
        return token

    def admit(self, sha256: str, environment: Mapping[str, str], url: str | None = None) -> None:
        """Let in whoever has the token of this hash. Raises `ValueError` for what is no hash."""
        if not _DIGEST.fullmatch(sha256):
            raise ValueError("a token is admitted by its SHA-256: 64 hexadecimal digits in lower case")
        here = self.sandbox_id
        self._tokens.mkdir(mode=0o700, parents=True, exist_ok=True)
        _adopt(self._tokens, self._tokens.parent)
        kept = {name: value for name, value in environment.items() if name not in _OWN}
        known = url or self.address()
        self._write(self._environment, {"sandbox": here, "variables": kept, "url": known})
        self._write(self._tokens / f"{sha256[:16]}.json", {"sandbox": here, "sha256": sha256, "at": time.time()})
        self._prune(here)

    def _prune(self, here: str) -> None:
        """Forget what other sandboxes admitted, and all but the newest of our own."""
        own = sorted((path.stat().st_mtime, path) for path, record in self._entries() if record["sandbox"] == here)
        others = [path for path, record in self._entries() if record["sandbox"] != here]
        for path in [*others, *(path for _, path in own[:-MOST_TOKENS])]:
            path.unlink(missing_ok=True)

    def _write(self, path: Path, record: Mapping[str, Any]) -> None:
        part = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            json.dump(record, file)
        _adopt(part, self._tokens.parent)
        part.replace(path)

    def _records(self) -> Iterator[dict[str, Any]]:
        for _, record in self._entries():
            yield record

    def _entries(self) -> Iterator[tuple[Path, dict[str, Any]]]:
        if not self._tokens.is_dir():
            return
        for path in sorted(self._tokens.glob("*.json"))[: 4 * MOST_TOKENS]:
            record = _read(path)
            if isinstance(record.get("sha256"), str) and isinstance(record.get("sandbox"), str):
                yield path, record

    def _arrival(self) -> dict[str, Any]:
        record = _read(self._environment)
        return record if record.get("sandbox") == self.sandbox_id else {}


def digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open(encoding="utf-8") as file:
            record = json.loads(file.read(MOST_RECORD))
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def _adopt(path: Path, like: Path) -> None:
    """Root may admit as well; what it writes belongs to the server's user all the same."""
    if os.geteuid() == 0:
        owner = like.stat()
        os.chown(path, owner.st_uid, owner.st_gid)
