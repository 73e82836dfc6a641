"""Sends an open file as an HTTP answer: ranges, conditions, compression; and undoes the compression of uploads."""

from __future__ import annotations

import os
import time

from envd.http import HttpError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from io import FileIO

    from envd.http import Reply, Request

CHUNK = 256 * 1024
WHOLE = 4 << 20  # files up to here are read before the answer begins, which then keeps the length that it announces
_CONDITIONS = ("range", "if-modified-since", "if-none-match", "if-range")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_TYPES = {
    "css": "text/css; charset=utf-8", "csv": "text/csv; charset=utf-8", "gif": "image/gif",
    "htm": "text/html; charset=utf-8", "html": "text/html; charset=utf-8", "jpeg": "image/jpeg", "jpg": "image/jpeg",
    "js": "text/javascript; charset=utf-8", "json": "application/json", "md": "text/markdown; charset=utf-8",
    "mjs": "text/javascript; charset=utf-8", "mp4": "video/mp4", "pdf": "application/pdf", "png": "image/png",
    "svg": "image/svg+xml", "txt": "text/plain; charset=utf-8", "wasm": "application/wasm", "webp": "image/webp",
    "xml": "text/xml; charset=utf-8",
}  # fmt: skip


async def send(request: Request, reply: Reply, file: FileIO, name: str) -> None:
    encoding = choose_encoding(request)
    status = os.fstat(file.fileno())
    modified = _http_date(int(status.st_mtime))
    headers = [
        ("Content-Type", _TYPES.get(name.rpartition(".")[2].lower(), "application/octet-stream")),
        ("Content-Disposition", _disposition(name)),
        ("Vary", "Accept-Encoding"),
    ]
    if encoding == "gzip":
        await _send_compressed(reply, headers, file)
        return
    headers += [("Last-Modified", modified), ("Accept-Ranges", "bytes")]
    if status.st_size == 0:  # empty, or a file of the kernel's that does not say how long it is
        await _send_until_end(reply, headers, file)
        return
    since = request.headers.get("if-modified-since")
    if since is not None and "if-none-match" not in request.headers and _not_newer(since, modified):
        await reply.send(304, headers)
        return
    content = _read_whole(file) if status.st_size <= WHOLE else None
    size = status.st_size if content is None else len(content)
    span = None
    if request.headers.get("if-range", modified) == modified:
        span = _range(request.headers.get("range"), size)
    first, last = span or (0, size - 1)
    if span and first > last:
        await reply.send(416, [("Content-Range", f"bytes */{size}")])
        return
    if span:
        headers.append(("Content-Range", f"bytes {first}-{last}/{size}"))
    if content is None:
        await reply.send_file(206 if span else 200, headers, file, first, last - first + 1)
    else:
        await reply.send(206 if span else 200, headers, content[first : last + 1])


def _read_whole(file: FileIO) -> bytes | None:
    """What the file contains now, which may be less than it said or more; None if it has grown too large for that."""
    content = bytearray()
    while piece := os.pread(file.fileno(), WHOLE + 1 - len(content), len(content)):
        content += piece
    return bytes(content) if len(content) <= WHOLE else None


async def _send_compressed(reply: Reply, headers: list[tuple[str, str]], file: FileIO) -> None:
    import zlib

    reply.start(200, [*headers, ("Content-Encoding", "gzip")])
    stream = zlib.compressobj(1, zlib.DEFLATED, 31)
    while piece := file.read(CHUNK):
        await reply.write(stream.compress(piece))
    await reply.end(stream.flush())


async def _send_until_end(reply: Reply, headers: list[tuple[str, str]], file: FileIO) -> None:
    first = file.read(CHUNK)
    if not first:
        await reply.send(200, headers)
        return
    reply.start(200, headers)
    while first:
        await reply.write(first)
        first = file.read(CHUNK)
    await reply.end()


def choose_encoding(request: Request) -> str:
    """`gzip` if the client prefers it; a mere list of what a library can decode is no wish. Raises `HttpError` 406."""
    qualities: dict[str, float] = {}
    for item in request.headers.get("accept-encoding", "").split(","):
        name, *details = (part.strip().lower() for part in item.split(";"))
        quality = next((detail[2:] for detail in details if detail.startswith("q=")), "1")
        if name:
            qualities[name] = float(quality) if quality.replace(".", "", 1).isdigit() else 1.0
    rest = qualities.get("*")
    identity_refused = qualities.get("identity", rest if rest == 0 else 1.0) == 0
    if any(condition in request.headers for condition in _CONDITIONS):
        if identity_refused:
            raise HttpError(406, "identity encoding not acceptable for Range or conditional request")
        return "identity"
    gzip = qualities.get("gzip", (rest or 0.0) if identity_refused else 0.0)
    if identity_refused:
        if gzip == 0:
            raise HttpError(406, "error parsing Accept-Encoding: no acceptable encoding found, supported: [gzip]")
        return "gzip"
    others = [quality for name, quality in qualities.items() if name != "gzip"]
    return "gzip" if gzip > 0 and all(gzip > other for other in others) else "identity"


class Gunzip:
    """A reader that yields what a gzip-compressed reader contains, in pieces of bounded size."""

    def __init__(self, read: Callable[[], Awaitable[bytes]]) -> None:
        import zlib

        self._zlib = zlib
        self._read = read
        self._stream = zlib.decompressobj(31)
        self._input = b""

    async def read(self) -> bytes:
        while True:
            if not self._input:
                self._input = await self._read()
                if not self._input:
                    if not self._stream.eof:
                        raise HttpError(400, "error decompressing request body: the gzip data is cut short")
                    return b""
            if self._stream.eof:  # another member follows
                self._stream = self._zlib.decompressobj(31)
            try:
                piece = self._stream.decompress(self._input, CHUNK)
            except self._zlib.error as error:
                raise HttpError(400, f"error decompressing request body: {error}") from error
            self._input = self._stream.unconsumed_tail or self._stream.unused_data
            if piece:
                return piece


def _range(header: str | None, size: int) -> tuple[int, int] | None:
    """First and last byte of a single range; None to send everything; first > last if it lies outside."""
    if header is None or not header.startswith("bytes=") or "," in header:
        return None
    first, dash, last = (part.strip() for part in header[6:].partition("-"))
    if not dash or not (first or last) or not (first + last).isdecimal() or len(first + last) > 36:
        return 1, 0
    if not first:
        return (max(0, size - int(last)), size - 1) if int(last) else (1, 0)
    if int(first) >= size or (last and int(last) < int(first)):
        return 1, 0
    return int(first), min(int(last), size - 1) if last else size - 1


def _http_date(seconds: int) -> str:
    return time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(seconds))


def _not_newer(since: str, modified: str) -> bool:
    return since == modified or (_sortable(since) or "") >= (_sortable(modified) or "~")


def _sortable(date: str) -> str | None:
    parts = date.split(" ")
    if len(parts) != 6 or parts[2] not in _MONTHS:
        return None
    return f"{parts[3]}{_MONTHS.index(parts[2]):02d}{parts[1]}{parts[4]}"


def _disposition(name: str) -> str:
    if name.isascii() and name.isprintable():
        escaped = name.replace("\\", "\\\\").replace('"', '\\"')
        return f'inline; filename="{escaped}"'
    safe = "".join(chr(byte) if chr(byte).isalnum() and byte < 128 else f"%{byte:02X}" for byte in os.fsencode(name))
    return f"inline; filename*=utf-8''{safe}"
