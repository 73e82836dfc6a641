"""The name relay of a slot: answers at the guest's gateway with what the resolvers say, as far as the policy lets names be known."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from sandlot.engine.core.network_policy import Rules
from sandlot.engine.node.network import dnswire
from sandlot.engine.node.network.accepting import Acceptor, Budget
from sandlot.engine.node.network.dnswire import Malformed
from sandlot.engine.node.network.resolver import Resolver

MAX_AT_ONCE = 64  # queries of one sandbox that wait for an answer; more are dropped, and clients ask again
_MAX_CONNECTIONS = 16
_PER_WAKE = 16
_IDLE_S = 10


class NameRelay:
    def __init__(self, udp: socket.socket, tcp: socket.socket, resolver: Resolver, budget: Budget) -> None:
        self.rules = Rules()
        self.refused: Callable[[str], None] = lambda _: None
        self._udp, self._resolver, self._share = udp, resolver, budget.share(MAX_AT_ONCE)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(udp, self._read)
        self._acceptor = Acceptor(tcp, self._serve, budget.share(_MAX_CONNECTIONS))

    async def close(self) -> None:
        self._loop.remove_reader(self._udp)
        await self._share.close()
        await self._acceptor.close()

    def _read(self) -> None:
        for _ in range(_PER_WAKE):  # a flood from one guest must not hold the loop
            try:
                message, sender = self._udp.recvfrom(dnswire.MAX_QUERY + 1)
            except (BlockingIOError, InterruptedError, ConnectionError):
                return
            if self._share.has_room():
                self._share.run(self._answer_datagram(message, sender))

    async def _answer_datagram(self, message: bytes, sender: tuple[str, int]) -> None:
        answer = await self._answer(message, tcp=False)
        if answer is not None:
            try:
                self._udp.sendto(answer, sender)
            except OSError:
                return  # the guest's buffer is full or it is gone: it asks again

    async def _serve(self, _: socket.socket, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            async with asyncio.timeout(_IDLE_S):
                length = int.from_bytes(await reader.readexactly(2))
                message = await reader.readexactly(min(length, dnswire.MAX_QUERY + 1))
            answer = await self._answer(message, tcp=True)
            if answer is None:
                return
            async with asyncio.timeout(_IDLE_S):
                writer.write(len(answer).to_bytes(2) + answer)
                await writer.drain()

    async def _answer(self, message: bytes, *, tcp: bool) -> bytes | None:
        """What the guest gets; None for bytes that are no query."""
        try:
            question = dnswire.read_query(message)
        except Malformed:
            return None
        if not self.rules.resolves(question.name):
            self.refused(question.name)
            return dnswire.refusal(question, dnswire.REFUSED)
        answer = await self._resolver.ask(message, question, self.rules, tcp=tcp)
        return answer if answer is not None else dnswire.refusal(question, dnswire.SERVFAIL)
