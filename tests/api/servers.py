"""A real server for tests: API and gateway on a free port, over a real store, with machines that are servers of the test."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import httpx
from tests.fakes import FakeNode

from sandlot.engine.api.app import build_app
from sandlot.engine.api.deps import Deps
from sandlot.engine.control.access import Access
from sandlot.engine.control.create import CreateOptions
from sandlot.engine.control.egress_history import EgressHistory
from sandlot.engine.control.plane import ControlPlane
from sandlot.engine.control.sandbox_request import SandboxLimits
from sandlot.engine.control.secrets import Secrets
from sandlot.engine.control.usage_history import UsageHistory
from sandlot.engine.core.errors import NotFound
from sandlot.engine.core.model import (
    ENVD_PORT,
    Checkpoint,
    Instance,
    NodeCounters,
    PauseMode,
    Resources,
    State,
    Template,
)
from sandlot.engine.gateway.app import Gateway
from sandlot.engine.gateway.routes import Routes
from sandlot.engine.node.envd.client import EnvdClient
from sandlot.engine.node.idle_freezer import IdleFreezer
from sandlot.engine.node.machine_files import BootRecord
from sandlot.engine.node.machine_table import LiveMachine
from sandlot.engine.node.proxy.app import LocalProxy
from sandlot.engine.store import Database, SqlAccess, SqlEgress, SqlHistories, SqlSandboxes, SqlSecrets, SqlTemplates
from sandlot.server.http import Server, build_server
from sandlot.server.telemetry import Telemetry, Watched

ENVD_VERSION = "0.6.13"
EMPTY_DATABASE: list[Path] = []  # set by conftest


def now() -> datetime:
    return datetime.now(UTC)


class ServingNode(FakeNode):
    """Has a real proxy. Ports of its machines are those of the test's servers; services on their loopback are in `relays`."""

    def __init__(self, ports: Mapping[int, int], most_per_sandbox: int) -> None:
        super().__init__()
        self.relays: dict[int, int] = {}
        self.asked: list[int] = []
        self.real_proxy = LocalProxy(
            machines=self,
            freezer=IdleFreezer(NeverIdle(), patience_s=0),
            envd=cast(EnvdClient, self),
            most_per_sandbox=most_per_sandbox,
            dial=lambda _, port: ("127.0.0.1", ports.get(port, 1)),
        )
        self.proxy = self.real_proxy  # type: ignore[assignment]

    def known(self, sandbox_id: str) -> LiveMachine:
        if sandbox_id not in self.running:
            raise NotFound(f"there is no machine of sandbox {sandbox_id}")
        return LiveMachine(
            machine=self.running[sandbox_id],
            instance=Instance(machine_id=sandbox_id, runtime="fake"),
            token=None,
            boot=BootRecord(guest="g", layers=(), boot_id="b", resources=Resources()),
        )

    async def relay(self, address: str, token: str | None, port: int) -> int | None:
        self.asked.append(port)
        return self.relays.get(port)

    async def stop(self, sandbox_id: str) -> None:
        self.real_proxy.cut(sandbox_id)
        await super().stop(sandbox_id)

    async def pause(self, sandbox_id: str, *, memory: bool) -> PauseMode:
        with self.real_proxy.closed(sandbox_id):
            await self.real_proxy.drain(sandbox_id, 0.2)
            return await super().pause(sandbox_id, memory=memory)

    async def capture(self, sandbox_id: str, name: str, *, memory: bool, lasting: bool = True) -> Checkpoint:
        with self.real_proxy.closed(sandbox_id):
            await self.real_proxy.drain(sandbox_id, 0.2)
            return await super().capture(sandbox_id, name, memory=memory, lasting=lasting)


class NeverIdle:
    """Machines that are never frozen."""

    async def is_idle(self, sandbox_id: str) -> bool:
        return False

    async def freeze(self, sandbox_id: str) -> None:
        raise AssertionError("a busy machine was frozen")

    async def thaw(self, sandbox_id: str) -> None:
        return None


@dataclass
class Doors:
    server: Server
    gateway: Gateway
    control: ControlPlane
    access: Access
    secrets: Secrets
    node: ServingNode
    telemetry: Telemetry
    templates: SqlTemplates
    history: UsageHistory
    egress: EgressHistory
    key: str
    team_id: str
    ports: dict[int, int] = field(default_factory=dict)  # port inside any sandbox -> port of the test's server

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.port}"

    @property
    def port(self) -> int:
        return self.server.port

    @property
    def sdk(self) -> dict[str, Any]:
        return {"api_key": self.key, "api_url": self.url, "sandbox_url": self.url}

    @contextlib.asynccontextmanager
    async def client(self, key: str | None = "", **options: Any) -> AsyncIterator[httpx.AsyncClient]:
        headers = {} if key is None else {"X-API-KEY": key or self.key}
        async with httpx.AsyncClient(base_url=self.url, headers=headers, timeout=20, **options) as client:
            yield client

    async def create(self, **body: Any) -> dict[str, Any]:
        async with self.client() as client:
            response = await client.post("/v2/sandboxes", json={"templateID": "base", **body})
            assert response.status_code == 201, response.text
            created: dict[str, Any] = response.json()
            return created

    def route(self, sandbox_id: str, port: int = ENVD_PORT) -> dict[str, str]:
        return {"E2b-Sandbox-Id": sandbox_id, "E2b-Sandbox-Port": str(port)}


@contextlib.asynccontextmanager
async def open_doors(
    directory: Path,
    *,
    domain: str | None = None,
    max_sandboxes: int = 100,
    max_body_mb: int = 1,
    most: int = 1000,
    is_closed: bool = False,
) -> AsyncIterator[Doors]:
    if EMPTY_DATABASE:  # it saves the migrations
        shutil.copy(EMPTY_DATABASE[-1], directory / "test.db")
    database = Database.sqlite(directory / "test.db")
    await database.migrate()
    ports: dict[int, int] = {}
    node, telemetry = ServingNode(ports, most), Telemetry()
    sandboxes, templates, vault = SqlSandboxes(database), SqlTemplates(database), Secrets(SqlSecrets(database), now)
    await templates.put(_base_template())
    control = ControlPlane.build(
        sandboxes=sandboxes,
        templates=templates,
        nodes=[node],
        clock=now,
        options=CreateOptions(default_runtime="fake", limits=SandboxLimits(max_sandboxes=max_sandboxes)),
        secrets=vault.values,
    )
    vault.on_change(control.changes.secret_changed)
    await control.open()

    async def metrics() -> bytes:
        states = {state.value: await control.lookup.count(None, (state,)) for state in State}
        open_now = NodeCounters(open_connections=node.real_proxy.open_count())
        return telemetry.render(states, {"local": open_now})

    access = Access(store=SqlAccess(database), clock=now)
    team = await access.ensure_first_team()
    _, secret = await access.create_key(team.id, "tests")
    history = UsageHistory(control.nodes, control.lookup, SqlHistories(database))
    egress = EgressHistory(control.nodes, control.lookup, SqlEgress(database), vault, now)
    deps = Deps(
        control=control,
        access=access,
        secrets=vault,
        templates=templates,
        history=history,
        egress=egress,
        clock=now,
        version="0.0.0",
        max_body_bytes=max_body_mb << 20,
        is_closed=is_closed,
        domain=domain,
        metrics=metrics,
    )
    routes = Routes(control.lookup.find, control.lookup.running)
    gateway = Gateway(
        Watched(build_app(deps), telemetry),
        routes=routes,
        nodes=control.nodes,
        wakes=control.suspension,
        observer=telemetry,
        grants=deps.grants,
        domain=domain,
    )
    control.states.on_change(routes.changed)
    server = build_server(gateway, host="127.0.0.1", port=0, before_shutdown=node.real_proxy.close)
    try:
        async with serving(server):
            yield Doors(
                server,
                gateway,
                control,
                access,
                vault,
                node,
                telemetry,
                templates,
                history,
                egress,
                secret,
                team.id,
                ports,
            )
    finally:
        await control.close()
        await database.close()


@contextlib.asynccontextmanager
async def serving(server: Server) -> AsyncIterator[None]:
    task = asyncio.create_task(server.serve())
    await until(lambda: server.started or task.done())
    try:
        yield
    finally:
        server.should_exit = True
        await task


async def until(true: Callable[[], bool], seconds: float = 60) -> None:
    deadline = asyncio.get_running_loop().time() + seconds
    while not true():
        assert asyncio.get_running_loop().time() < deadline, f"not true within {seconds} s"
        await asyncio.sleep(0.005)


Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def raw_service(handler: Handler) -> AsyncIterator[int]:
    """A TCP server of the test's own; yields its port."""
    open_writers: set[asyncio.StreamWriter] = set()

    async def guarded(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_writers.add(writer)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await handler(reader, writer)

    server = await asyncio.start_server(guarded, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for writer in open_writers:
            writer.transport.abort()
        await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def service(app: Any) -> AsyncIterator[int]:
    """An ASGI application as a service in a sandbox; yields its port."""
    server = build_server(app, host="127.0.0.1", port=0)
    server.config.ws_max_size = 64 << 20
    async with serving(server):
        yield server.port


async def head_of(reader: asyncio.StreamReader) -> bytes:
    return await reader.readuntil(b"\r\n\r\n")


def _base_template() -> Template:
    return Template(
        id="base",
        team_id=None,
        name="base",
        layers=("base",),
        build_id="3f0d6d0e-7a44-4a52-9a2c-0d8f4ad5a9b1",
        created_at=now(),
        updated_at=now(),
        envd_version=ENVD_VERSION,
    )
