"""The platform beside the engine in one server: one port, one start, the engine as the provider that needs no setting up."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

from sandlot import __version__
from sandlot.engine.core.errors import Unavailable
from sandlot.platform.api.app import Platform
from sandlot.platform.config import configuration
from sandlot.platform.core.errors import PlatformError
from sandlot.platform.providers.e2b import Address
from sandlot.platform.store import Database
from sandlot.server.http import Server, build_config
from sandlot.settings import Settings
from sandlot.wiring import doctor
from sandlot.wiring.own_address import OwnAddress
from sandlot.wiring.platform import Setup, platform

Scope = MutableMapping[str, Any]
Asgi = Callable[[Scope, Any, Any], Awaitable[None]]


def configuration_file(settings: Settings) -> Path | None:
    """The file that was named, else the one in the data directory, if there is one."""
    if settings.config is not None:
        return settings.config
    usual = settings.data_dir / configuration.NAME
    return usual if usual.exists() else None


class MountedPlatform:
    """The platform of a server that has an engine. It reaches that engine as anybody would: over HTTP, with a key."""

    def __init__(self, platform: Platform) -> None:
        self.run, self.close = platform.run, platform.close
        self._platform = platform

    def beside(self, engine: Asgi) -> Asgi:
        """Both on one port. Paths of the platform come before the engine's routes with an id in them."""

        async def both(scope: Scope, receive: Any, send: Any) -> None:
            await (self._platform if self._platform.handles(scope) else engine)(scope, receive, send)

        return both


@contextlib.asynccontextmanager
async def open_platform(settings: Settings, own: OwnAddress) -> AsyncIterator[MountedPlatform]:
    """Raises the engine's `Unavailable` if the configuration is wrong: nothing starts on a wrong one."""

    async def engine() -> Address:
        at = await own.get()
        return Address(
            api_url=at.url,
            sandbox_url=at.url,
            domain=at.domain,
            key=at.key,
            public_scheme="http" if at.is_public else "https",
        )

    def first_key() -> str | None:
        with contextlib.suppress(OSError):
            return (settings.data_dir / "keys" / "default").read_text().strip()
        return None

    try:
        setup = Setup(
            configuration=configuration.load(configuration_file(settings), has_engine=True),
            database=Database.at(settings.data_dir, settings.database_url),
            version=__version__,
            data_dir=settings.data_dir,
            engine=engine,
            admin_secret=first_key,
            doctor=doctor.findings,
            url=_own_url(settings),
            hosts=(settings.domain, f"api.{settings.domain}") if settings.domain else (),
        )
        building = platform(setup)
        made = await building.__aenter__()
    except PlatformError as error:
        raise Unavailable(str(error)) from error
    try:
        yield MountedPlatform(made)
    finally:
        await building.__aexit__(None, None, None)


def _own_url(settings: Settings) -> str:
    """For people on this machine, unless the server listens at an address of its own."""
    host = "127.0.0.1" if settings.host in ("0.0.0.0", "::", "") else settings.host
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.port}" if settings.port else ""


@contextlib.asynccontextmanager
async def loopback_listener(app: Any) -> AsyncIterator[int]:
    """A second port, plain and on loopback only, for this server's own parts when the public one speaks TLS."""
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    server = _Quiet(build_config(app))
    task = asyncio.create_task(server.serve(sockets=[sock]))
    try:
        yield int(sock.getsockname()[1])
    finally:
        server.should_exit = True
        await asyncio.gather(task, return_exceptions=True)


class _Quiet(Server):
    @contextlib.contextmanager
    def capture_signals(self):  # type: ignore[no-untyped-def]
        """Signals are for the server that everybody sees."""
        yield
