"""Files of browsers: what pages downloaded, as a zip, also after the end; what is uploaded for pages to take."""

from __future__ import annotations

import asyncio
import re
import zipfile
from collections.abc import AsyncIterable
from pathlib import Path, PurePosixPath

from sandlot.platform.browsers.boxes import BrowserBoxes
from sandlot.platform.browsers.interception import DOWNLOADS
from sandlot.platform.core.browsers import Browser, BrowserStatus
from sandlot.platform.core.errors import InvalidRequest, NotFound, TooLarge
from sandlot.platform.core.model import FileEntry
from sandlot.platform.core.ports import Box

UPLOADS = "/tmp/.uploads"
MAX_DOWNLOADS = 512 << 20  # bytes, of all files of a browser
MOST_FILES = 1000
_FILE_NAME = re.compile(r"[^\x00-\x1f/\\]{1,255}")
_UNFINISHED = ".crdownload"


class BrowserFiles:
    def __init__(self, *, boxes: BrowserBoxes, directory: Path) -> None:
        self._boxes, self._directory = boxes, directory

    async def downloads(self, browser: Browser) -> Path:
        """A zip file, which is replaced by the next call. Raises `NotFound` if nothing was downloaded."""
        path = self._path(browser)
        if browser.status is BrowserStatus.RUNNING:
            await self.keep(browser, await self._boxes.reach(browser))
        if not path.exists():
            raise NotFound(f"session {browser.id!r} has downloaded nothing")
        return path

    async def keep(self, browser: Browser, box: Box) -> None:
        """Copy what was downloaded to the host, packed. The sandbox says what there is: names and sizes are not trusted."""
        try:
            found = [one for one in await box.files.entries(DOWNLOADS) if _is_wanted(one)]
        except (NotFound, InvalidRequest):
            return
        if not found:
            return
        path = self._path(browser)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = path.with_suffix(".draft")
        try:
            with zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as packed:
                left = MAX_DOWNLOADS
                for one in found[:MOST_FILES]:
                    left = await _pack(packed, one, box, left)
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)

    async def upload(self, browser: Browser, name: str, content: AsyncIterable[bytes]) -> str:
        """Returns where pages find it. Raises `InvalidRequest`."""
        if not _FILE_NAME.fullmatch(name) or name in (".", ".."):
            raise InvalidRequest("the file's name is not valid: no slashes, 255 characters at most")
        path = f"{UPLOADS}/{name}"
        await (await self._boxes.reach(browser)).files.write(path, content)
        return path

    def _path(self, browser: Browser) -> Path:
        return self._directory / browser.id / "downloads.zip"


def _is_wanted(entry: FileEntry) -> bool:
    return (
        entry.type == "file" and _FILE_NAME.fullmatch(entry.name) is not None and not entry.name.endswith(_UNFINISHED)
    )


async def _pack(packed: zipfile.ZipFile, entry: FileEntry, box: Box, left: int) -> int:
    """Returns how many bytes may still come."""
    name = PurePosixPath(entry.name)
    at = int((entry.modified_at.timestamp() if entry.modified_at else 0) * 1000)
    with packed.open(f"{name.stem}-{max(at, 0):013d}{name.suffix}", "w", force_zip64=True) as file:
        async for piece in box.files.read(f"{DOWNLOADS}/{entry.name}"):
            left -= len(piece)
            if left < 0:
                raise TooLarge(f"the downloads are larger than the {MAX_DOWNLOADS >> 20} MiB that are kept")
            await asyncio.to_thread(file.write, piece)
    return left
