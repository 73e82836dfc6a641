"""The messages between platform and relay: kind, stream, payload. `guest/relay/relay.py` has its own copy of this page."""

from __future__ import annotations

import struct
from enum import IntEnum

VERSION = "sandlot-tunnel.1"
NUMBERS = 1 << 32
_HEAD = struct.Struct(">BI")
_COUNT = struct.Struct(">I")
HEAD_SIZE = _HEAD.size


class Kind(IntEnum):
    OPEN = 1  # relay: a connection from inside
    DATA = 2
    END = 3  # no more bytes from this side; the platform's also closes the stream
    RESET = 4
    CREDIT = 5  # so many more bytes may come
    PING = 6
    PONG = 7
    BYE = 8  # platform: the relay may end


class ProtocolViolation(Exception):
    """The relay does not keep to the protocol: its connection is ended."""


def pack(kind: Kind, stream: int = 0, payload: bytes = b"") -> bytes:
    return _HEAD.pack(kind, stream) + payload


def pack_credit(stream: int, count: int) -> bytes:
    return _HEAD.pack(Kind.CREDIT, stream) + _COUNT.pack(count)


def unpack(message: bytes) -> tuple[Kind, int, bytes]:
    """Raises `ProtocolViolation`."""
    if len(message) < HEAD_SIZE:
        raise ProtocolViolation("a message without a head")
    kind, stream = _HEAD.unpack_from(message)
    try:
        return Kind(kind), stream, message[HEAD_SIZE:]
    except ValueError:
        raise ProtocolViolation(f"a message of the unknown kind {kind}") from None


def unpack_credit(payload: bytes) -> int:
    """Raises `ProtocolViolation`."""
    if len(payload) != _COUNT.size:
        raise ProtocolViolation("a credit that is no number")
    return int(_COUNT.unpack(payload)[0])
