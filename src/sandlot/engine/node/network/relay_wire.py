"""What the server and the process of the relays tell each other: JSON in frames, and the sockets that go along with it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from ipaddress import IPv4Address, IPv4Network
from typing import Any

from sandlot.engine.core.codec import decode, encode
from sandlot.engine.core.model import EgressProxy, HeaderRule
from sandlot.engine.core.network_policy import Rules

MAX_FDS = 64  # in one message of the kernel
_LENGTH = 4


def frame(message: Mapping[str, Any]) -> bytes:
    data = json.dumps(message).encode()
    return len(data).to_bytes(_LENGTH) + data


class Frames:
    """Messages out of a stream of bytes."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, part: bytes) -> Iterator[dict[str, Any]]:
        self._data += part
        while len(self._data) >= _LENGTH:
            end = _LENGTH + int.from_bytes(self._data[:_LENGTH])
            if len(self._data) < end:
                return
            message = json.loads(self._data[_LENGTH:end])
            del self._data[:end]
            yield message


def rules_out(rules: Rules) -> dict[str, Any]:
    return {
        "allow": [str(network) for network in rules.allow],
        "deny": [str(network) for network in rules.deny],
        "domains": list(rules.domains),
        "dns_servers": None if rules.dns_servers is None else [str(server) for server in rules.dns_servers],
        "headers": encode(rules.headers),
        "secrets": dict(rules.secrets),
        "proxy": encode(rules.proxy),
        "watched": rules.watched,
    }


def rules_in(data: Mapping[str, Any]) -> Rules:
    servers = data["dns_servers"]
    return Rules(
        allow=tuple(map(IPv4Network, data["allow"])),
        deny=tuple(map(IPv4Network, data["deny"])),
        domains=tuple(data["domains"]),
        dns_servers=None if servers is None else tuple(map(IPv4Address, servers)),
        headers=decode(tuple[HeaderRule, ...], data["headers"]),
        secrets=data["secrets"],
        proxy=decode(EgressProxy | None, data["proxy"]),
        watched=data["watched"],
    )
