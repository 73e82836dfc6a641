"""Programs kept by content: state written by one build of a runtime is read by the same build, whatever is installed since."""

from __future__ import annotations

import hashlib
import secrets
import shutil
from collections.abc import Collection
from pathlib import Path

from sandlot.engine.core.errors import StateUnusable, Unavailable
from sandlot.program import SANDLOT


class Programs:
    """Copies of one program, below a directory, each named by a digest of its content."""

    def __init__(self, directory: Path, name: str) -> None:
        self._directory, self._name = directory, name
        self._seen: dict[tuple[str, int, int], str] = {}

    def keep(self, program: str) -> tuple[str, Path]:
        """The digest of the program as it is installed now, and the kept copy to run."""
        found = shutil.which(program)
        if found is None:
            raise Unavailable(f"{program!r} is not installed on this host; `{SANDLOT} doctor` says how to get it")
        facts = Path(found).stat()
        seen = (found, facts.st_mtime_ns, facts.st_ino)
        digest = self._seen.get(seen)
        if digest is None or not self._path(digest).exists():
            digest = self._seen[seen] = self._copy(Path(found))
        return digest, self._path(digest)

    def path(self, digest: str) -> Path:
        """A kept copy. Raises `StateUnusable` if it is gone."""
        path = self._path(digest)
        if not path.exists():
            raise StateUnusable(
                f"the {self._name} that wrote this state is no longer kept on this host, and another one cannot read it"
            )
        return path

    def forget_all_but(self, needed: Collection[str]) -> None:
        """Give the disk back that copies take which nobody needs. The one that is installed now stays."""
        kept = {*needed, *self._seen.values()}
        for path in self._directory.iterdir() if self._directory.is_dir() else ():
            if path.name not in kept:
                shutil.rmtree(path, ignore_errors=True)

    def _copy(self, source: Path) -> str:
        content = source.read_bytes()
        digest = hashlib.sha256(content).hexdigest()[:16]
        target = self._path(digest)
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
            draft = target.with_name(f".{self._name}-{secrets.token_hex(4)}")
            draft.write_bytes(content)
            draft.chmod(0o755)
            draft.rename(target)
        return digest

    def _path(self, digest: str) -> Path:
        return self._directory / digest / self._name
