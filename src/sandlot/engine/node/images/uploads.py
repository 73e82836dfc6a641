"""Archives that callers upload before a build, kept on disk by team and by the caller's own hash."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import secrets
import shutil
import time
from collections.abc import AsyncIterator
from pathlib import Path

from sandlot import tarfiles
from sandlot.engine.core.errors import InvalidRequest, NoCapacity, NotFound

KEEP_S = 7 * 86400  # an archive that no build used in a week is uploaded again when it is needed
KEEP_BYTES = 20 << 30  # beyond this, the least recently used are deleted first
IN_USE_S = 2 * 3600  # a caller was answered that it exists, and may be about to build with it
MOST_READ = 64 << 20  # of an unpacked archive, for its digest
FREE_BYTES = 1 << 30  # what an upload must leave on the disk
_HASH = re.compile(r"[0-9a-f]{64}")
_TEAM = re.compile(r"[A-Za-z0-9_-]{1,64}")


class DiskUploads:
    """Each archive has its real digest beside it: callers choose their hashes, and may be wrong or lie.

    It is of what the archive holds, where that is found out quickly: SDKs pack the time into every archive.
    """

    def __init__(self, directory: Path, most_bytes: int) -> None:
        self._directory, self._most_bytes = directory, most_bytes

    def has(self, team_id: str, files_hash: str) -> bool:
        try:
            self.digest(team_id, files_hash)
        except NotFound:
            return False
        return True

    def path(self, team_id: str, files_hash: str) -> Path:
        if not _HASH.fullmatch(files_hash) or not _TEAM.fullmatch(team_id):
            raise InvalidRequest("filesHash must be 64 hex digits, in lower case")
        return self._directory / team_id / files_hash

    def digest(self, team_id: str, files_hash: str) -> str:
        try:
            os.utime(self.path(team_id, files_hash))  # counts as used
            return self._digest_file(team_id, files_hash).read_text()
        except OSError as error:
            raise NotFound(
                f"the files {files_hash[:12]}… were not uploaded; upload them, then start the build"
            ) from error

    async def receive(self, team_id: str, files_hash: str, chunks: AsyncIterator[bytes]) -> None:
        path = self.path(team_id, files_hash)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = path.with_name(f".{files_hash}-{secrets.token_hex(4)}")
        sha, size = hashlib.sha256(), 0
        try:
            with draft.open("xb") as file:
                async for chunk in chunks:
                    size += len(chunk)
                    self._check_size(size)
                    sha.update(chunk)
                    await asyncio.to_thread(file.write, chunk)
            self._digest_file(team_id, files_hash).unlink(missing_ok=True)
            draft.rename(path)
            content = await asyncio.to_thread(tarfiles.content_digest, path, most_bytes=MOST_READ)
            self._digest_file(team_id, files_hash).write_text(content or sha.hexdigest())
        finally:
            draft.unlink(missing_ok=True)

    def _check_size(self, size: int) -> None:
        if size > self._most_bytes:
            raise InvalidRequest(
                f"the files are larger than the {self._most_bytes >> 20} MiB this server takes for one COPY "
                "(SANDLOT_MAX_UPLOAD_MB); copy less, or leave files out with a .dockerignore"
            )
        if size % (16 << 20) < (1 << 20) and shutil.disk_usage(self._directory).free < FREE_BYTES:
            raise NoCapacity("the disk of this server is nearly full; free some of it, then upload again")

    def purge(self, *, keep_s: float = KEEP_S, keep_bytes: int = KEEP_BYTES) -> int:
        """Delete what no build used for long, what exceeds the limit, and unfinished uploads; how many."""
        now, gone = time.time(), 0
        paths = [path for path in self._directory.glob("*/*") if not path.name.endswith(".digest")]
        found = [(path, path.stat()) for path in paths if path.exists()]
        total = sum(facts.st_size for _, facts in found)
        for path, facts in sorted(found, key=lambda each: each[1].st_mtime):
            age = now - facts.st_mtime
            if age < IN_USE_S or (age < keep_s and total <= keep_bytes and _HASH.fullmatch(path.name)):
                continue
            path.with_name(path.name + ".digest").unlink(missing_ok=True)
            path.unlink(missing_ok=True)
            total -= facts.st_size
            gone += 1
        return gone

    def _digest_file(self, team_id: str, files_hash: str) -> Path:
        path = self.path(team_id, files_hash)
        return path.with_name(path.name + ".digest")
