"""Builds the providers of the configuration: servers that speak E2B's protocol, and Docker daemons."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from sandlot.engine.core.errors import EngineError
from sandlot.engine.node.images import guest
from sandlot.platform.config.configuration import Configuration
from sandlot.platform.config.providers import CloudTable, DockerTable, LocalTable, ProviderConfig, UrlTable
from sandlot.platform.core.errors import Unavailable
from sandlot.platform.core.ports import Provider
from sandlot.platform.providers.docker import DockerProvider, Owner
from sandlot.platform.providers.docker_guest import GuestRuntime
from sandlot.platform.providers.docker_images import DockerSettings
from sandlot.platform.providers.e2b import Address, E2BProvider

Locate = Callable[[], Awaitable[Address]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderParts:
    configuration: Configuration
    platform: str  # this platform's identity: what it creates is marked with it
    secret: str = field(repr=False)
    data_dir: Path
    engine: Locate | None = None


@asynccontextmanager
async def build_providers(parts: ProviderParts) -> AsyncIterator[dict[str, Provider]]:
    made: dict[str, Provider] = {}
    config = parts.configuration
    async with AsyncExitStack() as stack:
        for name, plan in parts.configuration.providers.items():
            if isinstance(plan.table, DockerTable):
                docker = DockerProvider(
                    name,
                    _docker(plan.table),
                    owner=Owner(platform=parts.platform, secret=parts.secret),
                    guest=guest_runtime(parts.data_dir),
                )
                stack.push_async_callback(docker.close)
                made[name] = docker
            else:
                made[name] = E2BProvider(
                    name,
                    _locate(plan, parts.engine),
                    platform=parts.platform,
                    template=plan.table.template,
                    timeout_s=plan.table.timeout,
                    secrets={name: config.secrets[name] for name in config.secret_hosts},
                )
        yield made


def guest_runtime(data_dir: Path) -> Callable[[], Awaitable[GuestRuntime]]:
    """The engine's guest runtime, for containers: made when one first needs it, by one at a time."""
    making = asyncio.Lock()

    async def made() -> GuestRuntime:
        async with making:
            try:
                directory = await guest.build_guest(data_dir / "guest")
            except EngineError as error:
                raise Unavailable(f"containers cannot be started: {error}") from error
        return GuestRuntime(
            directory=directory,
            python=guest.guest_python(),
            envd=guest.guest_argv(),
            envd_version=guest.envd_version(),
        )

    return made


def _docker(table: DockerTable) -> DockerSettings:
    return DockerSettings(
        url=table.address,
        image=table.template,
        images=table.images,
        pull=table.pull,
        cpus=table.cpus,
        memory_mb=table.memory_mb,
        processes=table.processes,
        most=table.sandboxes,
        user=table.user,
        runtime=table.runtime,
        timeout_s=table.timeout,
    )


def _locate(plan: ProviderConfig, engine: Locate | None) -> Locate:
    table = plan.table
    if isinstance(table, LocalTable):
        assert engine is not None  # the configuration was checked for it
        return engine
    assert plan.key is not None
    assert not isinstance(table, DockerTable)
    address = _cloud(table, plan.key) if isinstance(table, CloudTable) else _url(table, plan.key)

    async def known() -> Address:
        return address

    return known


def _cloud(table: CloudTable, key: str) -> Address:
    return Address(api_url=f"https://api.{table.domain}", domain=table.domain, key=key)


def _url(table: UrlTable, key: str) -> Address:
    secure = (table.sandbox_url or table.api_url).startswith("https:")
    domain = table.domain or table.api_url.split("://", 1)[1].split("/", 1)[0].removeprefix("api.")
    return Address(
        api_url=table.api_url.rstrip("/"),
        domain=domain,
        key=key,
        sandbox_url=table.sandbox_url.rstrip("/") if table.sandbox_url else None,
        public_scheme="https" if secure else "http",
    )
