"""An opened connection: every request on it is read and gets the headers of its rule; bodies and answers pass as they are."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable

from sandlot.engine.node.network import greeting
from sandlot.engine.node.network.flows import Flow
from sandlot.engine.node.network.request_heads import END, RequestHead, RewrittenHead, Unreadable, parse_head
from sandlot.engine.node.network.wire_sources import WireSource
from sandlot.engine.node.network.wires import CHUNK, Wire

MAX_HEAD = 64 << 10
_HEAD_S = 30  # for the rest of a head that has begun
_LAST_ANSWER_S = 30  # once the guest says no more
_MAX_CHUNK_LINE = 4096
_REASONS = {400: "Bad Request", 403: "Forbidden", 502: "Bad Gateway"}


class Refusal(Exception):
    """What the guest is told in place of an answer."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


async def refuse(near: Wire, refusal: Refusal) -> None:
    body = f"{refusal}\n".encode()
    head = (
        f"HTTP/1.1 {refusal.status} {_REASONS[refusal.status]}\r\nContent-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nX-Sandlot-Egress: refused\r\nConnection: close\r\n\r\n"
    )
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(_HEAD_S):
            await near.write(head.encode() + body)
            await near.end()


class OpenedConnection:
    """`rewrite` has the rule of the moment; it raises `Refusal` where a request must not leave."""

    def __init__(self, near: Wire, far: Wire, rewrite: Callable[[RequestHead], RewrittenHead], flow: Flow) -> None:
        self._near, self._far, self._rewrite, self._flow = near, far, rewrite, flow
        self._source = WireSource(near)

    async def run(self) -> None:
        """Until one side ends. A request that is refused first is answered; later ones end the connection."""
        if not await self._source.waits():
            return
        try:
            first = await self._head()
        except Unreadable as error:
            await refuse(self._near, Refusal(400, f"The request could not be read: {error}."))
            return
        except Refusal as refusal:
            await refuse(self._near, refusal)
            return
        answers = asyncio.ensure_future(self._exchange(first))
        try:
            await answers
        finally:
            answers.cancel()

    async def _exchange(self, first: RequestHead) -> None:
        if first.switches:
            await self._switch()
            return
        requests = asyncio.ensure_future(self._requests(first))
        answers = asyncio.ensure_future(self._answers(WireSource(self._far)))
        try:
            await asyncio.wait({requests, answers}, return_when=asyncio.FIRST_COMPLETED)
            if (
                requests.done() and requests.exception() is None
            ):  # the guest says no more: what it asked for still comes
                await asyncio.wait({answers}, timeout=_LAST_ANSWER_S)
        finally:
            for task in (requests, answers):
                task.cancel()
            await asyncio.gather(requests, answers, return_exceptions=True)

    async def _head(self) -> RequestHead:
        """Read a head and send it on."""
        async with asyncio.timeout(_HEAD_S):
            raw = await self._source.until(END, MAX_HEAD)
        head = parse_head(raw.removesuffix(END))
        _ = head.body_size  # one that is not clear is not sent on
        made = self._rewrite(head)
        self._flow.secrets |= made.secrets
        await self._send(made.raw)
        return head

    async def _requests(self, head: RequestHead) -> None:
        while True:
            await self._body(head.body_size)
            if not await self._source.waits():
                return
            head = await self._head()
            if head.switches:
                raise Unreadable("a WebSocket on a connection that was used before")

    async def _body(self, size: int | None) -> None:
        if size is None:
            await self._chunks()
            return
        while size > 0:
            part = await self._source.some(min(size, CHUNK))
            size -= len(part)
            await self._send(part)

    async def _chunks(self) -> None:
        while True:
            line = await self._source.until(b"\r\n", _MAX_CHUNK_LINE)
            match = re.match(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n]*)?\r\n\Z", line)
            if not match:
                raise Unreadable("not a chunk")
            await self._send(line)
            size = int(match[1], 16)
            if size == 0:
                break
            await self._body(size)
            if (end := await self._source.exactly(2)) != b"\r\n":
                raise Unreadable("not the end of a chunk")
            await self._send(end)
        for _ in range(64):  # what follows a body in chunks: headers of no meaning to us
            line = await self._source.until(b"\r\n", _MAX_CHUNK_LINE)
            await self._send(line)
            if line == b"\r\n":
                return
        raise Unreadable("too many headers behind a body")

    async def _switch(self) -> None:
        """Pass on the answer to the wish for a WebSocket; if the server agrees, everything else as it comes."""
        answers = WireSource(self._far)
        async with asyncio.timeout(60):
            head = await answers.until(END, MAX_HEAD)
        self._flow.received += len(head)
        await self._near.write(head)
        tasks = [asyncio.ensure_future(self._answers(answers))]
        if greeting.has_switched(head):
            tasks.append(asyncio.ensure_future(self._everything()))
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _everything(self) -> None:
        with contextlib.suppress(EOFError):
            while True:
                await self._send(await self._source.some(CHUNK))

    async def _answers(self, source: WireSource) -> None:
        with contextlib.suppress(EOFError):
            while True:
                part = await source.some(CHUNK)
                self._flow.received += len(part)
                await self._near.write(part)
        await self._near.end()

    async def _send(self, data: bytes) -> None:
        self._flow.sent += len(data)
        await self._far.write(data)
