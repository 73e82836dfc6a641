"""What the first bytes of a connection say about whom it is for: the name in a TLS ClientHello, or in an HTTP request head."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sandlot.engine.node.network.request_heads import END, RequestHead, host_name, parse_head
from sandlot.engine.node.network.request_heads import Unreadable as Unreadable

MAX_BYTES = 32768
MAX_RECORDS = 64  # of TLS, that a hello may be spread over; clients use one or two
_HANDSHAKE, _CLIENT_HELLO, _SERVER_NAME = 22, 1, 0
_CONNECTION = re.compile(rb"(?im)^(?:proxy-)?connection[ \t]*:[^\r\n]*\r?\n")


@dataclass(frozen=True, slots=True)
class Greeting:
    name: str
    forward: bytes  # what the other side gets in place of the bytes read so far
    request: RequestHead | None = None  # None: it is TLS
    switches: bool = False  # it asks for a WebSocket: nothing more goes there before the other side agrees
    held: bytes = b""  # what came behind the head of a request


class GreetingReader:
    """Reads a greeting as it comes in: each byte is looked at once, however small the parts are."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._hello = bytearray()  # what the records of a TLS handshake carry
        self._position = 0  # up to here the bytes are done with
        self._records = 0

    @property
    def seen(self) -> bytes:
        """All that came so far, as it came."""
        return bytes(self._data)

    @property
    def room(self) -> int:
        """How many more bytes a greeting may have."""
        return MAX_BYTES - len(self._data)

    def feed(self, part: bytes) -> Greeting | None:
        """Whom the connection is for; None if more bytes are needed. Raises `Unreadable`."""
        self._data += part
        greeting = None
        if self._data:
            greeting = self._read_tls() if self._data[0] == _HANDSHAKE else self._read_http()
        if greeting is None and self.room <= 0:
            raise Unreadable("no name in the first bytes")
        return greeting

    def _read_tls(self) -> Greeting | None:
        data = self._data
        while len(data) >= self._position + 5:  # a hello may be spread over several records
            start = self._position + 5
            length = int.from_bytes(data[start - 2 : start])
            if data[self._position] != _HANDSHAKE or not 0 < length <= 1 << 14:
                raise Unreadable("not a TLS handshake")
            if len(data) < start + length:
                return None
            self._hello += data[start : start + length]
            self._position = start + length
            self._records += 1
            if self._hello[0] != _CLIENT_HELLO or self._records > MAX_RECORDS:
                raise Unreadable("not a ClientHello")
            end = 4 + int.from_bytes(self._hello[1:4])
            if len(self._hello) >= 4 and len(self._hello) >= end:
                return Greeting(_server_name(bytes(self._hello[4:end])), bytes(data))
        return None

    def _read_http(self) -> Greeting | None:
        data = self._data
        end = data.find(END, max(self._position - 3, 0))
        self._position = len(data)
        if end < 0:
            if len(data) > 8 and b" " not in data[:32]:
                raise Unreadable("not an HTTP request")
            return None
        return _read_request(bytes(data[:end]), bytes(data[end + 4 :]))


def _server_name(hello: bytes) -> str:
    cursor = _Cursor(hello)
    cursor.take(2 + 32)  # version, random
    cursor.vector(1)  # session id
    cursor.vector(2)  # cipher suites
    cursor.vector(1)  # compression methods
    extensions = _Cursor(cursor.vector(2))
    while not extensions.is_empty:
        kind, body = extensions.number(2), extensions.vector(2)
        if kind == _SERVER_NAME:
            names = _Cursor(_Cursor(body).vector(2))
            if names.number(1) == 0:
                return host_name(names.vector(2))
    raise Unreadable("a ClientHello without a server name")


def _read_request(head: bytes, rest: bytes) -> Greeting:
    asked = parse_head(head)
    if asked.switches:
        return Greeting(asked.name, head + END, request=asked, switches=True, held=rest)
    return Greeting(asked.name, _once(head) + END + rest, request=asked, held=rest)


def has_switched(head: bytes) -> bool:
    """Whether the head of an answer agrees to be no HTTP from now on."""
    return bool(re.match(rb"HTTP/1\.1 101[ \r]", head))


def _once(head: bytes) -> bytes:
    """The same request, to be the only one on its connection: a later one could name somebody else at the same address."""
    return _CONNECTION.sub(b"", head + b"\r\n").removesuffix(b"\r\n") + b"\r\nConnection: close"


class _Cursor:
    """Reads length-prefixed fields; running past the end is `Unreadable`."""

    def __init__(self, data: bytes) -> None:
        self._data, self._position = data, 0

    @property
    def is_empty(self) -> bool:
        return self._position >= len(self._data)

    def take(self, count: int) -> bytes:
        part = self._data[self._position : self._position + count]
        if len(part) != count:
            raise Unreadable("a ClientHello that is cut off")
        self._position += count
        return part

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size))

    def vector(self, size: int) -> bytes:
        return self.take(self.number(size))
