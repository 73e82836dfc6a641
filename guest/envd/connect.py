"""The Connect protocol: finds the method, decodes messages, enforces deadlines, and turns every failure into a Connect error."""

from __future__ import annotations

import asyncio
from binascii import Error as Base64Error
from binascii import a2b_base64

from envd import logs
from envd.codecs import JSON, PROTO, Codec, Undecodable, dump_json
from envd.http import Disconnected, HttpError
from envd.users import UnknownUser

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from envd.http import Reply, Request
    from envd.messages import Message
    from envd.state import State
    from envd.users import User

    Unary = Callable[["Call", Message], Awaitable[Message]]
    ServerStream = Callable[["Call", Message], AsyncIterator[Message]]
    ClientStream = Callable[["Call", AsyncIterator[Message]], Awaitable[Message]]

MAX_MESSAGE = 32 * 1024 * 1024
KEEPALIVE_SECONDS = 90.0

STATUS = {
    "canceled": 499, "unknown": 500, "invalid_argument": 400, "deadline_exceeded": 504, "not_found": 404,
    "already_exists": 409, "permission_denied": 403, "resource_exhausted": 429, "failed_precondition": 400,
    "aborted": 409, "out_of_range": 400, "unimplemented": 501, "internal": 500, "unavailable": 503,
    "data_loss": 500, "unauthenticated": 401,
}  # fmt: skip
_STREAM_CODECS = {"application/connect+json": JSON, "application/connect+proto": PROTO}
_UNARY_CODECS = {"application/json": JSON, "application/proto": PROTO}


class ConnectError(Exception):
    """A failure with one of Connect's codes; the message goes to the caller."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    def body(self) -> dict[str, str]:
        return {"code": self.code, "message": self.message.encode("utf-8", "replace").decode()}


class Method:
    """One RPC: its kind, the names of its messages, and what answers it."""

    __slots__ = ("client_stream", "request", "response", "server_stream", "unary")

    def __init__(
        self,
        request: str,
        response: str,
        *,
        unary: Unary | None = None,
        server_stream: ServerStream | None = None,
        client_stream: ClientStream | None = None,
    ) -> None:
        self.request = request
        self.response = response
        self.unary = unary
        self.server_stream = server_stream
        self.client_stream = client_stream


class Call:
    """What a method may know about the request beyond its message."""

    def __init__(self, request: Request, state: State) -> None:
        self._headers = request.headers
        self._state = state
        self.timeout = _timeout(request.headers.get("connect-timeout-ms"))
        # Python SDKs up to 1.5 refuse an answer with a field that is newer than they are.
        self.takes_new_fields = request.headers.get("user-agent") != "connect-python"

    def user(self) -> User:
        name = _basic_user(self._headers.get("authorization"))
        try:
            return self._state.user(name)
        except UnknownUser as error:
            which = "invalid username" if name is not None else "invalid default user"
            raise ConnectError("unauthenticated", f"{which}: '{error}'") from error

    def keepalive(self) -> float:
        """Seconds of silence after which a stream says that it is still there."""
        text = self._headers.get("keepalive-ping-interval", "")
        seconds = int(text) if text.isascii() and text.isdigit() and len(text) < 7 else 0
        return float(seconds) if seconds > 0 else KEEPALIVE_SECONDS


class Services:
    """All RPC methods by path, and the machinery that runs one."""

    def __init__(self, methods: Mapping[str, Method], state: State) -> None:
        self._methods = methods
        self._state = state
        self._services = {path.split("/")[1] for path in methods}

    def owns(self, path: str) -> bool:
        return path.count("/") == 2 and path.split("/")[1] in self._services

    async def handle(self, request: Request, reply: Reply) -> None:
        method = self._methods.get(request.path)
        if method is None:
            error = ConnectError("unimplemented", f"there is no method {request.path}")
            await reply.send_json(404, error.body())
            return
        if request.method != "POST":
            await reply.send(405, [("Allow", "POST")])
            return
        codecs = _UNARY_CODECS if method.unary else _STREAM_CODECS
        kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
        codec = codecs.get(kind)
        if codec is None:
            await reply.send(415, [("Accept-Post", ", ".join(codecs))])
        elif method.unary:
            await self._unary(method, codec, kind, request, reply)
        else:
            await self._stream(method, codec, kind, request, reply)

    async def _unary(self, method: Method, codec: Codec, kind: str, request: Request, reply: Reply) -> None:
        assert method.unary is not None
        try:
            body = await request.body.read_all(MAX_MESSAGE)
            body = _inflate(body, request.headers.get("content-encoding", "identity"))
            call = Call(request, self._state)
            async with asyncio.timeout(call.timeout):
                answer = codec.encode(method.response, await method.unary(call, codec.decode(method.request, body)))
        except Exception as error:
            failure = _as_connect_error(error, request.path)
            await reply.send_json(STATUS[failure.code], failure.body())
            return
        await reply.send(200, [("Content-Type", kind)], answer)

    async def _stream(self, method: Method, codec: Codec, kind: str, request: Request, reply: Reply) -> None:
        reply.start(200, [("Content-Type", kind)])
        last: dict[str, object] = {}
        try:
            call = Call(request, self._state)
            async with asyncio.timeout(call.timeout):
                await self._answer(method, codec, call, request, reply)
        except Exception as error:
            last = {"error": _as_connect_error(error, request.path).body()}
        finally:
            reply.connection.ends_with_client = False
        await reply.end(_envelope(2, dump_json(last)))

    async def _answer(self, method: Method, codec: Codec, call: Call, request: Request, reply: Reply) -> None:
        messages = _incoming(request, codec, method.request)
        if method.client_stream is not None:
            answer = await method.client_stream(call, messages)
            await reply.write(_envelope(0, codec.encode(method.response, answer)))
            return
        assert method.server_stream is not None
        message = await anext(messages, None)
        if message is None:
            raise ConnectError("invalid_argument", "the request has no message")
        if await anext(messages, None) is not None:
            raise ConnectError("invalid_argument", "the request has more than one message")
        reply.connection.ends_with_client = True
        outgoing = method.server_stream(call, message)
        try:
            async for event in outgoing:
                await reply.write(_envelope(0, codec.encode(method.response, event)))
        finally:
            await outgoing.aclose()  # type: ignore[attr-defined]


async def _incoming(request: Request, codec: Codec, kind: str) -> AsyncIterator[Message]:
    kept = bytearray()
    encoding = request.headers.get("connect-content-encoding", "identity")
    while (head := await request.body.read_exactly(5, kept)) is not None:
        flags, length = head[0], int.from_bytes(head[1:], "big")
        if length > MAX_MESSAGE:
            raise ConnectError("resource_exhausted", f"a message is larger than {MAX_MESSAGE} bytes")
        if flags not in (0, 1):
            raise ConnectError("invalid_argument", f"an envelope has the unknown flags {flags:#x}")
        if flags and encoding in ("identity", ""):
            raise ConnectError("invalid_argument", "a message is compressed, but Connect-Content-Encoding says not how")
        data = await request.body.read_exactly(length, kept) if length else b""
        if data is None:
            raise ConnectError("invalid_argument", "the body ends in the middle of a message")
        yield codec.decode(kind, _inflate(data, encoding) if flags else data)


def _envelope(flags: int, data: bytes) -> bytes:
    return b"%c%b%b" % (flags, len(data).to_bytes(4, "big"), data)


def _inflate(data: bytes, encoding: str) -> bytes:
    if encoding in ("identity", "") or not data:
        return data
    if encoding != "gzip":
        raise ConnectError("unimplemented", f"unknown compression {encoding[:80]!r}: supported encodings are gzip")
    import zlib

    stream = zlib.decompressobj(31)
    try:
        out = stream.decompress(data, MAX_MESSAGE)
    except zlib.error as error:
        raise ConnectError("invalid_argument", "the message is not valid gzip") from error
    if stream.unconsumed_tail:
        raise ConnectError("resource_exhausted", f"a message is larger than {MAX_MESSAGE} bytes")
    if not stream.eof:
        raise ConnectError("invalid_argument", "the message is cut short")
    return out


def _as_connect_error(error: Exception, path: str) -> ConnectError:
    if isinstance(error, Disconnected):
        raise error
    if isinstance(error, ConnectError):
        return error
    if isinstance(error, Undecodable):
        return ConnectError("invalid_argument", str(error))
    if isinstance(error, TimeoutError):
        return ConnectError("deadline_exceeded", "the deadline of the call has passed")
    if isinstance(error, HttpError):
        code = "resource_exhausted" if error.status == 413 else "invalid_argument"
        return ConnectError(code, error.message)
    logs.report(f"{path} failed", error)
    return ConnectError("internal", f"{type(error).__name__}: {error}")


def _timeout(text: str | None) -> float | None:
    if text is None or text == "":
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 10:
        raise ConnectError("invalid_argument", f"Connect-Timeout-Ms {text[:40]!r} is not a number of milliseconds")
    return int(text) / 1000 or None


def _basic_user(header: str | None) -> str | None:
    """The user a request asks to act as; None means the sandbox's default."""
    scheme, _, value = (header or "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        return a2b_base64(value.strip()).decode().partition(":")[0]
    except (Base64Error, UnicodeDecodeError) as error:
        raise ConnectError("unauthenticated", "the Authorization header is broken") from error
