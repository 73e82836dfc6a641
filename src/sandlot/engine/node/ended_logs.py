"""Logs of sandboxes that have ended: one bounded file each, kept for a while."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

from sandlot.engine.core.model import LogEntry

FILE_LIMIT = 2 << 20


class EndedLogs:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)

    def keep(self, sandbox_id: str, entries: Sequence[LogEntry]) -> None:
        """Write the newest entries that fit."""
        lines: list[str] = []
        size = 0
        for entry in reversed(entries):
            line = json.dumps([entry.at.isoformat(), entry.level, entry.message, dict(entry.fields)])
            size += len(line) + 1
            if size > FILE_LIMIT:
                break
            lines.append(line)
        self._path(sandbox_id).write_text("\n".join(reversed(lines)))

    def read(self, sandbox_id: str) -> Sequence[LogEntry]:
        try:
            lines = self._path(sandbox_id).read_text().splitlines()
        except OSError:
            return ()
        return tuple(
            LogEntry(at=datetime.fromisoformat(at), level=level, message=message, fields=fields)
            for at, level, message, fields in map(json.loads, lines)
        )

    def purge(self, older_than: timedelta) -> None:
        oldest = time.time() - older_than.total_seconds()
        for path in self._directory.glob("*.jsonl"):
            if path.stat().st_mtime < oldest:
                path.unlink(missing_ok=True)

    def _path(self, sandbox_id: str) -> Path:
        return self._directory / f"{sandbox_id}.jsonl"
