"""Asks the resolvers upstream, from the host's side, on behalf of sandboxes."""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import Sequence
from contextlib import closing
from ipaddress import IPv4Address, IPv4Network, ip_address
from pathlib import Path

from sandlot.addresses import is_public
from sandlot.engine.core.network_policy import Rules
from sandlot.engine.node.network import dnswire
from sandlot.engine.node.network.dnswire import Malformed, Question

RESOLV_CONF = Path("/etc/resolv.conf")
DNS_PORT = 53
_TIMEOUT_S = 2.5
_ROUNDS = 2
_MAX_ADDRESSES = 4


class Resolver:
    """One per host. `servers` are the operator's and are trusted; a policy's own servers must be reachable by that policy."""

    def __init__(self, servers: Sequence[str], opened: Sequence[IPv4Network], pool: IPv4Network) -> None:
        self._servers, self._opened, self._pool = tuple(servers), tuple(opened), pool
        self._read_at = -1.0
        self._host_servers: tuple[str, ...] = ()

    def reachable(self, address: IPv4Address) -> bool:
        """Whether the relays may connect to an address for a sandbox: not the host, not a slot, not a closed range."""
        return address not in self._pool and is_public(address, self._opened)

    def servers(self, rules: Rules) -> tuple[str, ...]:
        if rules.dns_servers is None:
            return self._servers or self._servers_of_host()
        return tuple(str(server) for server in rules.dns_servers if rules.permits(server) and self.reachable(server))

    async def ask(self, message: bytes, question: Question, rules: Rules, *, tcp: bool) -> bytes | None:
        """The first proper answer, under an id and port nobody can guess; None if no server answers."""
        servers = self.servers(rules)
        for _ in range(_ROUNDS):
            for server in servers:
                id = secrets.randbelow(1 << 16)
                exchange = _exchange_tcp if tcp else _exchange_udp
                try:
                    async with asyncio.timeout(_TIMEOUT_S):
                        answer = await exchange(server, dnswire.with_id(message, id), question, id)
                except (OSError, TimeoutError, EOFError):
                    continue
                return dnswire.with_id(answer, question.id)
        return None

    async def addresses(self, name: str, rules: Rules) -> list[IPv4Address]:
        """Where a name leads, as far as a relay may go there."""
        try:
            return [address for address in [IPv4Address(name)] if self.reachable(address)]
        except ValueError:
            pass
        try:
            message = dnswire.query(name, 0)
            question = dnswire.read_query(message)
            answer = await self.ask(message, question, rules, tcp=False)
            if answer is not None and dnswire.is_truncated(answer):
                answer = await self.ask(message, question, rules, tcp=True)
            found = dnswire.addresses(answer) if answer is not None else []
        except Malformed:
            return []
        return [address for address in found if self.reachable(address)][:_MAX_ADDRESSES]

    def _servers_of_host(self) -> tuple[str, ...]:
        try:
            changed_at = RESOLV_CONF.stat().st_mtime
            if changed_at != self._read_at:
                self._host_servers, self._read_at = read_resolv_conf(RESOLV_CONF.read_text()), changed_at
        except OSError:
            return ()
        return self._host_servers


def read_resolv_conf(text: str) -> tuple[str, ...]:
    servers = []
    for line in text.splitlines():
        words = line.split()
        if len(words) >= 2 and words[0] == "nameserver":
            try:
                ip_address(words[1].partition("%")[0])
            except ValueError:
                continue
            servers.append(words[1])
    return tuple(servers[:3])


async def _exchange_udp(server: str, message: bytes, question: Question, id: int) -> bytes:
    loop = asyncio.get_running_loop()
    with closing(socket.socket(_family(server), socket.SOCK_DGRAM)) as wire:
        wire.setblocking(False)
        wire.connect(_endpoint(server))
        wire.send(message)
        while True:
            answer = await loop.sock_recv(wire, dnswire.MAX_MESSAGE)
            if dnswire.answers(answer, question, id):
                return answer


async def _exchange_tcp(server: str, message: bytes, question: Question, id: int) -> bytes:
    host, port = _endpoint(server)[:2]
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(len(message).to_bytes(2) + message)
        await writer.drain()
        answer = await reader.readexactly(int.from_bytes(await reader.readexactly(2)))
    finally:
        writer.close()
    if not dnswire.answers(answer, question, id):
        raise EOFError("an answer to something else")
    return answer


def _family(server: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in server else socket.AF_INET


def _endpoint(server: str) -> tuple[str, int]:
    return server, DNS_PORT
