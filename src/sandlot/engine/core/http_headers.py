"""Raw HTTP headers as ASGI has them: the few look-ups that the gateway and the node proxy share."""

from __future__ import annotations

from collections.abc import Iterable

RawHeaders = list[tuple[bytes, bytes]]
TRAFFIC_TOKEN = b"e2b-traffic-access-token"
ACCESS_TOKEN = b"x-access-token"  # envd's


def header(headers: RawHeaders, name: bytes) -> bytes | None:
    """The first value of a header; names arrive in lower case."""
    for key, value in headers:
        if key == name:
            return value
    return None


def connection_tokens(headers: Iterable[tuple[bytes, bytes]]) -> frozenset[bytes]:
    """What the Connection headers name: those headers, too, are for this hop alone."""
    return frozenset(
        token.strip().lower() for name, value in headers if name.lower() == b"connection" for token in value.split(b",")
    )
