"""Turns the E2B SDK's errors into the platform's; the one place that knows both."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import httpx
from e2b.exceptions import (
    AuthenticationException,
    FileNotFoundException,
    InvalidArgumentException,
    NotEnoughSpaceException,
    NotFoundException,
    RateLimitException,
    SandboxException,
    SandboxNotFoundException,
    SandboxNotRunningException,
    ServiceBusyException,
    TimeoutException,
)
from e2b.sandbox.commands.command_handle import CommandExitException

from sandlot.platform.core.errors import (
    Conflict,
    InvalidRequest,
    NotFound,
    PlatformError,
    ProviderFull,
    ProviderRefused,
    SandboxGone,
    Unavailable,
)

MAX_WORDS = 500
_BUSY = frozenset({429, 502, 503, 504})


@contextmanager
def translated(provider: str, doing: str, *, inside: bool = False) -> Iterator[None]:
    """Raise our errors for the SDK's. `inside`: the answer is the sandbox's own, not the provider's."""
    try:
        yield
    except (PlatformError, CommandExitException):
        raise
    except Exception as error:
        if not isinstance(error, (OSError, httpx.HTTPError)) and not _is_foreign(error):
            raise
        raise _translate(error, provider, doing, inside) from error


def _is_foreign(error: Exception) -> bool:
    # The SDK raises bare `Exception` here and there, and lets errors of its transports through.
    return type(error) is Exception or type(error).__module__.split(".")[0] in ("e2b", "pyqwest", "connectrpc")


def _translate(error: Exception, provider: str, doing: str, inside: bool) -> PlatformError:
    words = str(error)[:MAX_WORDS]
    if isinstance(error, (SandboxNotFoundException, SandboxNotRunningException)):
        return SandboxGone(f"could not {doing}: provider {provider!r} has this sandbox no more, or paused it")
    if isinstance(error, FileNotFoundException) or (inside and isinstance(error, NotFoundException)):
        return NotFound(f"could not {doing}: {words}")
    if isinstance(error, InvalidArgumentException) or (inside and isinstance(error, AuthenticationException)):
        return InvalidRequest(f"could not {doing}: {words}")
    if isinstance(error, NotEnoughSpaceException):
        return Conflict(f"could not {doing}: the sandbox has no space left")
    if isinstance(error, (RateLimitException, ServiceBusyException)):
        return ProviderFull(f"could not {doing}: provider {provider!r} has no room just now ({words})")
    if isinstance(error, AuthenticationException):
        return ProviderRefused(
            f"could not {doing}: provider {provider!r} refuses this platform's key; the operator must renew it"
        )
    status = getattr(error, "status_code", None)
    if isinstance(error, SandboxException) and not isinstance(error, TimeoutException):
        if status is None and inside:
            return InvalidRequest(f"could not {doing}: {words}")
        if status is not None and status not in _BUSY and status < 500:
            return ProviderRefused(f"could not {doing}: provider {provider!r} answers: {words}")
    return Unavailable(f"could not {doing}: provider {provider!r} does not answer ({type(error).__name__}); try again")
