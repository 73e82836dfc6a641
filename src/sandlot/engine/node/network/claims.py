"""Claims on disk: which sandbox holds which slot, one file per slot, so that a restart can find out by looking."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path


class Claims:
    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def open(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        for part in self._directory.glob(".*"):
            part.unlink()

    def read(self) -> Mapping[int, str]:
        """Sandbox ids by slot index."""
        found = {}
        if self._directory.is_dir():
            for path in self._directory.iterdir():
                if path.name.isdigit():
                    with contextlib.suppress(FileNotFoundError):
                        found[int(path.name)] = path.read_text().strip()
        return found

    def add(self, index: int, machine_id: str) -> bool:
        """Claim a slot; False if it is taken. The claim appears with its content or not at all."""
        part = self._directory / f".{index}.{os.getpid()}"
        part.write_text(machine_id + "\n")
        try:
            os.link(part, self._directory / str(index))
        except FileExistsError:
            return False
        finally:
            part.unlink()
        return True

    def drop(self, index: int) -> None:
        (self._directory / str(index)).unlink(missing_ok=True)
