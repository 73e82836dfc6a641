"""What a guest says at the start of a connection, to be let out under a name that it does not use."""

from __future__ import annotations

from ipaddress import IPv4Address

import pytest

from sandlot.addresses import is_closed
from sandlot.engine.node.network import greeting

SECOND = b"GET /two HTTP/1.1\r\nHost: hidden.example.com\r\n\r\n"


@pytest.mark.parametrize("protocol", ["websocket", "WebSocket", "h2c", "anything", "websocket, h2c"])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_request_for_another_protocol_opens_the_connection_to_no_second_request(protocol: str, method: str) -> None:
    head = f"{method} / HTTP/1.1\r\nHost: www.example.com\r\nUpgrade: {protocol}\r\nConnection: Upgrade\r\n\r\n"
    greeted = greeting.GreetingReader().feed(head.encode() + SECOND)
    assert greeted is not None and greeted.name == "www.example.com"
    if greeted.switches:
        assert greeted.held == SECOND and SECOND not in greeted.forward
    else:
        assert b"Connection: close" in greeted.forward and b"Connection: Upgrade" not in greeted.forward


@pytest.mark.parametrize("status", ["200 OK", "100 Continue", "1012", "426 Upgrade Required"])
def test_only_a_101_is_a_yes(status: str) -> None:
    assert not greeting.has_switched(f"HTTP/1.1 {status}\r\n\r\n".encode())
    assert greeting.has_switched(b"HTTP/1.1 101 Switching Protocols\r\n\r\n")


@pytest.mark.parametrize("address", ["169.254.169.254", "168.63.129.16", "100.100.100.200", "192.0.0.192"])
def test_services_of_clouds_for_their_own_machines_are_closed(address: str) -> None:
    """AWS, Google and others; Azure; Alibaba; Oracle."""
    assert is_closed(IPv4Address(address), ())
