"""The egress relay of a slot: lets a connection out by the name it asks for, to an address that the relay looked up itself."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from asyncio import StreamReader, StreamWriter
from dataclasses import dataclass
from ipaddress import IPv4Address

from sandlot.engine.core.network_policy import Rules
from sandlot.engine.node.network import greeting
from sandlot.engine.node.network.accepting import Acceptor, Budget
from sandlot.engine.node.network.greeting import Greeting, GreetingReader
from sandlot.engine.node.network.resolver import Resolver

MAX_CONNECTIONS = 128  # of one sandbox at once
_SO_ORIGINAL_DST = 80
_GREETING_S = 10
_CONNECT_S = 10
_SWITCH_S = 60
_CHUNK = 65536


@dataclass(frozen=True, slots=True, eq=False)
class _Passage:
    name: str
    address: IPv4Address
    task: asyncio.Task[None]


class EgressRelay:
    def __init__(self, listener: socket.socket, resolver: Resolver, budget: Budget) -> None:
        self._rules = Rules()
        self._resolver = resolver
        self._passages: set[_Passage] = set()
        self._acceptor = Acceptor(listener, self._serve, budget.share(MAX_CONNECTIONS))

    def enforce(self, rules: Rules) -> None:
        """Decide by these rules from now on, and end what they do not allow."""
        self._rules = rules
        for passage in list(self._passages):
            if not (rules.permits(passage.address) or (rules.domains and rules.permits_name(passage.name))):
                passage.task.cancel()

    async def close(self) -> None:
        await self._acceptor.close()

    async def _serve(self, connection: socket.socket, reader: StreamReader, writer: StreamWriter) -> None:
        port = _original_port(connection)
        async with asyncio.timeout(_GREETING_S):
            greeted = await _read_greeting(reader)
        if self._rules.domains and self._rules.permits_name(greeted.name):
            await self._pass(greeted, port, reader, writer)
        else:
            writer.transport.abort()

    async def _pass(self, greeted: Greeting, port: int, reader: StreamReader, writer: StreamWriter) -> None:
        address, far_reader, far_writer = await self._connect(greeted.name, port)
        task = asyncio.current_task()
        assert task is not None
        passage = _Passage(greeted.name, address, task)
        self._passages.add(passage)
        try:
            if not self._rules.permits_name(greeted.name):
                return  # the policy changed while we were connecting
            far_writer.write(greeted.forward)
            is_open = not greeted.switches or await _switch(far_reader, writer)
            async with asyncio.TaskGroup() as group:
                if is_open:
                    far_writer.write(greeted.held)
                    group.create_task(_pump(reader, far_writer))
                else:
                    group.create_task(_refuse_more(reader, far_writer, greeted.held))
                group.create_task(_pump(far_reader, writer))
        except* OSError:
            pass  # one side is gone, and with it the passage
        finally:
            self._passages.discard(passage)
            far_writer.transport.abort()

    async def _connect(self, name: str, port: int) -> tuple[IPv4Address, StreamReader, StreamWriter]:
        for address in await self._resolver.addresses(name, self._rules):
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(_CONNECT_S):
                    reader, writer = await asyncio.open_connection(str(address), port, limit=_CHUNK)
                return address, reader, writer
        raise ConnectionError("no address of the name answers")


def _original_port(connection: socket.socket) -> int:
    """The port the guest dialled. The address it dialled does not matter: the name decides where the connection goes."""
    raw = connection.getsockopt(socket.SOL_IP, _SO_ORIGINAL_DST, 16)
    port: int = struct.unpack("!2xH12x", raw)[0]
    if port not in (80, 443):
        raise ConnectionError("a connection that was not sent here by the router")
    return port


async def _read_greeting(stream: StreamReader) -> Greeting:
    reader = GreetingReader()
    while part := await stream.read(reader.room):
        if (greeted := reader.feed(part)) is not None:
            return greeted
    raise EOFError("closed before saying a name")


async def _switch(far: StreamReader, writer: StreamWriter) -> bool:
    """Pass on the head of an answer; True if the two sides speak another protocol from now on."""
    try:
        async with asyncio.timeout(_SWITCH_S):
            head = await far.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise ConnectionError("no answer of HTTP") from error
    writer.write(head)
    await writer.drain()
    return greeting.has_switched(head)


async def _refuse_more(reader: StreamReader, far: StreamWriter, held: bytes) -> None:
    """The connection stayed one of HTTP: a second request on it could name somebody else."""
    if held or await reader.read(1):
        raise ConnectionError("more than one request")
    with contextlib.suppress(OSError):
        far.write_eof()


async def _pump(reader: StreamReader, writer: StreamWriter) -> None:
    """Carry bytes one way, as fast as the other side takes them, then pass the end on."""
    while part := await reader.read(_CHUNK):
        writer.write(part)
        await writer.drain()
    with contextlib.suppress(OSError):
        writer.write_eof()
