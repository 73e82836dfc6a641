"""Names of images: `[registry/]repository[:tag][@digest]`, taken apart the way Docker does."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sandlot.engine.core.errors import StepFailed

DEFAULT_REGISTRY = "docker.io"
_REPOSITORY = re.compile(r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*(?::\d{1,5})?|\[[0-9a-fA-F:]+\](?::\d{1,5})?")


@dataclass(frozen=True, slots=True)
class ImageReference:
    registry: str
    repository: str
    tag: str
    digest: str | None = None

    @property
    def is_default_registry(self) -> bool:
        return self.registry == DEFAULT_REGISTRY

    @property
    def wanted(self) -> str:
        """What to ask the registry for."""
        return self.digest or self.tag

    def __str__(self) -> str:
        return f"{self.registry}/{self.repository}" + (f"@{self.digest}" if self.digest else f":{self.tag}")


def parse_image(text: str) -> ImageReference:
    """Raises `StepFailed`."""
    name, at, digest = text.strip().partition("@")
    first, slash, rest = name.partition("/")
    has_registry = bool(slash) and ("." in first or ":" in first or first == "localhost")
    registry, path = (first, rest) if has_registry else (DEFAULT_REGISTRY, name)
    if registry in ("index.docker.io", "registry-1.docker.io"):
        registry = DEFAULT_REGISTRY
    repository, colon, tag = path.partition(":")
    if registry == DEFAULT_REGISTRY and "/" not in repository:
        repository = f"library/{repository}"
    if (
        not _HOST.fullmatch(registry)
        or len(repository) > 255
        or not _REPOSITORY.fullmatch(repository)
        or (colon and not _TAG.fullmatch(tag))
        or (at and not _DIGEST.fullmatch(digest))
    ):
        raise StepFailed(
            f"{text[:200]!r} is not the name of an image; it should look like python:3.12 or host/name@sha256:…"
        )
    return ImageReference(registry, repository, tag or "latest", digest or None)
