"""Recordings as films: pictures go into a sandbox of their own, an MP4 and an HLS playlist come out. Nothing is decoded on the host."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import tarfile
from collections.abc import AsyncIterable, AsyncIterator
from pathlib import Path

from sandlot.platform.browsers.attachments import Attachments
from sandlot.platform.browsers.boxes import HERE, BrowserBoxes, run_in
from sandlot.platform.browsers.recording import RecordedPage, frames, recorded_pages
from sandlot.platform.core.browsers import Browser
from sandlot.platform.core.errors import NotFound, PlatformError, TooLarge, Unavailable
from sandlot.platform.core.ports import Box

log = logging.getLogger(__name__)
AT_ONCE = 1
ENCODE_S = 900.0
MAX_FILM = 512 << 20
MAX_PLAYLIST = 1 << 20
LONGEST_FRAME_MS = 10 * 60 * 1000
PACKED, OUT = "/tmp/frames.tar", "/tmp/film"
KINDS = ("mp4", "m3u8", "ts")
_LINE = re.compile(r"#EXT[A-Z0-9:=,.\"@ -]*|film\.ts")


class Films:
    """Films of recorded pages, made when somebody asks for them."""

    def __init__(self, *, attachments: Attachments, boxes: BrowserBoxes) -> None:
        self._attachments, self._boxes = attachments, boxes
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._making: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._failed: dict[tuple[str, str], str] = {}

    def recorded(self, browser: Browser) -> list[RecordedPage]:
        return list(recorded_pages(self._place(browser)))

    def status(self, browser: Browser, page: str) -> str:
        key = (browser.id, page)
        if self.film(browser, page, "mp4").exists():
            return "COMPLETED"
        if key in self._making:
            return "PENDING"
        return "FAILED" if key in self._failed else "NOT_REQUESTED"

    def film(self, browser: Browser, page: str, kind: str) -> Path:
        return self._place(browser) / f"{page}.{kind}"

    def request(self, browser: Browser, page: RecordedPage) -> asyncio.Task[None] | None:
        """Have the film made, unless it is there or on its way."""
        key = (browser.id, page.id)
        if self.status(browser, page.id) == "COMPLETED":
            return None
        if key not in self._making:
            self._failed.pop(key, None)
            task = self._making[key] = asyncio.create_task(self._make(browser, page.id))
            task.add_done_callback(lambda _: self._making.pop(key, None))
        return self._making[key]

    async def made(self, browser: Browser, page_id: str) -> None:
        """Wait until the film is there. Raises `NotFound`, `Unavailable`."""
        page = next((one for one in self.recorded(browser) if one.id == page_id), None)
        if page is None:
            raise NotFound(f"page {page_id[:80]!r} of session {browser.id!r} was not recorded")
        task = self.request(browser, page)
        if task is not None:
            await asyncio.shield(task)
        if (problem := self._failed.get((browser.id, page_id))) is not None:
            raise Unavailable(f"the recording could not be made into a film: {problem}")

    def playlist(self, browser: Browser, page: str, segment_url: str) -> str:
        """The playlist with the address of its film. What the sandbox wrote is checked line by line."""
        lines = self.film(browser, page, "m3u8").read_text("utf-8", "replace").splitlines()
        if not lines or not all(_LINE.fullmatch(line) for line in lines):
            raise Unavailable("the recording's playlist is not valid")
        return "".join(f"{segment_url if line == 'film.ts' else line}\n" for line in lines)

    async def close(self) -> None:
        tasks = list(self._making.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _place(self, browser: Browser) -> Path:
        return self._attachments.place(browser.id) / "recording"

    async def _make(self, browser: Browser, page: str) -> None:
        try:
            async with (
                self._slots,
                asyncio.timeout(ENCODE_S),
                self._boxes.borrowed(f"film-{secrets.token_hex(8)}") as box,
            ):
                await box.files.write(PACKED, _packed(self._place(browser), page))
                await run_in(box, f"{HERE}/encode.sh", PACKED, OUT)
                for kind in reversed(KINDS):  # the MP4 last: it tells that all are there
                    most = MAX_PLAYLIST if kind == "m3u8" else MAX_FILM
                    await _fetch(box, f"{OUT}/film.{kind}", self.film(browser, page, kind), most)
        except (PlatformError, TimeoutError, OSError) as error:
            log.warning("the film of page %s of browser %s was not made: %s", page, browser.id, error)
            self._failed[browser.id, page] = str(error) or "it took too long"


async def _packed(directory: Path, page: str) -> AsyncIterator[bytes]:
    """A tar file: pictures by number, and a list of them with how long each is seen."""
    times: list[int] = []
    for number, (picture, at) in enumerate(frames(directory, page)):
        times.append(at)
        yield _member(f"{number:06d}.jpg", picture)
    lines = ["ffconcat version 1.0"]
    for number, at in enumerate(times):
        shown = min(max(times[number + 1] - at, 1), LONGEST_FRAME_MS) if number + 1 < len(times) else 1000
        lines += [f"file {number:06d}.jpg", f"duration {shown / 1000:.3f}"]
    lines.append(f"file {len(times) - 1:06d}.jpg")
    yield _member("list.txt", "\n".join(lines).encode() + b"\n")
    yield b"\0" * 1024


def _member(name: str, content: bytes) -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(content), 0o644
    padding = b"\0" * (-len(content) % 512)
    return info.tobuf(tarfile.USTAR_FORMAT) + content + padding


async def _fetch(box: Box, path: str, target: Path, most: int) -> None:
    draft = target.with_name(f".{target.name}.draft")
    try:
        await _copy(box.files.read(path), draft, most)
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)


async def _copy(content: AsyncIterable[bytes], target: Path, most: int) -> None:
    with target.open("wb") as file:
        async for piece in content:
            if file.tell() + len(piece) > most:
                raise TooLarge(f"the film is larger than the {most >> 20} MiB that are kept")
            await asyncio.to_thread(file.write, piece)
