"""Recordings of browsers: pictures of their pages as they came, in one file for each page. They are never decoded on the host."""

from __future__ import annotations

import base64
import binascii
import json
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

FRAME_S = 0.2  # the least time between two pictures of a page
QUALITY = 50
MAX_FRAME = 2 << 20
MAX_BYTES = 256 << 20  # of all pages of a browser
MOST_RECORDED = 50
JPEG = b"\xff\xd8\xff"
_PAGE = re.compile(r"[0-9A-Za-z-]{1,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedPage:
    id: str
    started_ms: int
    ended_ms: int
    frames: int


class Recording:
    """Written while the browser runs: `<page>.frames` holds pictures, `<page>.index` their places and times."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._files: dict[str, tuple[IO[bytes], IO[bytes]]] = {}
        self._size = sum(path.stat().st_size for path in directory.glob("*.frames"))

    def add(self, page: str, encoded: str) -> None:
        """A picture in base64, as the browser sent it. What is none, or too much, is left out."""
        if not _PAGE.fullmatch(page) or len(encoded) > MAX_FRAME * 4 // 3 or self._size > MAX_BYTES:
            return
        try:
            picture = base64.b64decode(encoded, validate=True)
        except (binascii.Error, ValueError):
            return
        if not picture.startswith(JPEG):
            return
        files = self._opened(page)
        if files is not None:
            frames, index = files
            place = frames.tell()
            frames.write(picture)
            frames.flush()
            index.write(json.dumps([place, len(picture), int(time.time() * 1000)]).encode() + b"\n")
            index.flush()
            self._size += len(picture)

    def close(self) -> None:
        for pair in self._files.values():
            for file in pair:
                file.close()
        self._files.clear()

    def _opened(self, page: str) -> tuple[IO[bytes], IO[bytes]] | None:
        if page not in self._files:
            if len(self._files) >= MOST_RECORDED:
                return None
            self._files[page] = (
                (self._directory / f"{page}.frames").open("ab"),
                (self._directory / f"{page}.index").open("ab"),
            )
        return self._files[page]


def recorded_pages(directory: Path) -> Sequence[RecordedPage]:
    """In the order in which they were opened."""
    found = []
    for path in directory.glob("*.index") if directory.is_dir() else ():
        times = [at for _, _, at in _index(path)]
        if times:
            found.append(RecordedPage(id=path.stem, started_ms=times[0], ended_ms=times[-1], frames=len(times)))
    return sorted(found, key=lambda page: page.started_ms)


def frames(directory: Path, page: str) -> Iterator[tuple[bytes, int]]:
    """The pictures of a page, each with the time it was taken at in milliseconds."""
    with (directory / f"{page}.frames").open("rb") as file:
        for place, size, at in _index(directory / f"{page}.index"):
            file.seek(place)
            yield file.read(size), at


def _index(path: Path) -> Iterator[tuple[int, int, int]]:
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                place, size, at = json.loads(line)
                yield place, size, at
