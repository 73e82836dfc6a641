"""Reading from a wire by marks and sizes, within limits."""

from __future__ import annotations

from sandlot.engine.node.network.request_heads import Unreadable
from sandlot.engine.node.network.wires import Wire


class HeldWire:
    """A wire, some bytes of which were read already."""

    def __init__(self, wire: Wire, held: bytes) -> None:
        self._wire, self._held = wire, held
        self.write, self.end, self.abort = wire.write, wire.end, wire.abort

    async def read(self) -> bytes:
        held, self._held = self._held, b""
        return held or await self._wire.read()


class WireSource:
    """What was read too much is kept for the next read."""

    def __init__(self, wire: Wire, held: bytes = b"") -> None:
        self._wire, self._held = wire, bytearray(held)

    async def waits(self) -> bool:
        """Wait for something to read; False at the end."""
        if not self._held:
            self._held += await self._wire.read()
        return bool(self._held)

    async def until(self, mark: bytes, most: int) -> bytes:
        """Bytes up to a mark, and with it. Raises `Unreadable` and `EOFError`."""
        seen = 0
        while (at := self._held.find(mark, max(seen - len(mark), 0))) < 0:
            seen = len(self._held)
            if seen > most:
                raise Unreadable("more than there may be in one part")
            if not (part := await self._wire.read()):
                raise EOFError("closed in the middle")
            self._held += part
        if at > most:
            raise Unreadable("more than there may be in one part")
        return self._taken(at + len(mark))

    async def exactly(self, size: int) -> bytes:
        while len(self._held) < size:
            if not (part := await self._wire.read()):
                raise EOFError("closed in the middle")
            self._held += part
        return self._taken(size)

    async def some(self, most: int) -> bytes:
        """At least a byte. Raises `EOFError`."""
        if not await self.waits():
            raise EOFError("closed in the middle")
        return self._taken(min(most, len(self._held)))

    def rest(self) -> bytes:
        return self._taken(len(self._held))

    def _taken(self, size: int) -> bytes:
        part = bytes(self._held[:size])
        del self._held[:size]
        return part
