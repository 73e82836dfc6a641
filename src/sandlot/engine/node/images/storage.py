"""The disk under templates: what layers take up, and which of them nobody on this machine needs any more."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from sandlot.engine.node import processes
from sandlot.engine.node.images.imported_images import ImportedImages
from sandlot.engine.node.images.layers import Layers
from sandlot.engine.node.images.step_cache import StepCache

RECENT_S = 3600  # a build that is not finished may use it
ABANDONED_S = 86400  # no layer takes longer to write


class LayerStorage:
    """Layers are shared by all instances of the machine: each writes down what it needs, and keeps what others need."""

    def __init__(
        self, *, cache_dir: Path, layers: Layers, imported: ImportedImages, instance: str, data_dir: Path
    ) -> None:
        self._layers, self._imported = layers, imported
        self._step_cache = StepCache(cache_dir / "steps", layers)
        self._claims = cache_dir / "claims"
        self._instance, self._data_dir = instance, data_dir

    def claim(self, used: Collection[str]) -> None:
        self._claims.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = self._claims / f".{self._instance}-{secrets.token_hex(4)}"
        draft.write_text(json.dumps({"data_dir": str(self._data_dir), "layers": sorted(used)}))
        draft.rename(self._claims / f"{self._instance}.json")

    async def sizes(self, names: Iterable[str]) -> Mapping[str, int]:
        return {name: await self._size(name) for name in names if self._layers.has(name)}

    async def prune(self, used: Collection[str]) -> Mapping[str, int]:
        """Remove layers that no instance needs; their sizes."""
        self.claim(used)
        kept = {*used, *self._claimed(), *self._imported.layers(), *self._step_cache.recent_layers(RECENT_S)}
        before = time.time() - RECENT_S
        unused = [
            name for name in self._layers.names() if name not in kept and _changed(self._layers.path(name)) < before
        ]
        sizes = await self.sizes(unused)
        for name in unused:
            await self._layers.remove(name)
        await asyncio.to_thread(self._step_cache.forget_missing)
        return sizes

    def sweep(self) -> int:
        """Remove what processes that were killed left unfinished; how many."""
        return self._layers.sweep(ABANDONED_S)

    def _claimed(self) -> set[str]:
        found: set[str] = set()
        for path in self._claims.glob("[!.]*.json"):
            claim = json.loads(path.read_text())
            if Path(claim["data_dir"]).is_dir():
                found.update(claim["layers"])
            else:
                path.unlink(missing_ok=True)
        return found

    async def _size(self, name: str) -> int:
        """By a program that goes by descriptors: an image may nest its directories as deep as it likes."""
        done = await processes.run(
            "du", "--summarize", "--block-size=1", "--one-file-system", "--", str(self._layers.path(name)),
            check=False, timeout_s=600,
        )  # fmt: skip
        return int(done.stdout.split()[0]) if done.stdout else 0


def _changed(path: Path) -> float:
    """When the layer was published: a rename changes this, and nothing that the image says does."""
    return path.lstat().st_ctime
