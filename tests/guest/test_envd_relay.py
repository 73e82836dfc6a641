"""How relays to the loopback come and go, in one process with a short patience."""

from __future__ import annotations

import asyncio
import socket

import pytest

from envd import relay


async def test_an_idle_relay_closes_and_one_in_use_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "IDLE_SECONDS", 0.1)
    relays = relay.Relays()
    with socket.create_server(("127.0.0.1", 0)) as service:
        port = service.getsockname()[1]
        opened = await relays.open(port)
        assert opened is not None
        client = await relay.connect(socket.AF_INET, "127.0.0.1", opened)
        with client:
            await asyncio.sleep(0.4)
            assert await _accepts(opened)
        deadline = asyncio.get_running_loop().time() + 60
        while await _accepts(opened):  # the service never closes its end, and yet connections end
            assert asyncio.get_running_loop().time() < deadline, "the relay did not close"
            await asyncio.sleep(0.5)


async def _accepts(port: int) -> bool:
    try:
        (await relay.connect(socket.AF_INET, "127.0.0.1", port)).close()
    except OSError:
        return False
    return True
