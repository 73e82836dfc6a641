"""The desktop tools where there is no desktop, and the door for viewers of the screen; the rest is in tests/long/test_desktop.py."""

from __future__ import annotations

import hashlib
import secrets

import pytest
import websockets
from tests.tools.conftest import Another, Tools


async def test_the_tools_are_there_only_where_a_screen_is(tools: Tools, another: Another) -> None:
    async with tools.caller() as call:
        assert not {name for name in await call.names() if name.startswith("desktop_")}
    with another(DISPLAY=":97") as seeing:
        async with seeing.caller() as call:
            names = {name for name in await call.names() if name.startswith("desktop_")}
            assert {"desktop_screenshot", "desktop_click", "desktop_type", "desktop_windows"} <= names
            assert "is no key" in await call.failure("desktop_key", key="--clearmodifiers 1")
            assert "NUL" in await call.failure("desktop_type", text="a\0b")
            assert "must be an id" in await call.failure("desktop_windows", action="close", window="0x1; id")
            assert "neither a file" in await call.failure("desktop_open", target="--version")


async def looked(tools: Tools, token: str) -> str:
    """Why a viewer is refused."""
    address, headers = f"ws://127.0.0.1:{tools.port}/screen", {"Authorization": f"Bearer {token}"}
    with pytest.raises(websockets.InvalidStatus) as refused:
        async with websockets.connect(address, additional_headers=headers, proxy=None):
            pass
    return str(refused.value.response.status_code)


def admitted(tools: Tools, *options: str) -> str:
    token = secrets.token_urlsafe(32)
    made = tools.command("admit-viewer", hashlib.sha256(token.encode()).hexdigest(), *options)
    assert made.returncode == 0, made.stderr
    return token


async def test_a_viewers_token_is_gone_once_it_was_shown(tools: Tools) -> None:
    waiting = tools.state / "viewers"
    token = admitted(tools, "--control")
    assert len(list(waiting.glob("*.json"))) == 1
    assert await looked(tools, secrets.token_urlsafe(32)) == "403" and len(list(waiting.glob("*.json"))) == 1
    assert await looked(tools, token) == "403", "there is no screen here"
    assert list(waiting.iterdir()) == []
    wrong = tools.command("admit-viewer", "nonsense")
    assert wrong.returncode == 1 and "64 hexadecimal digits" in wrong.stderr


async def test_tokens_of_viewers_do_not_pile_up_and_do_not_open_the_tools(tools: Tools) -> None:
    token = admitted(tools)
    for _ in range(34):
        admitted(tools)
    assert len(list((tools.state / "viewers").glob("*.json"))) == 32
    with tools.http() as http:
        headers = {"Authorization": f"Bearer {token}"}
        assert http.post("/mcp", json={}, headers=headers).status_code == 401
