"""Turns the Docker client's errors into the platform's; the one place that knows both."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import aiohttp
from aiodocker.exceptions import DockerError

from sandlot.platform.core.errors import (
    PlatformError,
    ProviderRefused,
    SandboxGone,
    Unavailable,
)

MAX_WORDS = 500
GONE, TAKEN = 404, 409
NO_CONNECTION = 900  # the client's own


@contextmanager
def docker_errors(provider: str, doing: str) -> Iterator[None]:
    """Raise our errors for Docker's."""
    try:
        yield
    except DockerError as error:
        raise _translate(error, provider, doing) from error
    except (aiohttp.ClientError, OSError) as error:  # a TimeoutError is an OSError
        raise _silent(provider, doing) from error


def _translate(error: DockerError, provider: str, doing: str) -> PlatformError:
    words = str(error.message)[:MAX_WORDS]
    if error.status == NO_CONNECTION:
        return _silent(provider, doing)
    if error.status == GONE:
        return SandboxGone(f"could not {doing}: provider {provider!r} has this sandbox no more")
    if error.status >= 500 and "OCI runtime" not in words:
        return Unavailable(f"could not {doing}: the Docker daemon of provider {provider!r} answers: {words}")
    return ProviderRefused(f"could not {doing}: the Docker daemon of provider {provider!r} answers: {words}")


def _silent(provider: str, doing: str) -> Unavailable:
    return Unavailable(
        f"could not {doing}: the Docker daemon of provider {provider!r} does not answer; "
        "is it running, and may this server use its socket?"
    )
