"""The official SDK, unmodified, against the doors."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from e2b import (
    AsyncSandbox,
    AuthenticationException,
    RateLimitException,
    Sandbox,
    SandboxException,
    SandboxNotFoundException,
    SandboxQuery,
    SandboxState,
)
from e2b.exceptions import SandboxNotRunningException
from tests.api.servers import Doors, head_of, open_doors, raw_service

from sandlot.engine.core.model import ENVD_PORT

T = TypeVar("T")


async def threaded(function: Callable[..., T], *args: Any, **options: Any) -> T:
    return await asyncio.wait_for(asyncio.to_thread(function, *args, **options), 30)


async def test_the_life_of_a_sandbox_with_the_sync_sdk(doors: Doors) -> None:
    sandbox = await threaded(Sandbox.create, metadata={"user": "a&b ä"}, envs={"A": "1"}, timeout=60, **doors.sdk)
    info = await threaded(sandbox.get_info)
    assert info.sandbox_id == sandbox.sandbox_id and info.metadata == {"user": "a&b ä"}
    assert info.state is SandboxState.RUNNING and info.template_id == "base"
    await threaded(sandbox.set_timeout, 120)
    assert (await threaded(sandbox.get_info)).end_at > info.end_at
    again = await threaded(Sandbox.connect, sandbox.sandbox_id, **doors.sdk)
    assert again.sandbox_id == sandbox.sandbox_id
    metrics = await threaded(sandbox.get_metrics)
    assert metrics[0].cpu_count == 2 and metrics[0].mem_total == 1 << 30
    assert await threaded(sandbox.kill) is True
    assert await threaded(sandbox.kill) is False
    assert await threaded(sandbox.is_running) is False
    with pytest.raises(SandboxNotFoundException):
        await threaded(Sandbox.connect, sandbox.sandbox_id, **doors.sdk)


async def test_lists_of_the_sdk_are_filtered_and_paged(doors: Doors) -> None:
    made = [await AsyncSandbox.create(metadata={"n": str(n), "odd key": "50% of a&b"}, **doors.sdk) for n in range(3)]
    paginator = AsyncSandbox.list(query=SandboxQuery(metadata={"odd key": "50% of a&b", "n": "1"}), **doors.sdk)
    assert [found.sandbox_id for found in await paginator.next_items()] == [made[1].sandbox_id]
    assert paginator.has_next is False
    paginator, seen = AsyncSandbox.list(limit=2, **doors.sdk), []
    while paginator.has_next:
        seen += [found.sandbox_id for found in await paginator.next_items()]
    assert sorted(seen) == sorted(sandbox.sandbox_id for sandbox in made)
    assert all([await sandbox.kill() for sandbox in made])


async def test_failures_become_the_exceptions_of_the_sdk(doors: Doors, tmp_path: Any) -> None:
    with pytest.raises(AuthenticationException, match="sandlot env"):
        await AsyncSandbox.create(**{**doors.sdk, "api_key": "e2b_0000"})
    with pytest.raises(SandboxException, match="template 'nope' not found"):
        await AsyncSandbox.create("nope", **doors.sdk)
    with pytest.raises(SandboxException, match="timeout"):
        await AsyncSandbox.create(timeout=10**8, **doors.sdk)
    with pytest.raises(SandboxException, match="domains"):
        await AsyncSandbox.create(network={"allow_out": ["example.com"]}, **doors.sdk)
    with pytest.raises(SandboxNotFoundException):
        await AsyncSandbox.connect("inope0000", **doors.sdk)
    assert await AsyncSandbox.kill("inope0000", **doors.sdk) is False


async def test_a_full_server_is_a_rate_limit(tmp_path: Any) -> None:
    async with open_doors(tmp_path, max_sandboxes=1) as doors:
        await AsyncSandbox.create(**doors.sdk)
        with pytest.raises(RateLimitException):
            await AsyncSandbox.create(request_timeout=5, **doors.sdk)


def envelope(message: dict[str, Any]) -> bytes:
    body = json.dumps(message).encode()
    frame = b"\0" + len(body).to_bytes(4, "big") + body
    return b"%x\r\n%s\r\n" % (len(frame), frame)


async def envd(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Enough of envd to begin a command that never ends."""
    while head := await head_of(reader):
        if b" /health " in head:
            writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
            continue
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/connect+json\r\nTransfer-Encoding: chunked\r\n\r\n")
        writer.write(envelope({"event": {"start": {"pid": 7}}}))
        await reader.read()
        return


async def test_a_command_whose_sandbox_is_killed_ends_with_the_right_exception(doors: Doors) -> None:
    async with raw_service(envd) as port:
        doors.ports[ENVD_PORT] = port
        sandbox = await AsyncSandbox.create(**doors.sdk)
        assert await sandbox.is_running()
        command = await sandbox.commands.run("sleep 1000", background=True, timeout=60)
        running = asyncio.create_task(command.wait())
        assert doors.node.real_proxy.open_count(sandbox.sandbox_id) == 1
        assert await AsyncSandbox.kill(sandbox.sandbox_id, **doors.sdk) is True
        with pytest.raises(SandboxNotRunningException, match="end of life"):
            await asyncio.wait_for(running, 60)
        assert await sandbox.is_running() is False


async def test_signed_urls_of_the_sdk_lead_to_their_sandbox(doors: Doors) -> None:
    import httpx

    async def files(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await head_of(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(head), head))

    async with raw_service(files) as port, httpx.AsyncClient() as client:
        doors.ports[ENVD_PORT] = port
        await AsyncSandbox.create(**doors.sdk)
        sandbox = await AsyncSandbox.create(**doors.sdk)
        url = await threaded(sandbox.download_url, "/home/user/ä b.txt", user="user", use_signature_expiration=60)
        assert url.startswith(doors.url)
        response = await client.get(url)
        assert response.status_code == 200 and response.text.startswith("GET /files?")
        await sandbox.kill()
        assert (await client.get(url)).status_code == 400
