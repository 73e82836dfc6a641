"""Images in files: an OCI layout or what `docker save` writes, as a directory or an archive of one."""

from __future__ import annotations

import hashlib
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandlot import bounded_json
from sandlot.engine.core.errors import InvalidRequest

MANIFEST_LIMIT = 8 << 20
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm"}


@dataclass(frozen=True, slots=True)
class ArchivedImage:
    config: dict[str, Any]
    config_digest: str
    layers: tuple[Path, ...]  # bottom first


def read_image(directory: Path) -> ArchivedImage:
    """Raises `InvalidRequest`. Everything that has a digest is checked against it."""
    try:
        if (directory / "index.json").is_file():
            return _layout(directory)
        if (directory / "manifest.json").is_file():
            return _docker_save(directory)
    except (KeyError, IndexError, AttributeError, TypeError, ValueError, OSError) as error:
        raise InvalidRequest(f"the image in {directory} cannot be read: {error}") from error
    raise InvalidRequest(
        f"{directory} holds neither an OCI layout (index.json) nor what `docker save` writes (manifest.json)"
    )


def _layout(directory: Path) -> ArchivedImage:
    manifest = _read(directory / "index.json")
    while "manifests" in manifest:
        manifest = _read(_blob(directory, _chosen(manifest["manifests"])))
    digest = manifest["config"]["digest"]
    config = _read(_blob(directory, digest))
    return ArchivedImage(config, digest, tuple(_blob(directory, layer["digest"]) for layer in manifest["layers"]))


def _read(path: Path) -> Any:
    with path.open("rb") as file:
        return bounded_json.loads(file.read(MANIFEST_LIMIT + 1), most_bytes=MANIFEST_LIMIT)


def _chosen(manifests: list[dict[str, Any]]) -> str:
    wanted = ARCHITECTURES.get(platform.machine(), platform.machine())
    for each in manifests:
        if (each.get("platform") or {}).get("architecture", wanted) == wanted:
            return str(each["digest"])
    raise InvalidRequest(f"the image is not made for linux/{wanted}")


def _blob(directory: Path, digest: str) -> Path:
    kind, _, value = digest.partition(":")
    if kind != "sha256" or len(value) != 64 or not value.isalnum():
        raise InvalidRequest(f"the image names something by {digest[:80]!r}, which cannot be checked")
    path = directory / "blobs" / "sha256" / value
    with path.open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != value:
            raise InvalidRequest(f"the blob {digest} of the image is damaged")
    return path


def _docker_save(directory: Path) -> ArchivedImage:
    said = _read(directory / "manifest.json")[0]
    config_file = _inside(directory, said["Config"])
    digest = f"sha256:{hashlib.sha256(config_file.read_bytes()).hexdigest()}"
    return ArchivedImage(_read(config_file), digest, tuple(_inside(directory, name) for name in said["Layers"]))


def _inside(directory: Path, name: str) -> Path:
    path = (directory / name).resolve()
    if not path.is_relative_to(directory.resolve()) or not path.is_file():
        raise InvalidRequest(f"the image names {name[:200]!r}, which it does not hold")
    return path
