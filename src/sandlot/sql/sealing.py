"""Values that are not kept in clear: sealed with a key that is in a file beside the database, not in it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cryptography.fernet import Fernet, InvalidToken, MultiFernet

FILE = "sealing.keys"  # in the data directory: a key in each line, the newest first
MARK = "sealed"
Fault = Callable[[str], Exception]


class Sealer:
    """Seals with the newest key, and opens with any of them. A value that was stored before there were keys is read as it is."""

    def __init__(self, keys: Sequence[str], fault: Fault) -> None:
        self._box, self._fault = MultiFernet([Fernet(key) for key in keys]), fault

    @classmethod
    def at(cls, directory: Path, fault: Fault = ValueError) -> Sealer:
        """With the keys of a data directory; the first is made when there is none. Raises a `fault` if that fails."""
        return cls(_keys(directory / FILE, fault), fault)

    @classmethod
    def of_one_process(cls, fault: Fault = ValueError) -> Sealer:
        """With a key that nobody else has and that is kept nowhere."""
        return cls([Fernet.generate_key().decode()], fault)

    def seal(self, value: Any) -> str | None:
        """Anything that JSON has; None stays None."""
        if value is None:
            return None
        return f"{MARK}:{self._box.encrypt(json.dumps(value).encode()).decode()}"

    def open(self, stored: Any) -> Any:
        """Raises a `fault` if it was sealed with a key that is not here."""
        if not isinstance(stored, str) or not stored.startswith(f"{MARK}:"):
            return stored
        try:
            return json.loads(self._box.decrypt(stored.removeprefix(f"{MARK}:")))
        except InvalidToken:
            raise self._fault(
                f"a stored value was sealed with a key that is not in {FILE} of the data directory; restore that file"
            ) from None


def renew(directory: Path) -> None:
    """Put a new key before the others. What is stored must be sealed anew before `forget_old` is called."""
    path = directory / FILE
    _write(path, [Fernet.generate_key().decode(), *_keys(path)])


def forget_old(directory: Path) -> None:
    path = directory / FILE
    _write(path, _keys(path)[:1])


def _keys(path: Path, fault: Fault = ValueError) -> list[str]:
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_name(f".{path.name}.{os.getpid()}")
        _write(fresh, [Fernet.generate_key().decode()])
        try:
            os.link(fresh, path)  # of two processes that start at once, one makes the key
        except FileExistsError:
            pass
        finally:
            fresh.unlink()
    keys = path.read_text().split()
    try:
        for key in keys:
            Fernet(key)
    except ValueError:
        keys = []
    if not keys:
        raise fault(f"{path} holds no keys; restore it from a backup")
    return keys


def _write(path: Path, keys: Sequence[str]) -> None:
    fresh = path.with_name(f".{path.name}.new.{os.getpid()}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write("\n".join(keys) + "\n")
        file.flush()
        os.fsync(file.fileno())
    fresh.rename(path)
