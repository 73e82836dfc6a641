"""The outside MCP endpoint, used by a real MCP client."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from tests.platform.world import Served

from sandlot.platform.core.model import Scope


@asynccontextmanager
async def tools(served: Served, key: str, mode: str = "auto") -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {key}"}
    async with httpx2.AsyncClient(headers=headers, timeout=60, trust_env=False) as http:
        transport = streamable_http_client(f"{served.url}/mcp", http_client=http)
        async with Client(transport, mode=mode) as client:
            yield client


async def call(client: Client, name: str, **arguments: Any) -> str:
    result = await client.call_tool(name, arguments)
    text = "".join(part.text for part in result.content if part.type == "text")
    return f"error: {text}" if result.is_error else text


@pytest.mark.parametrize("mode", ["auto", pytest.param("legacy", marks=pytest.mark.long)])
async def test_a_client_gets_a_sandbox_by_adding_one_address(elsewhere: Served, mode: str) -> None:
    async with tools(elsewhere, await elsewhere.key("ada"), mode) as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert {"run_command", "read_file", "write_file", "edit_file", "expose_port", "delete_sandbox"} <= names
        await call(client, "write_file", path="/tmp/hello.py", content="print('hello ' + 'world')")
        await call(client, "edit_file", path="/tmp/hello.py", old="world", new="there")
        assert "hello there" in await call(client, "run_command", command="python3 /tmp/hello.py")
        assert "there" in await call(client, "read_file", path="/tmp/hello.py")
        assert "8080-" in await call(client, "expose_port", port=8080)
        assert (await call(client, "read_file", path="/tmp/none")).startswith("error: ")
        ada, bob = await elsewhere.user("ada"), await elsewhere.user("bob")
        assert [info.session_id for info in await ada.list()] == ["mcp-default"]
        assert await bob.list() == []
        assert await call(client, "delete_sandbox") == "deleted"


async def test_keys_and_scopes_count_here_too(quick: Served) -> None:
    async with quick.http("slp_guess") as http:
        assert (await http.post("/mcp", json={})).status_code == 401
    async with tools(quick, await quick.key("ada", Scope.READ)) as client:
        assert "write" in await call(client, "run_command", command="echo hi")
    async with tools(quick, await quick.key("bob")) as client:
        assert "hi" in await call(client, "run_command", command="echo hi")
