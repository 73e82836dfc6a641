"""Which headers pass into a sandbox: what strangers say about themselves, and what belongs to one connection only."""

from __future__ import annotations

from typing import Any

import pytest

from sandlot.engine.core.model import ProxyTarget
from sandlot.engine.node.proxy.headers import to_upstream

SAID = [(b"x-forwarded-for", b"1.2.3.4"), (b"x-forwarded-proto", b"https"), (b"x-forwarded-host", b"public.example")]


def passed(client: str | None, *headers: tuple[bytes, bytes], type: str = "http", scheme: str = "http") -> Any:
    scope = {"type": type, "scheme": scheme, "headers": [(b"host", b"here:1"), *headers]}
    target = ProxyTarget(sandbox_id="i1", port=8000)
    return to_upstream({**scope, "client": (client, 5) if client else None}, target)


@pytest.mark.parametrize("proxy", ["127.0.0.1", "::1"])
def test_a_proxy_on_this_machine_is_believed(proxy: str) -> None:
    headers = passed(proxy, *SAID)
    assert headers.getall("X-Forwarded-For") == [f"1.2.3.4, {proxy}"]
    assert headers.getall("X-Forwarded-Proto") == ["https"]
    assert headers.getall("X-Forwarded-Host") == ["public.example"]


@pytest.mark.parametrize("stranger", ["203.0.113.9", "10.0.0.1", "2001:db8::1", "no address", None])
def test_a_stranger_is_not_believed_about_itself(stranger: str | None) -> None:
    headers = passed(stranger, *SAID)
    assert headers.getall("X-Forwarded-For") == [stranger or "unknown"]
    assert headers.getall("X-Forwarded-Proto") == ["http"]
    assert headers.getall("X-Forwarded-Host") == ["here:1"]


@pytest.mark.parametrize(("scheme", "told"), [("http", "http"), ("https", "https"), ("ws", "http"), ("wss", "https")])
def test_how_it_was_asked_is_told(scheme: str, told: str) -> None:
    assert passed("203.0.113.9", scheme=scheme)["X-Forwarded-Proto"] == told


def test_a_websockets_handshake_is_made_anew_and_the_rest_of_its_headers_pass() -> None:
    own = [(b"sec-websocket-key", b"k"), (b"sec-websocket-version", b"13"), (b"sec-websocket-protocol", b"p")]
    own += [(b"sec-websocket-extensions", b"permessage-deflate")]
    rest = [(b"sec-fetch-mode", b"websocket"), (b"cookie", b"a=1")]
    headers = passed("203.0.113.9", *own, *rest, type="websocket")
    assert not [name for name in headers if name.lower().startswith("sec-websocket-")]
    assert (headers["sec-fetch-mode"], headers["cookie"]) == ("websocket", "a=1")
    assert passed("203.0.113.9", *own)["sec-websocket-key"] == "k"  # in a plain request it means nothing
