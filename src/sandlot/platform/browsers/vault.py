"""Files that are not kept in clear: profiles and extensions, sealed piece by piece with a key of their own that is in their row."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import struct
from collections.abc import AsyncIterable, AsyncIterator
from pathlib import Path
from typing import IO

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from sandlot.platform.core.errors import TooLarge, Unavailable

PIECE = 1 << 20
TAG = 16
LAST, MORE = b"last", b"more"
_NAME = re.compile(r"[0-9a-f]{32}")


class Vault:
    """A directory of sealed files. What a file is called and the key to it are made when it is written."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    async def put(self, content: AsyncIterable[bytes], most: int, what: str) -> tuple[str, str]:
        """Seal a content; returns the file's name and its key. Raises `TooLarge`."""
        name, key = secrets.token_hex(16), AESGCM.generate_key(256)
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = self._directory / f".{name}"
        try:
            with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                await _seal(content, file, AESGCM(key), most, what)
            draft.rename(self._directory / name)
        finally:
            draft.unlink(missing_ok=True)
        return name, key.hex()

    async def get(self, name: str, key: str) -> AsyncIterator[bytes]:
        """The content in pieces. Raises `Unavailable` if the file is gone or is not what was written."""
        box, number = AESGCM(bytes.fromhex(key)), 0
        try:
            with self._path(name).open("rb") as file:
                piece = await asyncio.to_thread(file.read, PIECE + TAG)
                while piece:
                    after = await asyncio.to_thread(file.read, PIECE + TAG)
                    yield await asyncio.to_thread(box.decrypt, _nonce(number), piece, MORE if after else LAST)
                    piece, number = after, number + 1
        except (OSError, InvalidTag) as error:
            raise Unavailable(
                f"a kept file cannot be read ({type(error).__name__}); restore the data directory"
            ) from error

    def drop(self, name: str) -> None:
        """Nothing happens if there is none."""
        self._path(name).unlink(missing_ok=True)

    def names(self) -> set[str]:
        """What is kept."""
        if not self._directory.is_dir():
            return set()
        return {path.name for path in self._directory.iterdir() if _NAME.fullmatch(path.name)}

    def _path(self, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise Unavailable("a kept file has no valid name")
        return self._directory / name


async def _seal(content: AsyncIterable[bytes], file: IO[bytes], box: AESGCM, most: int, what: str) -> None:
    held, size, number = bytearray(), 0, 0
    async for piece in content:
        size += len(piece)
        if size > most:
            raise TooLarge(f"{what} is larger than the {most >> 20} MiB that are kept")
        held += piece
        while len(held) > PIECE:  # never all of it: the last piece is marked as such
            await asyncio.to_thread(file.write, box.encrypt(_nonce(number), bytes(held[:PIECE]), MORE))
            del held[:PIECE]
            number += 1
    await asyncio.to_thread(file.write, box.encrypt(_nonce(number), bytes(held), LAST))
    file.flush()
    os.fsync(file.fileno())


def _nonce(number: int) -> bytes:
    """Each key seals one file, so the number of the piece is used once."""
    return struct.pack(">4xQ", number)
