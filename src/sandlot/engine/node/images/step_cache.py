"""The step cache: which layer holds the changes of a step, by key. All builds on the host share it."""

from __future__ import annotations

import json
import re
import secrets
import time
from pathlib import Path

from sandlot.engine.core.model import LayerResult
from sandlot.engine.node.images.layers import Layers

_KEY = re.compile(r"[0-9a-f]{64}")


class StepCache:
    """A small file per key. A key whose layer is gone has no result; a later result replaces an earlier one."""

    def __init__(self, directory: Path, layers: Layers) -> None:
        self._directory, self._layers = directory, layers

    def get(self, key: str) -> LayerResult | None:
        try:
            found = json.loads(self._path(key).read_text())
            result = LayerResult(layer=found["layer"], home=found["home"])
            self._path(key).touch()  # what was used recently is not pruned
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return result if result.layer is None or self._layers.has(result.layer) else None

    def put(self, key: str, result: LayerResult) -> None:
        path = self._path(key)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
        draft.write_text(json.dumps({"layer": result.layer, "home": result.home}))
        draft.rename(path)

    def recent_layers(self, within_s: float) -> set[str]:
        """Layers of steps that a build used in this time."""
        after = time.time() - within_s
        paths = [path for path in self._directory.glob("??/*") if _KEY.fullmatch(path.name)]
        return {json.loads(path.read_text())["layer"] or "" for path in paths if path.stat().st_mtime > after}

    def forget_missing(self) -> int:
        """Remove keys whose layers are gone; how many."""
        gone = 0
        for path in self._directory.glob("??/*"):
            layer = json.loads(path.read_text())["layer"] if _KEY.fullmatch(path.name) else None
            if layer is not None and not self._layers.has(layer):
                path.unlink(missing_ok=True)
                gone += 1
        return gone

    def _path(self, key: str) -> Path:
        if not _KEY.fullmatch(key):
            raise ValueError(f"{key!r} is not the key of a step")
        return self._directory / key[:2] / key
