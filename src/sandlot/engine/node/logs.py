"""Logs of sandboxes: asked of the guest while it runs, kept in a bounded file for a while after it ended."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sandlot.engine.core.errors import GuestUnresponsive
from sandlot.engine.core.model import LogEntry
from sandlot.engine.node.envd.client import EnvdClient
from sandlot.engine.node.machine_table import LiveMachine
from sandlot.engine.node.machines import MachineFactory

log = logging.getLogger(__name__)

FILE_LIMIT = 2 << 20
AT_STOP_S = 0.5


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
        path = self._path(sandbox_id)
        path.touch(mode=0o600)
        path.write_text("\n".join(reversed(lines)))

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


class SandboxLogs:
    """What guests logged, without the time before their machine belonged to a sandbox."""

    def __init__(self, *, machines: MachineFactory, envd: EnvdClient, ended: EndedLogs, keep: timedelta) -> None:
        self._machines, self._envd, self._ended, self._keep = machines, envd, ended, keep

    async def read(self, sandbox_id: str) -> Sequence[LogEntry]:
        """Untrusted text, bounded in size. The machine must not be frozen."""
        live = self._machines.table.get(sandbox_id)
        if live is not None:
            return await self._of(live)
        return await asyncio.to_thread(self._ended.read, sandbox_id)

    async def save(self, sandbox_id: str) -> None:
        """Keep what the daemon logged before the machine goes; a daemon that is slow to answer loses its log."""
        live = self._machines.table.get(sandbox_id)
        if live is None or live.has_ended:
            return
        try:
            entries = await asyncio.wait_for(self._of(live), AT_STOP_S)
            if entries:
                await asyncio.to_thread(self._ended.keep, sandbox_id, entries)
        except (TimeoutError, GuestUnresponsive):
            return
        except Exception:  # whatever the guest says, or the disk: a machine that is to end, ends
            log.exception("the log of sandbox %s could not be kept", sandbox_id)

    async def purge(self) -> None:
        await asyncio.to_thread(self._ended.purge, self._keep)

    async def _of(self, live: LiveMachine) -> Sequence[LogEntry]:
        """What the daemon says, and last what the host knows better: which limits the guest has hit."""
        entries = await self._envd.logs(live.machine.address, live.token)
        if live.prepared is not None:
            first, last = live.prepared
            entries = [entry for entry in entries if not first <= entry.at <= last]
        now = datetime.now(UTC)
        hit = await self._machines.limits_hit(live.sandbox_id)
        return [*entries, *(LogEntry(at=now, message=each, level="error") for each in hit)]
