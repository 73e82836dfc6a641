"""The egress relay of a slot: lets a connection out by the name it asks for, to an address that the relay looked up itself.

What a header rule names is opened: TLS ends here, each request gets its headers, and a connection of our own goes to the
server, whose certificate is checked. Everything else passes as it came.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from asyncio import StreamReader, StreamWriter
from collections.abc import Awaitable, Iterator
from dataclasses import dataclass, replace
from ipaddress import IPv4Address
from typing import Protocol, TypeVar

from sandlot.engine.core.header_rules import secret_names
from sandlot.engine.core.model import HeaderRule
from sandlot.engine.core.network_policy import Rules
from sandlot.engine.node.network import greeting, request_heads
from sandlot.engine.node.network.accepting import Acceptor, Budget
from sandlot.engine.node.network.dialer import HANDSHAKE_S, Dialer
from sandlot.engine.node.network.flows import Flow, FlowLog
from sandlot.engine.node.network.greeting import Greeting, GreetingReader
from sandlot.engine.node.network.leaves import Leaves
from sandlot.engine.node.network.opened import OpenedConnection, Refusal, refuse
from sandlot.engine.node.network.request_heads import END, RequestHead, RewrittenHead, Unreadable
from sandlot.engine.node.network.wire_sources import WireSource
from sandlot.engine.node.network.wires import StreamWire, TlsWire, Wire

T = TypeVar("T")
MAX_CONNECTIONS = 128  # of one sandbox at once
_SO_ORIGINAL_DST = 80
_WEB_PORTS = (80, 443)
_GREETING_S = 10
_SILENCE_S = 3  # after which a connection that may go by its address goes, without a name
_SWITCH_S = 60


@dataclass(frozen=True, slots=True, eq=False)
class _Passage:
    name: str
    address: IPv4Address | None
    rules: Rules  # when it began
    rule: HeaderRule | None
    task: asyncio.Task[None]

    def stays(self, rules: Rules) -> bool:
        if rules.proxy != self.rules.proxy or (self.rule and rules.header_rule(self.name) is None):
            return False
        by_address = self.address is not None and rules.permits(self.address)
        return by_address or (bool(rules.domains) and rules.permits_name(self.name))


class EgressTools(Protocol):
    """What the egress relays of all slots share."""

    @property
    def dialer(self) -> Dialer: ...

    @property
    def leaves(self) -> Leaves: ...

    @property
    def connections(self) -> Budget: ...


class EgressRelay:
    def __init__(self, slot: int, listener: socket.socket, tools: EgressTools, flows: FlowLog) -> None:
        self._slot, self._rules = slot, Rules()
        self._tools, self._flows = tools, flows
        self._passages: set[_Passage] = set()
        self._acceptor = Acceptor(listener, self._serve, tools.connections.share(MAX_CONNECTIONS))

    def enforce(self, rules: Rules) -> None:
        """Decide by these rules from now on, and end what they do not allow."""
        self._rules = rules
        for passage in list(self._passages):
            if not passage.stays(rules):
                passage.task.cancel()

    async def close(self) -> None:
        await self._acceptor.close()

    async def _serve(self, connection: socket.socket, reader: StreamReader, writer: StreamWriter) -> None:
        address, port = _destination(connection)
        near, rules = StreamWire(reader, writer), self._rules
        if port not in _WEB_PORTS and rules.proxy is None:
            raise ConnectionError("a connection that was not sent here by the router")
        hello = GreetingReader()
        greeted = await _read_greeting(near, hello, rules.permits(address)) if port in _WEB_PORTS else None
        name = greeted.name if greeted else ""
        rule = rules.header_rule(name) if greeted else None
        if greeted and rule and (rules.permits_name(name) or rules.permits(address)):
            await self._by_rule(near, greeted, rule, port)
        elif greeted and rules.domains and rules.permits_name(name):
            await self._by_name(near, greeted, port)
        elif rules.permits(address):
            await self._by_address(near, hello.seen, name or str(address), (address, port))
        else:
            self._flows.deny(name or str(address), port, "not allowed by the network policy")
            near.abort()

    async def _by_rule(self, near: Wire, greeted: Greeting, rule: HeaderRule, port: int) -> None:
        if greeted.request is None:
            await self._open(near, greeted, rule, port)
        elif secret_names([rule]):
            self._flows.deny(greeted.name, port, "a secret does not leave without TLS")
            await refuse(near, Refusal(403, f"A secret does not leave by plain HTTP. Use https://{greeted.name}/."))
        else:
            head = request_heads.parse_head(greeted.forward.partition(END)[0])
            raw = request_heads.rewrite(head, rule, {}).raw
            forward = raw if greeted.switches else raw + greeted.held
            await self._by_name(near, replace(greeted, forward=forward), port, rule)

    async def _open(self, near: Wire, greeted: Greeting, rule: HeaderRule, port: int) -> None:
        name = greeted.name
        inner = TlsWire(near, await self._tools.leaves.context(self._slot, name), first=greeted.forward)
        with self._flow(Flow(name, port, allowed=True, rule=rule.domain)) as flow:
            try:
                await inner.shake_hands(HANDSHAKE_S)
            except ssl.SSLError:
                flow.allowed, flow.reason = False, "the client does not trust the certificate of this server"
                raise
            try:
                address, below = await self._tools.dialer.by_name(name, port, self._rules)
                far = await self._tools.dialer.secured(below, name)
            except (OSError, TimeoutError) as error:
                flow.allowed, flow.reason = False, _problem(error)
                await refuse(inner, Refusal(502, f"{name} cannot be reached: {_problem(error)}."))
                return
            with self._passing(name, address, below, rule):
                await OpenedConnection(inner, far, lambda head: self._rewritten(name, head), flow).run()

    def _rewritten(self, name: str, head: RequestHead) -> RewrittenHead:
        rule = self._rules.header_rule(name)
        if rule is None or head.name != name:
            raise Refusal(400, f"This connection is for {name}, and the request names another host.")
        try:
            return request_heads.rewrite(head, rule, self._rules.secrets)
        except KeyError as missing:
            named = missing.args[0]
            raise Refusal(
                403, f"The secret {named!r}, which a network rule for {name} names, does not exist."
            ) from None

    async def _by_name(self, near: Wire, greeted: Greeting, port: int, rule: HeaderRule | None = None) -> None:
        with self._flow(Flow(greeted.name, port, allowed=True, rule=rule.domain if rule else None)) as flow:
            address, far = await self._connected(flow, self._tools.dialer.by_name(greeted.name, port, self._rules))
            with self._passing(greeted.name, address, far, rule):
                await _splice(near, far, greeted, flow)

    async def _by_address(self, near: Wire, seen: bytes, host: str, to: tuple[IPv4Address, int]) -> None:
        with self._flow(Flow(host, to[1], allowed=True)) as flow:
            far = await self._connected(flow, self._tools.dialer.by_address(*to, self._rules))
            with self._passing("", to[0], far, None):
                await _splice(near, far, Greeting("", seen), flow)

    async def _connected(self, flow: Flow, dial: Awaitable[T]) -> T:
        try:
            return await dial
        except (OSError, TimeoutError) as error:
            flow.allowed, flow.reason = False, _problem(error)
            raise

    @contextlib.contextmanager
    def _flow(self, flow: Flow) -> Iterator[Flow]:
        self._flows.begin(flow)
        try:
            yield flow
        finally:
            self._flows.end(flow)

    @contextlib.contextmanager
    def _passing(self, name: str, address: IPv4Address | None, far: Wire, rule: HeaderRule | None) -> Iterator[None]:
        task = asyncio.current_task()
        assert task is not None
        passage = _Passage(name, address, self._rules, rule, task)
        self._passages.add(passage)
        try:
            if not passage.stays(self._rules):
                raise ConnectionError("the policy changed while we were connecting")
            yield
        finally:
            self._passages.discard(passage)
            far.abort()


def _problem(error: BaseException) -> str:
    """For the guest and the log: nothing of ours is in it."""
    match error:
        case ssl.SSLCertVerificationError():
            return f"its certificate is not valid ({error.verify_message})"
        case ssl.SSLError():
            return "it does not speak TLS as it should"
        case TimeoutError():
            return "it does not answer in time"
        case ConnectionError() if error.errno is None and error.args:
            return str(error)
        case _:
            return "it does not answer"


def _destination(connection: socket.socket) -> tuple[IPv4Address, int]:
    """What the guest dialled. Where a name decides, the address does not matter."""
    raw = connection.getsockopt(socket.SOL_IP, _SO_ORIGINAL_DST, 16)
    port, packed = struct.unpack("!2xH4s8x", raw)
    return IPv4Address(packed), port


async def _read_greeting(wire: Wire, reader: GreetingReader, may_be_silent: bool) -> Greeting | None:
    """Whom a connection is for; None if it says no name and need not."""
    try:
        async with asyncio.timeout(_SILENCE_S if may_be_silent else _GREETING_S):
            while part := await wire.read():
                if (greeted := reader.feed(part)) is not None:
                    return greeted
            raise EOFError("closed before saying a name")
    except (Unreadable, TimeoutError):
        if may_be_silent:
            return None
        raise


async def _splice(near: Wire, far: Wire, greeted: Greeting, flow: Flow) -> None:
    flow.sent += len(greeted.forward)
    if greeted.forward:
        await far.write(greeted.forward)
    answers = WireSource(far)
    is_open = not greeted.switches or await _switch(answers, near, flow)
    try:
        async with asyncio.TaskGroup() as group:
            if is_open:
                group.create_task(_send(near, far, greeted.held if greeted.switches else b"", flow))
            else:
                group.create_task(_refuse_more(near, far, greeted.held))
            group.create_task(_receive(answers, far, near, flow))
    except* OSError:
        pass  # one side is gone, and with it the passage


async def _switch(far: WireSource, near: Wire, flow: Flow) -> bool:
    """Pass on the head of an answer; True if the two sides speak another protocol from now on."""
    try:
        async with asyncio.timeout(_SWITCH_S):
            head = await far.until(END, 65536)
    except (EOFError, Unreadable) as error:
        raise ConnectionError("no answer of HTTP") from error
    flow.received += len(head)
    await near.write(head)
    return greeting.has_switched(head)


async def _refuse_more(near: Wire, far: Wire, held: bytes) -> None:
    """The connection stayed one of HTTP: a second request on it could name somebody else."""
    if held or await near.read():
        raise ConnectionError("more than one request")
    await far.end()


async def _send(near: Wire, far: Wire, held: bytes, flow: Flow) -> None:
    """Carry bytes one way, as fast as the other side takes them, then pass the end on."""
    part = held or await near.read()
    while part:
        flow.sent += len(part)
        await far.write(part)
        part = await near.read()
    await far.end()


async def _receive(answers: WireSource, far: Wire, near: Wire, flow: Flow) -> None:
    part = answers.rest() or await far.read()
    while part:
        flow.received += len(part)
        await near.write(part)
        part = await far.read()
    await near.end()
