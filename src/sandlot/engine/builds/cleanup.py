"""Cleanup: what templates take up on disk, and making room."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from sandlot.engine.core.model import Template
from sandlot.engine.core.ports import BuildStore, TemplateStore

log = logging.getLogger(__name__)

INTERVAL_S = 3600.0


class Storage(Protocol):
    """The layers of a machine."""

    def claim(self, used: Collection[str]) -> None: ...

    async def sizes(self, names: Iterable[str]) -> Mapping[str, int]: ...

    async def prune(self, used: Collection[str]) -> Mapping[str, int]: ...

    def sweep(self) -> int:
        """Remove what was never finished; how many."""


class Archives(Protocol):
    """What callers sent ahead of their builds."""

    def purge(self) -> int:
        """Delete what nobody needs; how many."""


class LayerUser(Protocol):
    async def layers_in_use(self) -> frozenset[str]:
        """Layers that machines and saved states need."""


@dataclass(frozen=True, slots=True)
class Share:
    """What one template takes up: in all, and what would be free without it."""

    template: Template
    bytes: int
    own_bytes: int


class Cleanup:
    def __init__(
        self, *, templates: TemplateStore, builds: BuildStore, node: LayerUser, storage: Storage, archives: Archives
    ) -> None:
        self._templates, self._builds, self._node = templates, builds, node
        self._storage, self._archives = storage, archives
        self._claimed: set[str] = set()

    async def run(self, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        """Delete archives that no build needs any more, and what was never finished, for as long as the server runs."""
        while True:
            try:
                archives = await asyncio.to_thread(self._archives.purge)
                halves = await asyncio.to_thread(self._storage.sweep)
                if archives or halves:
                    log.info(
                        "deleted %d uploaded archives and %d unfinished layers that nobody needs", archives, halves
                    )
            except OSError:  # the disk is away for a moment: the next pass looks again
                log.exception("could not look for what nobody needs any more; it is tried again")
            await sleep(INTERVAL_S)

    async def used(self) -> set[str]:
        shared = [*await self._templates.list(None), *await self._templates.snapshots(None)]
        built = [build.content.layers for build in await self._builds.query() if build.content is not None]
        layers = {layer for template in shared for layer in template.layers}
        return layers | {layer for chain in built for layer in chain} | await self._node.layers_in_use()

    async def claim(self) -> None:
        """Have other instances of the machine know what this one needs."""
        self._claimed = await self.used()
        self._storage.claim(self._claimed)

    async def need(self, layers: Collection[str]) -> None:
        """The same, for layers that are needed from now on; what was needed before is claimed until the next full look."""
        if not self._claimed.issuperset(layers):
            await self.claim()

    async def prune(self) -> Mapping[str, int]:
        """Remove layers that no template, sandbox or recent build needs; their sizes."""
        self._claimed = await self.used()
        return await self._storage.prune(self._claimed)

    async def shares(self, team_id: str) -> Sequence[Share]:
        templates = await self._templates.list(team_id)
        sizes = await self._storage.sizes({layer for template in templates for layer in template.layers})
        users: dict[str, int] = {}
        for template in templates:
            for layer in set(template.layers):
                users[layer] = users.get(layer, 0) + 1
        return [
            Share(
                template,
                sum(sizes.get(layer, 0) for layer in set(template.layers)),
                sum(sizes.get(layer, 0) for layer in set(template.layers) if users[layer] == 1),
            )
            for template in templates
        ]
