"""Images that were imported from files: which layer each name stands for."""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from pathlib import Path

from sandlot.engine.core.errors import InvalidRequest, StepFailed
from sandlot.engine.core.model import Image
from sandlot.engine.node.images import importing
from sandlot.engine.node.images.archived import read_image
from sandlot.engine.node.images.layers import Layers
from sandlot.program import SANDLOT

PREFIX = "imported/"
MOST_BYTES = 100 << 30
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,127}")


class ImportedImages:
    def __init__(self, directory: Path, layers: Layers) -> None:
        self._directory, self._layers = directory, layers

    async def import_image(self, source: Path, name: str) -> str:
        """Unpack an image from a file or directory and keep it under a name; returns its layer."""
        path = self._path(name)
        scratch = importing.scratch(self._layers) / secrets.token_hex(6)
        scratch.mkdir(mode=0o700)
        try:
            found = read_image(source if source.is_dir() else await _unpacked(source, scratch / "image"))
            layer = importing.layer_name(found.config_digest, [_digest(path) for path in found.layers])
            if not self._layers.has(layer):
                copies = [
                    await importing.readable(_linked(file, scratch / f"{n}"), MOST_BYTES)
                    for n, file in enumerate(found.layers)
                ]
                await importing.unpack(self._layers, layer, copies, MOST_BYTES)
        finally:
            importing.remove(scratch)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
        draft.write_text(json.dumps({"layer": layer, "config": found.config}))
        draft.rename(path)
        return layer

    def find(self, ref: str) -> Image:
        name = ref.removeprefix(PREFIX)
        try:
            record = json.loads(self._path(name).read_text())
        except (OSError, ValueError, InvalidRequest) as error:
            raise StepFailed(
                f"no image was imported under the name {name!r}; {SANDLOT} template import imports one"
            ) from error
        if not self._layers.has(record["layer"]):
            raise StepFailed(f"the imported image {name!r} is no longer on this machine; import it again")
        return importing.as_image(f"{ref}: imported from a file", record["layer"], record["config"])

    def layers(self) -> set[str]:
        """Layers that must not be pruned."""
        return {json.loads(path.read_text())["layer"] for path in self._directory.glob("[!.]*.json")}

    def _path(self, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise InvalidRequest(
                f"{name[:120]!r} cannot name an image: use lower-case letters, digits, '.', '-' and '_'"
            )
        return self._directory / f"{name}.json"


async def _unpacked(file: Path, into: Path) -> Path:
    into.mkdir(mode=0o700)
    try:
        await importing.unpack_into(into, [file], MOST_BYTES)
    except StepFailed as error:
        raise InvalidRequest(f"{file} is not an archive of an image: {error}") from error
    return into


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def _linked(file: Path, target: Path) -> Path:
    """Another name for a file: what reads it may remove it."""
    try:
        target.hardlink_to(file)
    except OSError:
        target.write_bytes(file.read_bytes())
    return target
