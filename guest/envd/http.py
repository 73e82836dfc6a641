"""A small HTTP/1.1 server: parses requests strictly, streams bodies both ways, and never buffers more than a bounded amount."""

from __future__ import annotations

import asyncio

from envd.codecs import dump_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from typing import BinaryIO

    Handler = Callable[["Request", "Reply"], Awaitable[None]]
    Headers = Iterable[tuple[str, str]]

MAX_HEAD = 64 * 1024
MAX_BUFFER = 512 * 1024  # stop reading from a client that sends faster than its request is handled
MAX_DISCARD = 1024 * 1024  # an unread body up to this size is skipped to keep the connection
IDLE_SECONDS = 640.0
HEAD_SECONDS = 30.0
LINGER_SECONDS = 2.0
SMALL = 4096  # pieces up to this size wait a moment for company

REASONS = {
    100: "Continue", 200: "OK", 201: "Created", 204: "No Content", 206: "Partial Content", 304: "Not Modified",
    400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed",
    406: "Not Acceptable", 408: "Request Timeout", 409: "Conflict", 411: "Length Required", 412: "Precondition Failed",
    413: "Content Too Large", 415: "Unsupported Media Type", 416: "Range Not Satisfiable", 417: "Expectation Failed",
    429: "Too Many Requests", 431: "Request Header Fields Too Large", 499: "Client Closed Request",
    500: "Internal Server Error", 501: "Not Implemented", 503: "Service Unavailable", 504: "Gateway Timeout",
    505: "HTTP Version Not Supported", 507: "Insufficient Storage",
}  # fmt: skip

_TOKEN = frozenset("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_COMMON = "Access-Control-Allow-Origin: *\r\nVary: Origin\r\n"


class HttpError(Exception):
    """An answer with an error status and a JSON body that says why."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class Disconnected(Exception):
    """The client went away in the middle of its request."""


class Connection(asyncio.Protocol):
    """One client connection: bytes in with back-pressure, bytes out with back-pressure."""

    def __init__(self, handler: Handler, report: Callable[[str, BaseException], None]) -> None:
        self._handler = handler
        self._report = report
        self._buffer = bytearray()
        self._eof = False
        self._lost = False
        self._reading_paused = False
        self._writing_paused = False
        self._readable: asyncio.Future[None] | None = None
        self._writable: asyncio.Future[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None
        self.ends_with_client = False  # a stream in progress: when the client stops sending, it has left

    # asyncio calls these

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._task = self._loop.create_task(self._serve())

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if len(self._buffer) > MAX_BUFFER and not self._reading_paused:
            self._reading_paused = True
            self.transport.pause_reading()
        self._wake_reader()

    def eof_received(self) -> bool:
        self._eof = True
        self._wake_reader()
        if self.ends_with_client and self._task is not None:
            self._task.cancel()
        return True

    def pause_writing(self) -> None:
        self._writing_paused = True

    def resume_writing(self) -> None:
        self._writing_paused = False
        self._wake_writer()

    def connection_lost(self, error: Exception | None) -> None:
        self._eof = self._lost = True
        self._wake_reader()
        self._wake_writer()
        if self._task is not None:
            self._task.cancel()

    def _wake_reader(self) -> None:
        if self._readable is not None and not self._readable.done():
            self._readable.set_result(None)

    def _wake_writer(self) -> None:
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)

    # reading

    async def more(self) -> None:
        """Wait for more bytes than there are now. Raises `Disconnected` when none will come."""
        if self._eof:
            raise Disconnected
        if self._reading_paused and len(self._buffer) < MAX_BUFFER:
            self._reading_paused = False
            self.transport.resume_reading()
        self._readable = self._loop.create_future()
        try:
            await self._readable
        finally:
            self._readable = None

    def take(self, count: int) -> bytes:
        data = bytes(memoryview(self._buffer)[:count])
        del self._buffer[:count]
        if self._reading_paused and len(self._buffer) < MAX_BUFFER // 2:
            self._reading_paused = False
            self.transport.resume_reading()
        return data

    def buffered(self) -> int:
        return len(self._buffer)

    async def take_until(self, end: bytes, limit: int, status: int = 400) -> bytes:
        """Bytes up to and without `end`."""
        searched = 0
        while (at := self._buffer.find(end, searched)) < 0:
            if len(self._buffer) > limit:
                raise HttpError(status, "the request head, or a line in its body, is too long")
            searched = max(0, len(self._buffer) - len(end))
            await self.more()
        if at > limit:
            raise HttpError(status, "the request head, or a line in its body, is too long")
        return self.take(at + len(end))[:at]

    # writing

    async def send(self, data: bytes) -> None:
        """Write, and wait while the client is behind. Raises `Disconnected` once it is gone."""
        self.write(data)
        await self.writable()

    def write(self, data: bytes) -> None:
        if data and not self._lost:
            self.transport.write(data)

    async def writable(self) -> None:
        """Wait while the client is behind. Raises `Disconnected` once it is gone."""
        if self._writing_paused and not self._lost:
            self._writable = self._loop.create_future()
            try:
                await self._writable
            finally:
                self._writable = None
        if self._lost:
            raise Disconnected

    def call_soon(self, callback: Callable[[], None]) -> asyncio.Handle:
        return self._loop.call_soon(callback)

    async def send_file(self, file: BinaryIO, offset: int, count: int) -> None:
        try:
            sent = await self._loop.sendfile(self.transport, file, offset, count, fallback=True)
        except (ConnectionError, RuntimeError) as error:
            raise Disconnected from error
        if sent < count:
            raise Disconnected  # the file shrank: the promised length cannot be kept

    # the life of a connection

    async def _serve(self) -> None:
        try:
            while await self._serve_one():
                pass
            await self._linger()
            self.transport.close()
        except Disconnected:
            self.transport.abort()
        except asyncio.CancelledError:
            self.transport.abort()
        except Exception as error:  # the last line of defence: one broken connection never ends the daemon
            self._report("a connection failed", error)
            self.transport.abort()

    async def _linger(self) -> None:
        """Let a client that is still sending read the answer: closing at once would tear it from its hands."""
        if self._eof:
            return
        self.transport.write_eof()
        try:
            async with asyncio.timeout(LINGER_SECONDS):
                while True:
                    self._buffer.clear()
                    await self.more()
        except (TimeoutError, Disconnected):
            pass

    async def _serve_one(self) -> bool:
        """Serve one request; true if the connection can carry another one."""
        reply = Reply(self)
        try:
            request = await self._read_request()
        except HttpError as error:
            reply.keep_alive = False
            await reply.fail(error)
            return False
        if request is None:
            return False
        reply.keep_alive = request.keep_alive
        try:
            await self._handler(request, reply)
        except (HttpError, Disconnected) as error:
            if reply.started or isinstance(error, Disconnected):
                raise Disconnected from error
            await reply.fail(error)
        if not reply.ended:
            raise Disconnected
        return reply.keep_alive and await request.body.discard()

    async def _read_request(self) -> Request | None:
        if not self._buffer:
            handle = self._loop.call_later(IDLE_SECONDS, self.transport.close)
            try:
                await self.more()
            except Disconnected:
                return None
            finally:
                handle.cancel()
        try:
            async with asyncio.timeout(HEAD_SECONDS):
                head = await self.take_until(b"\r\n\r\n", MAX_HEAD, 431)
        except TimeoutError as error:
            raise HttpError(408, "the request head did not arrive in time") from error
        return parse_request(head, self)


class Body:
    """The body of one request, read as it arrives."""

    def __init__(self, connection: Connection, length: int | None, expects_continue: bool) -> None:
        self._connection = connection
        self._chunked = length is None
        self._left = length or 0
        self._done = length == 0
        self._expects_continue = expects_continue

    async def read(self, limit: int = 256 * 1024) -> bytes:
        """The next piece, at most `limit` bytes; empty at the end. Raises `Disconnected` or `HttpError`."""
        if self._done:
            return b""
        if self._expects_continue:
            self._expects_continue = False
            await self._connection.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        if self._chunked and self._left == 0:
            await self._next_chunk()
            if self._done:
                return b""
        if not self._connection.buffered():
            await self._connection.more()
        data = self._connection.take(min(self._left, limit, self._connection.buffered()))
        self._left -= len(data)
        if self._left == 0:
            if self._chunked:
                if await self._connection.take_until(b"\r\n", 0):
                    raise HttpError(400, "a chunk of the body is longer than it said")
            else:
                self._done = True
        return data

    async def read_exactly(self, count: int, kept: bytearray) -> bytes | None:
        """`count` bytes, using `kept` for what was read beyond; None at a clean end, `HttpError` at a torn one."""
        while len(kept) < count:
            piece = await self.read()
            if not piece:
                if kept:
                    raise HttpError(400, "the body ends in the middle of a message")
                return None
            kept += piece
        data = bytes(kept[:count])
        del kept[:count]
        return data

    async def read_all(self, limit: int) -> bytes:
        if not self._chunked and self._left > limit:
            raise HttpError(413, f"the body is larger than {limit} bytes")
        data = bytearray()
        while piece := await self.read():
            data += piece
            if len(data) > limit:
                raise HttpError(413, f"the body is larger than {limit} bytes")
        return bytes(data)

    async def discard(self) -> bool:
        """Skip what is left, so that the next request can be read; false if that is not worth it."""
        if self._expects_continue:
            return self._done
        skipped = 0
        try:
            while piece := await self.read():
                skipped += len(piece)
                if skipped > MAX_DISCARD:
                    return False
        except HttpError:
            return False
        return True

    async def _next_chunk(self) -> None:
        line = await self._connection.take_until(b"\r\n", 4096)
        size = line.split(b";", 1)[0].strip()
        if not size or len(size) > 15 or size.strip(b"0123456789abcdefABCDEF"):
            raise HttpError(400, "a chunk of the body has a broken size")
        self._left = int(size, 16)
        if self._left == 0:
            while await self._connection.take_until(b"\r\n", MAX_HEAD):
                pass  # trailers
            self._done = True


class Request:
    """A parsed request head, and its body to be read."""

    def __init__(self, method: str, path: str, query: dict[str, str], headers: dict[str, str], body: Body) -> None:
        self.method = method
        self.path = path
        self.query = query
        self.headers = headers
        self.body = body
        self.keep_alive = True


class Reply:
    """The answer to one request: sent whole, or started and written piece by piece."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.keep_alive = True
        self.started = False
        self.ended = False
        self._flushing: asyncio.Handle | None = None
        self._pending: list[bytes] = []  # what the next flush will send, in one system call

    def _head(self, status: int, headers: Headers) -> bytes:
        self.started = True
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
        connection = "" if self.keep_alive else "Connection: close\r\n"
        head = f"HTTP/1.1 {status} {REASONS.get(status, 'Status')}\r\n{lines}{_COMMON}{connection}\r\n"
        return head.encode("latin-1", "replace")

    async def send(self, status: int, headers: Headers = (), body: bytes = b"") -> None:
        length = [] if status in (204, 304) else [("Content-Length", str(len(body)))]
        head = self._head(status, [*headers, *length])
        self.ended = True
        await self.connection.send(head + body)

    async def send_json(self, status: int, value: object, headers: Headers = ()) -> None:
        headers = [("Content-Type", "application/json"), ("Cache-Control", "no-store"), *headers]
        await self.send(status, headers, dump_json(value))

    async def fail(self, error: HttpError) -> None:
        body = dump_json({"code": error.status, "message": error.message})
        headers = [("Content-Type", "application/json; charset=utf-8"), ("X-Content-Type-Options", "nosniff")]
        await self.send(error.status, headers, body)

    def start(self, status: int, headers: Headers) -> None:
        """Begin an answer of unknown length; the head leaves with the first write."""
        self._pending.append(self._head(status, [*headers, ("Transfer-Encoding", "chunked")]))

    async def write(self, data: bytes) -> None:
        """Write a piece: it leaves when the event loop turns, together with what else there is by then."""
        if not data:
            return
        self._pending.append(b"%x\r\n%b\r\n" % (len(data), data))
        if len(data) > SMALL or len(self._pending) > 16:
            self._flush()  # a writer that never waits for anything else would fill the memory
        elif self._flushing is None:
            self._flushing = self.connection.call_soon(self._flush)
        await self.connection.writable()

    async def end(self, last: bytes = b"") -> None:
        if last:
            self._pending.append(b"%x\r\n%b\r\n" % (len(last), last))
        self._pending.append(b"0\r\n\r\n")
        self.ended = True
        self._flush()
        await self.connection.writable()

    def _flush(self) -> None:
        if self._flushing is not None:
            self._flushing.cancel()
            self._flushing = None
        data = b"".join(self._pending)
        self._pending.clear()
        self.connection.write(data)

    async def send_file(self, status: int, headers: Headers, file: BinaryIO, offset: int, count: int) -> None:
        await self.connection.send(self._head(status, [*headers, ("Content-Length", str(count))]))
        if count:
            await self.connection.send_file(file, offset, count)
        self.ended = True


def parse_request(head: bytes, connection: Connection) -> Request:
    """Raises `HttpError` for anything that is not a clean HTTP/1 request head."""
    lines = head.lstrip(b"\r\n").decode("latin-1").split("\r\n")
    parts = lines[0].split(" ")
    if len(parts) != 3 or not parts[0] or not _TOKEN.issuperset(parts[0]) or not parts[1]:
        raise HttpError(400, "the request line is broken")
    method, target, version = parts
    if version not in ("HTTP/1.1", "HTTP/1.0"):
        raise HttpError(505 if version.startswith("HTTP/") else 400, "only HTTP/1.1 is spoken here")
    headers = _parse_headers(lines[1:])
    length = _body_length(headers)
    expects_continue = headers.get("expect", "").lower() == "100-continue" and version == "HTTP/1.1"
    path, query = split_target(target)
    request = Request(method, path, query, headers, Body(connection, length, expects_continue))
    tokens = headers.get("connection", "").lower()
    request.keep_alive = "close" not in tokens if version == "HTTP/1.1" else "keep-alive" in tokens
    return request


def _parse_headers(lines: list[str]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or not _TOKEN.issuperset(name):
            raise HttpError(400, "a request header is broken")
        name, value = name.lower(), value.strip(" \t")
        if "\0" in value or "\n" in value or "\r" in value:
            raise HttpError(400, f"the request header {name} is broken")
        if name in headers and name in ("content-length", "transfer-encoding", "host"):
            raise HttpError(400, f"the request header {name} is there twice")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


def _body_length(headers: dict[str, str]) -> int | None:
    """The body's length; None for a chunked body."""
    encoding, length = headers.get("transfer-encoding"), headers.get("content-length")
    if encoding is not None:
        if length is not None:
            raise HttpError(400, "Content-Length and Transfer-Encoding exclude each other")
        if encoding.lower() != "chunked":
            raise HttpError(501, f"the transfer encoding {encoding[:80]!r} is not supported")
        return None
    if length is None:
        return 0
    if not length.isascii() or not length.isdigit() or len(length) > 18:
        raise HttpError(400, "the request header content-length is broken")
    return int(length)


def split_target(target: str) -> tuple[str, dict[str, str]]:
    if target.startswith(("http://", "https://")):
        target = "/" + target.split("/", 3)[3] if target.count("/") >= 3 else "/"
    path, _, query = target.partition("#")[0].partition("?")
    fields: dict[str, str] = {}
    for pair in query.split("&") if query else ():
        name, _, value = pair.partition("=")
        fields.setdefault(unquote(name.replace("+", " ")), unquote(value.replace("+", " ")))
    return unquote(path), fields


def unquote(text: str) -> str:
    """Percent-decode; bytes that are no UTF-8 stay as surrogates, which is how file names carry them."""
    first, *rest = text.encode("latin-1").split(b"%")
    out = bytearray(first)
    for part in rest:
        try:
            out.append(int(part[:2].decode("ascii"), 16) if part[:2].isalnum() and len(part) >= 2 else -1)
            out += part[2:]
        except (ValueError, UnicodeDecodeError) as error:
            raise HttpError(400, "the request target has a broken percent escape") from error
    return out.decode("utf-8", "surrogateescape")


def cors_preflight(request: Request) -> list[tuple[str, str]] | None:
    """Headers that allow what a browser asks for ahead of a request from another origin; None if it did not ask."""
    method = request.headers.get("access-control-request-method")
    if request.method != "OPTIONS" or method is None:
        return None
    return [
        ("Access-Control-Allow-Methods", "HEAD, GET, POST, PUT, PATCH, DELETE"),
        ("Access-Control-Allow-Headers", request.headers.get("access-control-request-headers", "*")),
        ("Access-Control-Max-Age", "7200"),
    ]
