"""Reads multipart/form-data as it arrives: part by part, piece by piece, never a whole file in memory."""

from __future__ import annotations

from envd.http import HttpError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

MAX_PART_HEAD = 16 * 1024
_SPECIAL = frozenset(b'()<>@,;:\\"/[]?=')


class Multipart:
    """A cursor over the parts of one body: `next_part`, then `read` until it is empty, and again."""

    def __init__(self, read: Callable[[], Awaitable[bytes]], boundary: bytes) -> None:
        self._read = read
        self._delimiter = b"\r\n--" + boundary
        self._buffer = bytearray(b"\r\n")  # so that the first delimiter looks like all others
        self._finished = False

    async def next_part(self) -> dict[str, str] | None:
        """The parameters of the next part's Content-Disposition; None after the last part."""
        while await self.read():
            pass
        if self._finished:
            return None
        del self._buffer[: len(self._delimiter)]
        while len(self._buffer) < 2:
            await self._more()
        if self._buffer.startswith(b"--"):
            self._finished = True
            return None
        while (at := self._buffer.find(b"\r\n\r\n")) < 0:
            if len(self._buffer) > MAX_PART_HEAD:
                raise HttpError(400, "error reading form: the head of a part is too long")
            await self._more()
        head = bytes(self._buffer[:at])
        del self._buffer[: at + 4]
        return _disposition(head)

    async def read(self) -> bytes:
        """The next piece of the current part; empty at its end."""
        if self._finished:
            return b""
        while True:
            at = self._buffer.find(self._delimiter)
            keep = len(self._delimiter) - 1
            ready = at if at >= 0 else len(self._buffer) - keep
            if ready > 0:
                piece = bytes(memoryview(self._buffer)[:ready])
                del self._buffer[:ready]
                return piece
            if at == 0:
                return b""
            await self._more()

    async def _more(self) -> None:
        piece = await self._read()
        if not piece:
            raise HttpError(400, "error reading form: the body ends before its last boundary")
        self._buffer += piece


def boundary_of(content_type: str) -> bytes:
    """Raises `HttpError` if a multipart content type names no usable boundary."""
    boundary = parameters(content_type.encode("latin-1")).get("boundary", "")
    if not boundary or len(boundary) > 200:
        raise HttpError(400, "error parsing multipart form: no multipart boundary in the content type")
    return boundary.encode("utf-8", "surrogateescape")


def _disposition(head: bytes) -> dict[str, str]:
    for line in head.lstrip(b"\r\n").split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-disposition":
            return parameters(value)
    return {}


def parameters(value: bytes) -> dict[str, str]:
    """The `; name=value` pairs of a header, quoted or not; `name*=utf-8''...` is decoded and wins."""
    found: dict[str, bytes] = {}
    at = value.find(b";")
    while 0 <= at < len(value):
        equals = value.find(b"=", at)
        if equals < 0:
            break
        name = value[at + 1 : equals].strip().lower().decode("latin-1")
        start = equals + 1
        if value[start : start + 1] == b'"':
            text, end = _quoted(value, start + 1)
        else:
            end = value.find(b";", start)
            end = len(value) if end < 0 else end
            text = value[start:end].strip()
        found.setdefault(name, text)
        at = value.find(b";", end)
    return {name.rstrip("*"): _decoded(name, found) for name in found}


def _quoted(value: bytes, at: int) -> tuple[bytes, int]:
    out = bytearray()
    while at < len(value) and value[at] != 0x22:
        if value[at] == 0x5C and at + 1 < len(value) and value[at + 1] in _SPECIAL:
            at += 1
        out.append(value[at])
        at += 1
    return bytes(out), at + 1


def _decoded(name: str, found: dict[str, bytes]) -> str:
    extended = found.get(name.rstrip("*") + "*", b"")
    if extended.lower().startswith(b"utf-8'") and extended.count(b"'") >= 2:
        from envd.http import unquote

        return unquote(extended.split(b"'", 2)[2].decode("latin-1"))
    return found[name].decode("utf-8", "surrogateescape")
