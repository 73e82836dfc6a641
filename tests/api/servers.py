"""The real doors for tests: API and edge on a free port, over a real store, with machines that are servers of the test."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
from tests.fakes import FakeNode

from sandlot.engine.api.app import build_app
from sandlot.engine.api.deps import Deps
from sandlot.engine.control.access import Access
from sandlot.engine.control.lifecycle import Lifecycle
from sandlot.engine.control.sandbox_request import Limits
from sandlot.engine.control.suspension import Suspension
from sandlot.engine.control.usage_history import MetricsHistory
from sandlot.engine.core.model import ENVD_PORT, LogEntry, Sandbox, State, Template
from sandlot.engine.gateway import Gateway
from sandlot.engine.gateway.routes import Routes
from sandlot.engine.store import Database, SqlAccess, SqlSandboxes, SqlTemplates
from sandlot.server.http import Server, build_server
from sandlot.server.telemetry import Telemetry, Watched

ENVD_VERSION = "0.6.13"
EMPTY_DATABASE: list[Path] = []  # set by conftest


def now() -> datetime:
    return datetime.now(UTC)


class TalkativeNode(FakeNode):
    """Its machines have logs, and services on their loopback if `relays` says so."""

    def __init__(self) -> None:
        super().__init__()
        self.entries: list[LogEntry] = []
        self.relays: dict[int, int] = {}
        self.asked: list[int] = []

    async def logs(self, sandbox_id: str) -> list[LogEntry]:
        return self.entries

    async def relay_port(self, sandbox_id: str, port: int) -> int | None:
        self.asked.append(port)
        return self.relays.get(port)


@dataclass
class Doors:
    server: Server
    edge: Gateway
    lifecycle: Lifecycle
    access: Access
    node: TalkativeNode
    telemetry: Telemetry
    templates: SqlTemplates
    history: MetricsHistory
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
    directory: Path, *, domain: str | None = None, max_sandboxes: int = 100, max_body_mb: int = 1, most: int = 1000
) -> AsyncIterator[Doors]:
    shutil.copy(EMPTY_DATABASE[-1], directory / "test.db")
    database = Database.sqlite(directory / "test.db")
    await database.migrate()
    node, telemetry = TalkativeNode(), Telemetry()
    sandboxes, templates = SqlSandboxes(database), SqlTemplates(database)
    await templates.put(_base_template())
    limits = Limits(max_sandboxes=max_sandboxes)
    lifecycle = Lifecycle(
        sandboxes=sandboxes,
        templates=templates,
        nodes={node.name: node},
        clock=now,
        default_runtime="fake",
        limits=limits,
    )

    async def running() -> list[Sandbox]:
        return list(await sandboxes.query(states=(State.RUNNING,)))

    async def states() -> Mapping[str, int]:
        return {state.value: await lifecycle.count(None, (state,)) for state in State}

    async def metrics() -> bytes:
        return await telemetry.render(states, edge.open_connections)

    access = Access(store=SqlAccess(database), clock=now)
    team = await access.ensure_first_team()
    _, secret = await access.create_key(team.id, "tests")
    history = MetricsHistory(lambda sandbox: lifecycle.node_of(sandbox).usage(sandbox.id), running)
    suspension = Suspension(
        lifecycle=lifecycle,
        templates=templates,
        clock=now,
        limits=limits,
        drain=lambda sandbox_id: edge.drain(sandbox_id, 0.2),
    )
    deps = Deps(
        lifecycle=lifecycle,
        suspension=suspension,
        access=access,
        templates=templates,
        history=history,
        clock=now,
        version="0.0.0",
        max_body_bytes=max_body_mb << 20,
        domain=domain,
        metrics=metrics,
    )
    ports: dict[int, int] = {}
    edge = Gateway(
        Watched(build_app(deps), telemetry),
        Routes(lifecycle.find, running),
        relay=node.relay_port,
        wake=suspension.wake,
        domain=domain,
        dial=lambda sandbox, port: ("127.0.0.1", ports.get(port, 1)),
        most_per_sandbox=most,
        on_pass=lambda kind: telemetry.edge_passed.labels(kind).inc(),
        on_refusal=lambda status: telemetry.edge_refused.labels(str(status)).inc(),
    )
    lifecycle.on_change(edge.changed)
    lifecycle.on_change(history.changed)
    server = build_server(edge, host="127.0.0.1", port=0, before_shutdown=edge.close)
    try:
        async with serving(server):
            yield Doors(server, edge, lifecycle, access, node, telemetry, templates, history, secret, team.id, ports)
    finally:
        await lifecycle.close()
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
