"""Housekeeping: what templates take up on disk, and making room."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from sandlot.engine.model import Template
from sandlot.engine.ports import BuildStore, TemplateStore


class Storage(Protocol):
    """The layers of a machine."""

    def claim(self, used: Collection[str]) -> None: ...

    async def sizes(self, names: Iterable[str]) -> Mapping[str, int]: ...

    async def prune(self, used: Collection[str]) -> Mapping[str, int]: ...


class LayerUser(Protocol):
    async def layers_in_use(self) -> set[str]:
        """Layers that machines and saved states need."""


@dataclass(frozen=True, slots=True)
class Share:
    """What one template takes up: in all, and what would be free without it."""

    template: Template
    bytes: int
    own_bytes: int


class Housekeeping:
    def __init__(self, *, templates: TemplateStore, builds: BuildStore, node: LayerUser, storage: Storage) -> None:
        self._templates, self._builds, self._node, self._storage = templates, builds, node, storage

    async def used(self) -> set[str]:
        shared = [*await self._templates.list(None), *await self._templates.snapshots(None)]
        built = [build.content.layers for build in await self._builds.query() if build.content is not None]
        layers = {layer for template in shared for layer in template.layers}
        return layers | {layer for chain in built for layer in chain} | await self._node.layers_in_use()

    async def claim(self) -> None:
        """Have other instances of the machine know what this one needs."""
        self._storage.claim(await self.used())

    async def prune(self) -> Mapping[str, int]:
        """Remove layers that no template, sandbox or recent build needs; their sizes."""
        return await self._storage.prune(await self.used())

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
