"""Who may look at the screen: tokens that work once, and soon, each with what its bearer may do."""

from __future__ import annotations

import json
import os
import re
import secrets
import time
from pathlib import Path

from tools.admission import Admission, Refused, digest

GOOD_FOR_S = 60.0
MOST_WAITING = 32
MOST_RECORD = 4096
_DIGEST = re.compile(r"[0-9a-f]{64}")


class Viewers:
    """Hashes of tokens that were not used yet, each in a file of its own."""

    def __init__(self, state: Path, admission: Admission) -> None:
        self._place, self._admission = state / "viewers", admission

    def admit(self, sha256: str, *, control: bool) -> None:
        """Raises `ValueError` for what is no hash."""
        if not _DIGEST.fullmatch(sha256):
            raise ValueError("a viewer is admitted by the SHA-256 of its token: 64 hexadecimal digits in lower case")
        self._place.mkdir(mode=0o700, parents=True, exist_ok=True)
        waiting = sorted(self._place.glob("*.json"), key=lambda path: path.stat().st_mtime)
        for path in waiting[: max(0, len(waiting) - MOST_WAITING + 1)]:
            path.unlink(missing_ok=True)
        record = {"sandbox": self._admission.sandbox_id, "at": time.time(), "control": control}
        part = self._place / f".{secrets.token_hex(8)}"
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            json.dump(record, file)
        if os.geteuid() == 0:  # root may admit as well; the server must be able to take it
            owner = self._place.parent.stat()
            for path in (self._place, part):
                os.chown(path, owner.st_uid, owner.st_gid)
        part.replace(self._place / f"{sha256}.json")

    def take(self, token: str | None) -> bool:
        """Whether the bearer may control; the token counts once. Raises `Refused`."""
        path = self._place / f"{digest(token or '')}.json"
        taken = path.with_suffix(f".{secrets.token_hex(4)}")
        try:
            path.rename(taken)  # of two who come with the same token, one finds it
            record = json.loads(taken.read_text()[:MOST_RECORD])
            taken.unlink()
            is_fresh = 0 <= time.time() - float(record["at"]) <= GOOD_FOR_S
            if is_fresh and record["sandbox"] == self._admission.sandbox_id:
                return bool(record["control"])
        except (OSError, ValueError, KeyError, TypeError):
            pass
        raise Refused("this token does not open the screen; it works once, within a minute")
