"""bX packs of repositories that clones begin with. Made once for each state of a branch, put into sandboxes with their index as they are."""

from __future__ import annotations

import asyncio
import hashlib
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from sandlot.platform.core.forges import Repository
from sandlot.platform.git.commands import TRANSFER_S, Git
from sandlot.platform.git.mirrors import Mirrors

SMALL = 8 << 20  # bytes of a base pack that is made anew whenever its branch moves
MAX_BYTES = 1 << 30  # of a repository, beyond which there is none
MAX_BEHIND = 500  # commits that are fetched on top of an older one
_NAME = re.compile(r"([0-9a-f]{40})-([0-9a-f]{40,64})\.pack")


@dataclass(frozen=True, slots=True, kw_only=True)
class BasePack:
    """All that belongs to one commit, as git keeps it."""

    sha: str
    name: str  # of the pack, as git calls it
    pack: Path
    index: Path
    size: int  # of the pack


class BasePacks:
    """They are in the mirror's own directory, and go with it."""

    def __init__(self, git: Git, mirrors: Mirrors) -> None:
        self._git, self._mirrors = git, mirrors
        self._locks: dict[Path, asyncio.Lock] = {}

    async def get(self, repository: Repository, base: str, sha: str) -> BasePack | None:
        """At `sha`, or a little behind it. None if the repository is too large for one."""
        folder = self._mirrors.path(repository) / "base-packs" / hashlib.sha256(base.encode()).hexdigest()[:16]
        async with self._locks.setdefault(folder, asyncio.Lock()):
            found = _found(folder)
            for pack in found:
                if pack.sha == sha:
                    return pack
            for pack in found:
                if pack.size > SMALL and await self._is_near(repository, pack.sha, sha):
                    return pack
            return await self._make(repository, folder, sha)

    async def _is_near(self, repository: Repository, old: str, new: str) -> bool:
        at, span = self._mirrors.path(repository), f"{old}..{new}"
        counted = await self._git.run("rev-list", "--count", f"--max-count={MAX_BEHIND + 1}", span, at=at, check=False)
        return counted.status == 0 and int(counted.text.strip() or MAX_BEHIND + 1) <= MAX_BEHIND

    async def _make(self, repository: Repository, folder: Path, sha: str) -> BasePack | None:
        at = self._mirrors.path(repository)
        if sum(pack.stat().st_size for pack in (at / "objects" / "pack").glob("*.pack")) > MAX_BYTES:
            return None
        making = folder.with_name(f".{folder.name}.new")
        await asyncio.to_thread(shutil.rmtree, making, True)
        making.mkdir(parents=True, mode=0o700)
        made = await self._git.run(
            *("pack-objects", "--quiet", "--revs", str(making / "pack")),
            at=at,
            doing=f"pack repository {repository.name!r}",
            input=f"{sha}\n".encode(),
            timeout_s=TRANSFER_S,
        )
        name, old = made.text.strip(), _found(folder)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for suffix in ("idx", "pack"):  # a base pack is there when its pack is
            (making / f"pack-{name}.{suffix}").rename(folder / f"{sha}-{name}.{suffix}")
        for pack in old:
            pack.pack.unlink(missing_ok=True)
            pack.index.unlink(missing_ok=True)
        await asyncio.to_thread(shutil.rmtree, making, True)
        return next((pack for pack in _found(folder) if pack.sha == sha), None)


def _found(folder: Path) -> list[BasePack]:
    found = []
    for pack in sorted(folder.glob("*.pack")):
        if (match := _NAME.fullmatch(pack.name)) is not None and (index := pack.with_suffix(".idx")).exists():
            found.append(BasePack(sha=match[1], name=match[2], pack=pack, index=index, size=pack.stat().st_size))
    return found
