"""Images in files: an OCI layout or what `docker save` writes, as a directory or an archive of one."""

from __future__ import annotations

import hashlib
import json
import platform
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandlot import tarfiles
from sandlot.engine.core.errors import InvalidRequest

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm"}


@dataclass(frozen=True, slots=True)
class ArchivedImage:
    config: dict[str, Any]
    config_digest: str
    layers: tuple[Path, ...]  # bottom first


def unpack_archive(file: Path, into: Path) -> Path:
    """The directory that an archive holds. Names that lead out of it are refused."""
    try:
        with tarfile.open(file) as archive:
            tarfiles.extract(archive, into)
    except (tarfile.TarError, OSError) as error:
        raise InvalidRequest(f"{file} is not an archive of an image: {error}") from error
    return into


def read_image(directory: Path) -> ArchivedImage:
    """Raises `InvalidRequest`. Everything that has a digest is checked against it."""
    try:
        if (directory / "index.json").is_file():
            return _layout(directory)
        if (directory / "manifest.json").is_file():
            return _docker_save(directory)
    except (KeyError, TypeError, ValueError, OSError) as error:
        raise InvalidRequest(f"the image in {directory} cannot be read: {error}") from error
    raise InvalidRequest(
        f"{directory} holds neither an OCI layout (index.json) nor what `docker save` writes (manifest.json)"
    )


def _layout(directory: Path) -> ArchivedImage:
    manifest = json.loads((directory / "index.json").read_text())
    while "manifests" in manifest:
        manifest = json.loads(_blob(directory, _chosen(manifest["manifests"])).read_text())
    digest = manifest["config"]["digest"]
    config = json.loads(_blob(directory, digest).read_text())
    return ArchivedImage(config, digest, tuple(_blob(directory, layer["digest"]) for layer in manifest["layers"]))


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
    said = json.loads((directory / "manifest.json").read_text())[0]
    config_file = _inside(directory, said["Config"])
    digest = f"sha256:{hashlib.sha256(config_file.read_bytes()).hexdigest()}"
    return ArchivedImage(
        json.loads(config_file.read_text()), digest, tuple(_inside(directory, name) for name in said["Layers"])
    )


def _inside(directory: Path, name: str) -> Path:
    path = (directory / name).resolve()
    if not path.is_relative_to(directory.resolve()) or not path.is_file():
        raise InvalidRequest(f"the image names {name[:200]!r}, which it does not hold")
    return path
