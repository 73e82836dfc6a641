"""Images of a Docker provider: which may be started, and fetching those that the daemon does not have."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from aiodocker import Docker
from aiodocker.exceptions import DockerError

from sandlot.platform.core.errors import InvalidRequest, ProviderRefused
from sandlot.platform.providers.docker_errors import GONE

PULL_S = 900.0
MAX_NAMED = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class DockerSettings:
    """What containers of one provider are like."""

    url: str = "unix:///var/run/docker.sock"
    image: str | None = None
    images: tuple[str, ...] = ()  # patterns of further images that may be asked for
    pull: bool = True  # images that the daemon does not have
    cpus: float = 2.0
    memory_mb: int = 2048
    processes: int = 1024
    most: int = 20  # containers that run at once
    user: str | None = None  # who commands run as; by default the image's own user
    runtime: str | None = None  # an OCI runtime that the daemon knows, such as runsc
    timeout_s: int = 3600


def choose_image(provider: str, settings: DockerSettings, wanted: str | None) -> str:
    """Raises `InvalidRequest` for one that may not be started."""
    image = wanted or settings.image
    if image is None:
        raise InvalidRequest(f"provider {provider!r} has no image by default: name one as the template")
    allowed = [pattern for pattern in (settings.image, *settings.images) if pattern]
    if not any(fnmatchcase(image, pattern) for pattern in allowed):
        raise InvalidRequest(
            f"provider {provider!r} does not start the image {image[:MAX_NAMED]!r}; its images are {', '.join(allowed)}"
        )
    return image


async def find_image(docker: Docker, provider: str, image: str, *, pull: bool) -> dict[str, Any]:
    """What the daemon knows of an image; fetched if it has none. Raises `ProviderRefused`."""
    try:
        return await docker.images.inspect(image)
    except DockerError as error:
        if error.status != GONE:
            raise
    if not pull:
        raise ProviderRefused(f"the daemon of provider {provider!r} does not have the image {image!r}")
    try:
        async with asyncio.timeout(PULL_S):
            await docker.images.pull(image)
        return await docker.images.inspect(image)
    except (DockerError, TimeoutError) as error:
        words = str(getattr(error, "message", "it took too long"))[:MAX_NAMED]
        raise ProviderRefused(f"the image {image!r} could not be pulled: {words}") from error
