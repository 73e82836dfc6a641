"""Certificates for names whose connections are opened, as the relays have them: asked for at the server, kept for a while.

The authority's key is with the server alone, which signs only what a rule of that slot names.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from collections import OrderedDict
from collections.abc import Callable

MOST = 256
_RENEW_S = 24 * 3600
_ANSWER_S = 10
Ask = Callable[[int, str], None]  # for a slot, and a name


class Leaves:
    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._contexts: OrderedDict[str, tuple[float, ssl.SSLContext]] = OrderedDict()
        self._waiting: dict[str, asyncio.Future[ssl.SSLContext]] = {}

    async def context(self, slot: int, name: str) -> ssl.SSLContext:
        """What the server of this name has, as far as a guest is concerned. Raises `ConnectionError`, `TimeoutError`."""
        found = self._contexts.get(name)
        if found is not None and time.monotonic() - found[0] < _RENEW_S:
            self._contexts.move_to_end(name)
            return found[1]
        waiting = self._waiting.get(name)
        if waiting is None:
            waiting = self._waiting[name] = asyncio.get_running_loop().create_future()
            self._ask(slot, name)
        try:
            async with asyncio.timeout(_ANSWER_S):
                return await asyncio.shield(waiting)
        except TimeoutError:
            self._waiting.pop(name, None)  # the next one asks again
            raise

    def take(self, name: str, certified: str | None) -> None:
        """The answer: a key with its certificate, or none."""
        waiting = self._waiting.pop(name, None)
        if certified is None:
            if waiting is not None and not waiting.done():
                waiting.set_exception(ConnectionError("no certificate for this name"))
                waiting.exception()  # whoever asked may be gone
            return
        context = _context(certified)
        self._contexts[name] = time.monotonic(), context
        if len(self._contexts) > MOST:
            self._contexts.popitem(last=False)
        if waiting is not None and not waiting.done():
            waiting.set_result(context)


def _context(certified: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    fd = os.memfd_create("leaf", os.MFD_CLOEXEC)  # the library reads files only, and none of this belongs on a disk
    try:
        os.write(fd, certified.encode())
        context.load_cert_chain(f"/proc/self/fd/{fd}")
    finally:
        os.close(fd)
    return context
