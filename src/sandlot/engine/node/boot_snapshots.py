"""BootSnapshots: states of machines that had only booted. Later ones of the same kind begin there, which is quicker than booting.

A seed is worth its disk once a kind is asked for again. It saves time and nothing else: whoever cannot begin with one boots.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection
from dataclasses import replace
from pathlib import Path

from sandlot.engine.core.errors import EngineError
from sandlot.engine.core.model import NetworkPolicy, NewMachine
from sandlot.engine.node.checkpoint_store import Checkpoints
from sandlot.engine.node.warm_pool import Kind

log = logging.getLogger(__name__)

PREFIX = "seed-"
MOST_NOTED = 256
RETRY_S = 600.0  # after one could not be made, or was no good


class BootSnapshots:
    """`sow` boots a machine like the one it is given and saves its state under the name; `programs` are those in use now."""

    def __init__(
        self,
        *,
        checkpoints: Checkpoints,
        guest: str,
        layers_dir: Path,
        sow: Callable[[NewMachine, str], Awaitable[None]],
        most: int,
        programs: Callable[[], Awaitable[Collection[str]]],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._checkpoints, self._guest, self._layers_dir = checkpoints, guest, layers_dir
        self._sow, self._most, self._programs, self._now = sow, most, programs, now
        self._asked: OrderedDict[str, float] = OrderedDict()  # names, and from when on another asking counts
        self._wanted: OrderedDict[str, NewMachine] = OrderedDict()
        self._wake = asyncio.Event()
        self.used = 0  # how many machines began with one

    def find(self, new: NewMachine, program: str) -> str | None:
        """The seed for this machine; None: it has to boot, like everything that has a state of its own to begin with."""
        if not self._most or new.checkpoint is not None:
            return None
        name = self._name(new, program)
        if self._checkpoints.get(name) is not None:
            self._checkpoints.touch(name)
            self.used += 1
            return name
        self._note(name, new)
        return None

    def _name(self, new: NewMachine, program: str) -> str:
        """Whatever makes a booted machine another one is part of it."""
        digest = hashlib.sha256(repr((Kind.of(new), self._guest, program)).encode()).hexdigest()[:16]
        return f"{PREFIX}{new.template.id}-{digest}"

    def _note(self, name: str, new: NewMachine) -> None:
        counts_from = self._asked.pop(name, None)
        self._asked[name] = self._now() if counts_from is None else counts_from
        while len(self._asked) > MOST_NOTED:
            self._asked.popitem(last=False)
        if counts_from is not None and self._now() >= counts_from:
            self._wanted[name] = replace(new, network=NetworkPolicy(), env_vars={})
            self._wake.set()

    async def run(self, quiet: Callable[[], Awaitable[None]]) -> None:
        """Make the seeds that are worth it, one at a time and when it is quiet, for as long as the server runs."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._wanted:
                await quiet()
                try:
                    await self.step()
                except Exception:  # a host that is broken for a moment: sandboxes boot meanwhile
                    log.exception("could not look after saved states of booted machines; it is tried again")

    async def step(self) -> None:
        name, new = self._wanted.popitem(last=False)
        if self._checkpoints.get(name) is not None:
            return
        try:
            await self._sow(new, name)
        except (EngineError, OSError) as error:  # a full disk, say
            self._asked[name] = self._now() + RETRY_S
            log.warning(
                "sandboxes of template %s go on booting, their state could not be saved: %s", new.template.name, error
            )
        await self.tidy()

    async def spoiled(self, name: str) -> None:
        """A machine could not begin with it."""
        self._asked[name] = self._now() + RETRY_S
        await self._checkpoints.remove(name)

    async def forget(self, template_id: str) -> None:
        """The template is gone, or is another one now."""
        for name in self._names():
            if name.startswith(f"{PREFIX}{template_id}-"):
                await self._checkpoints.remove(name)

    async def tidy(self) -> None:
        """Take away what cannot be used any more, and beyond the limit what was not used for longest."""
        names = self._names()
        programs = await self._programs() if names else ()
        usable = []
        for name in names:
            saved = self._checkpoints.get(name)
            is_current = saved is not None and saved.guest == self._guest and saved.program in programs
            if saved and is_current and all((self._layers_dir / layer).is_dir() for layer in saved.layers):
                usable.append(name)
            else:
                await self._checkpoints.remove(name)
        usable.sort(key=self._checkpoints.used_at, reverse=True)
        for name in usable[self._most :]:
            await self._checkpoints.remove(name)

    def _names(self) -> list[str]:
        return [name for name in self._checkpoints.names() if is_seed(name)]


def is_seed(name: str) -> bool:
    return name.startswith(PREFIX)
