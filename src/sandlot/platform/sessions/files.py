"""Files of sandboxes: read and written whole within a limit, or streamed."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator

from sandlot.platform.core.errors import TooLarge
from sandlot.platform.core.events import SandboxEventType
from sandlot.platform.sessions.service import Sessions, SessionTarget
from sandlot.platform.sessions.state import SessionState

MAX_READ = 16 << 20


class Files:
    def __init__(self, *, sessions: Sessions, state: SessionState) -> None:
        self._sessions, self._state = sessions, state

    async def write(self, target: SessionTarget, path: str, content: bytes | AsyncIterable[bytes]) -> int:
        """Returns how many bytes were written."""
        written = 0

        async def counted(pieces: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
            nonlocal written
            async for piece in pieces:
                written += len(piece)
                yield piece

        async with self._sessions.using(target) as handle:
            if isinstance(content, bytes):
                written = len(content)
                await handle.box.files.write(path, content)
            else:
                await handle.box.files.write(path, counted(content))
            await self._state.log(handle.session, SandboxEventType.FILE_CHANGED, path=path, size=written)
        return written

    async def read(self, target: SessionTarget, path: str) -> bytes:
        """Raises `TooLarge` by what is read, not by the size that the sandbox claims."""
        async with self._sessions.using(target) as handle:
            content = bytearray()
            async for piece in handle.box.files.read(path):
                content += piece
                if len(content) > MAX_READ:
                    raise TooLarge(
                        f"{path!r} is larger than {MAX_READ >> 20} MiB; fetch it with /sandboxes/download-file"
                    )
            return bytes(content)

    async def stream(self, target: SessionTarget, path: str) -> AsyncGenerator[bytes]:
        """Stream it. The first piece is empty and comes when the file is open, so errors can still be answered before it."""
        async with self._sessions.using(target) as handle:
            await handle.box.files.size(path)
            yield b""
            async for piece in handle.box.files.read(path):
                yield piece
