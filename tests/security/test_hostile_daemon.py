"""A guest that answers in the daemon's place, with anything: its machine is ended, paused and listed all the same."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.contract.node_host import HostOfNode, OpenNode
from tests.contract.test_node import NEW

from sandlot import bounded_json
from sandlot.engine.core.errors import EngineError, MachineFailed
from sandlot.engine.core.model import ENVD_PORT
from sandlot.engine.node.envd.client import EnvdClient
from sandlot.engine.node.envd.commands import Command, CommandClient, EnvdAddress

LIMIT_S = 60
DEEP = b"[" * 1_000_000 + b"]" * 1_000_000


def reply(body: bytes, headers: bytes = b"") -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n%s\r\n" % (len(body), headers) + body


def frame(body: bytes) -> bytes:
    return b"\0" + len(body).to_bytes(4, "big") + body


ENTRY = {"timestamp": "9999-12-31T23:59:59-23:59", "message": "\ud800", "level": {}, "fields": {"\ud800": [[]]}}
ANSWERS = {
    "two million brackets": reply(DEEP),
    "deep inside a field": reply(b'{"entries": ' + DEEP[500_000:1_500_000] + b', "processes": 0}'),
    "no JSON at all": reply(b'"' + b'\\"' * 500_000),
    "no HTTP at all": b"\x16\x03\x01" * 1000,
    "a reply that grows when it is unpacked": reply(gzip.compress(bytes(64 << 20)), b"Content-Encoding: gzip\r\n"),
    "text that cannot be encoded": reply(json.dumps({"entries": [ENTRY, 7, None, [ENTRY]]}).encode()),
    "headers without end": b"HTTP/1.1 200 OK\r\n" + b"X-A: b\r\n" * 20_000,
    "another place to ask": b"HTTP/1.1 307 See\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
    "nothing": b"",
}


@contextlib.asynccontextmanager
async def daemon(address: str, answer: bytes, *, endless: bool = False) -> AsyncIterator[None]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            await writer.drain()
            while endless:
                writer.write(b"[" * 1000)
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, address, ENVD_PORT)
    try:
        yield
    finally:
        server.close()


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[OpenNode]:
    """A node whose client for daemons is the real one; fake machines have loopback addresses."""
    host = HostOfNode(tmp_path)
    client = EnvdClient()
    await client.open()
    fake = host.envd
    host.envd = client  # type: ignore[assignment]
    client.init = fake.init  # type: ignore[method-assign]
    try:
        async with host.node() as opened:
            yield opened
    finally:
        await client.close()


@pytest.mark.parametrize("kind", [*ANSWERS, "an answer without end"])
async def test_a_machine_ends_whatever_its_guest_answers(node: OpenNode, kind: str) -> None:
    machine = await node.local.machines.start(NEW)
    async with daemon(machine.address, ANSWERS.get(kind, b"HTTP/1.1 200 OK\r\n\r\n"), endless=kind not in ANSWERS):
        async with asyncio.timeout(LIMIT_S):
            await node.local.machines.logs(NEW.sandbox_id)
            await node.parts.factory.is_idle(NEW.sandbox_id)
            await node.local.machines.stop(NEW.sandbox_id)
    assert await node.local.machines.list() == []


async def test_one_broken_guest_does_not_keep_a_sweep_from_the_others(node: OpenNode) -> None:
    machines = [
        await node.local.machines.start(replace(NEW, sandbox_id=name, envd_token=name)) for name in ("i1", "i2")
    ]
    async with daemon(machines[0].address, ANSWERS["two million brackets"]):
        async with asyncio.timeout(LIMIT_S):
            assert list(await node.local.host.sweep(())) == ["i1", "i2"]


FRAMES: dict[str, Callable[[], bytes]] = {
    "deep": lambda: frame(DEEP[750_000:1_250_000]),
    "no object": lambda: frame(b"[]"),
    "half": lambda: frame(b'{"event": {}}')[:-3],
    "huge": lambda: b"\0\xff\xff\xff\xff",
    "odd": lambda: frame(b'{"event": {"data": 7, "end": {"exitCode": "x"}}}'),
}


@pytest.mark.parametrize("kind", FRAMES)
async def test_a_command_in_such_a_guest_fails_with_a_sentence(kind: str) -> None:
    commands = CommandClient()
    await commands.open()
    head = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"
    try:
        async with daemon("127.1.7.7", head + FRAMES[kind]()):
            envd = EnvdAddress("127.1.7.7", None)
            work = commands.run(envd, Command(user="root", line="true"), lambda *_: None, timeout_s=LIMIT_S)
            if kind == "odd":
                assert await work == -1
            else:
                with pytest.raises(MachineFailed):
                    await work
            with contextlib.suppress(EngineError):
                await commands.upload(envd, "/x", b"x")
    finally:
        await commands.close()


@pytest.mark.parametrize(
    "text",
    [
        *(DEEP, b"[" * 65 + b"]" * 65, b'{"a":' * 65 + b"1" + b"}" * 65, b"[],", b'"' + b'\\"' * 100_000, b"1" * 5000),
        *(b"[" + b"[]," * 60_000 + b"1]", b'"[', b"\xff", b""),
    ],
)
def test_json_beyond_its_limits_is_a_value_error(text: bytes) -> None:
    with pytest.raises(ValueError):
        bounded_json.loads(text, most_bytes=4 << 20)


def test_json_within_its_limits_is_what_it_says() -> None:
    text = json.dumps({"entries": [{"message": '[{"' * 1000 + "\\"}] * 50}).encode()
    assert bounded_json.loads(text, most_bytes=4 << 20) == json.loads(text)
    assert bounded_json.text("a\ud800b", 2) == "a?"
