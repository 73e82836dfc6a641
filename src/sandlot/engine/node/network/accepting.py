"""Serves connections of guests, each in a task of its own, and shares what the relays have among sandboxes."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

log = logging.getLogger(__name__)

_CHUNK = 65536
_FLUSH_S = 10

Serve = Callable[[socket.socket, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Budget:
    """How many tasks all sandboxes together may have at once, so that hostile ones leave the process descriptors.

    When all are taken, a sandbox that has fewer than another takes one of that other's, the oldest first: nobody can
    use up what the others need.
    """

    def __init__(self, limit: int) -> None:
        self.left = limit
        self._shares: set[BudgetShare] = set()

    def share(self, most: int) -> BudgetShare:
        """The part of one sandbox: what it may take by itself, as long as the others leave room."""
        share = BudgetShare(self, most)
        self._shares.add(share)
        return share

    def makes_room(self, share: BudgetShare) -> bool:
        if self.left > 0:
            return True
        largest = max(self._shares, key=lambda each: len(each.tasks))
        if len(largest.tasks) <= len(share.tasks) + 1:
            return False
        largest.give_up_oldest()
        return True

    def forget(self, share: BudgetShare) -> None:
        self._shares.discard(share)


class BudgetShare:
    def __init__(self, budget: Budget, most: int) -> None:
        self._budget, self._most = budget, most
        self.tasks: dict[asyncio.Task[None], None] = {}  # in the order of their start

    def has_room(self) -> bool:
        return len(self.tasks) < self._most and self._budget.makes_room(self)

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self.tasks[task] = None
        self._budget.left -= 1
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task in self.tasks:
            del self.tasks[task]
            self._budget.left += 1

    def give_up_oldest(self) -> None:
        oldest = next(iter(self.tasks))
        self._ended(oldest)
        oldest.cancel()

    async def close(self) -> None:
        self._budget.forget(self)
        tasks = list(self.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Acceptor:
    """Serves each connection of a listener, up to the limit of its share; an idle listener costs no task."""

    def __init__(self, listener: socket.socket, serve: Serve, share: BudgetShare) -> None:
        self._listener, self._serve, self._share = listener, serve, share
        self._loop = asyncio.get_running_loop()
        self._is_closed = False
        self._loop.add_reader(listener, self._accept)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError, InterruptedError):
            return
        except OSError as error:  # out of descriptors: look away for a moment, the listener would report itself forever
            log.warning("a sandbox's connection could not be accepted: %s", error)
            self._loop.remove_reader(self._listener)
            self._loop.call_later(1, self._look_again)
            return
        if not self._share.has_room():
            connection.close()
            return
        connection.setblocking(False)
        self._share.run(self._serve_one(connection))

    def _look_again(self) -> None:
        if not self._is_closed:
            self._loop.add_reader(self._listener, self._accept)

    async def _serve_one(self, connection: socket.socket) -> None:
        reader, writer = await asyncio.open_connection(sock=connection, limit=_CHUNK)
        try:
            await self._serve(connection, reader, writer)
            async with asyncio.timeout(_FLUSH_S):  # a guest that does not read holds nothing up for longer
                writer.close()
                await writer.wait_closed()
        except (OSError, TimeoutError, EOFError, ValueError) as error:
            log.debug("a sandbox's connection ended: %r", error)
        except Exception:
            log.exception("a sandbox's connection failed in the relay")
        finally:
            writer.transport.abort()

    async def close(self) -> None:
        self._is_closed = True
        self._loop.remove_reader(self._listener)
        await self._share.close()
