"""What the first bytes of a connection say about whom it is for: the name in a TLS ClientHello, or in an HTTP request head."""

from __future__ import annotations

import re
from dataclasses import dataclass

MAX_BYTES = 32768
_HANDSHAKE, _CLIENT_HELLO, _SERVER_NAME = 22, 1, 0
_BODY = frozenset({b"content-length", b"transfer-encoding"})
_HEADER = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\r\n\0]*")
_CONNECTION = re.compile(rb"(?im)^(?:proxy-)?connection[ \t]*:[^\r\n]*\r?\n")


class Unreadable(ValueError):
    """The bytes are neither TLS nor HTTP, or name nobody."""


@dataclass(frozen=True, slots=True)
class Greeting:
    name: str
    forward: bytes  # what the other side gets in place of the bytes read so far
    switches: bool = False  # it asks for a WebSocket: nothing more goes there before the other side agrees
    held: bytes = b""  # what came behind such a request


def read(data: bytes) -> Greeting | None:
    """Whom the connection is for; None if more bytes are needed. Raises `Unreadable`."""
    greeting = None
    if data:
        greeting = _read_tls(data) if data[0] == _HANDSHAKE else _read_http(data)
    if greeting is None and len(data) >= MAX_BYTES:
        raise Unreadable("no name in the first bytes")
    return greeting


def _read_tls(data: bytes) -> Greeting | None:
    hello = bytearray()
    position = 0
    while True:  # a hello may be spread over several records
        if len(data) < position + 5:
            return None
        length = int.from_bytes(data[position + 3 : position + 5])
        if data[position] != _HANDSHAKE or not 0 < length <= 1 << 14:
            raise Unreadable("not a TLS handshake")
        if len(data) < position + 5 + length:
            return None
        hello += data[position + 5 : position + 5 + length]
        position += 5 + length
        if hello[0] != _CLIENT_HELLO:
            raise Unreadable("not a ClientHello")
        if len(hello) >= 4 and len(hello) >= 4 + int.from_bytes(hello[1:4]):
            return Greeting(_server_name(bytes(hello[4 : 4 + int.from_bytes(hello[1:4])])), data)


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
                return _host_name(names.vector(2))
    raise Unreadable("a ClientHello without a server name")


def _read_http(data: bytes) -> Greeting | None:
    head, end, rest = data.partition(b"\r\n\r\n")
    if not end:
        if len(data) > 8 and b" " not in data[:32]:
            raise Unreadable("not an HTTP request")
        return None
    request, *headers = head.split(b"\r\n")
    asked = re.fullmatch(rb"([A-Z]{1,32}) (\S+) HTTP/1\.[01]", request)
    if not asked or asked[1] == b"CONNECT":
        raise Unreadable("not an HTTP/1 request")
    # What a lenient server could read as another header than we do (folds, bare newlines, `Host :`) is refused.
    if not all(map(_HEADER.fullmatch, headers)):
        raise Unreadable("a malformed header")
    hosts = [value for key, _, value in (line.partition(b":") for line in headers) if key.lower() == b"host"]
    if len(hosts) != 1:
        raise Unreadable("not exactly one Host")
    name = _host_name(hosts[0].strip().rsplit(b":", 1)[0])
    target = re.match(rb"(?i)[a-z][a-z0-9+.-]*://([^/?#]*)", asked[2])
    if target and _host_name(re.sub(rb":\d*$", b"", target[1])) != name:
        raise Unreadable("a request target that is not its Host")
    said = {key.lower(): value.strip() for key, _, value in (line.partition(b":") for line in headers)}
    if asked[1] == b"GET" and said.get(b"upgrade", b"").lower() == b"websocket" and not _BODY & said.keys():
        return Greeting(name, head + end, switches=True, held=rest)
    return Greeting(name, _once(head) + end + rest)


def has_switched(head: bytes) -> bool:
    """Whether the head of an answer agrees to be no HTTP from now on."""
    return bool(re.match(rb"HTTP/1\.1 101[ \r]", head))


def _once(head: bytes) -> bytes:
    """The same request, to be the only one on its connection: a later one could name somebody else at the same address."""
    return _CONNECTION.sub(b"", head + b"\r\n").removesuffix(b"\r\n") + b"\r\nConnection: close"


def _host_name(raw: bytes) -> str:
    name = raw.decode("latin-1").lower().removesuffix(".")
    if not re.fullmatch(r"[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*", name) or len(name) > 253:
        raise Unreadable("not a host name")
    return name


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
