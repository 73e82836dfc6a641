"""Builds the engine from the settings: store, node, control plane, builds, API and gateway, ready to serve."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path

from sandlot import __version__
from sandlot.engine.api.app import build_app
from sandlot.engine.api.deps import Deps
from sandlot.engine.control.access import Access
from sandlot.engine.control.create import CreateOptions
from sandlot.engine.control.egress_history import EgressHistory
from sandlot.engine.control.plane import ControlPlane
from sandlot.engine.control.port_grants import PortGrants
from sandlot.engine.control.sandbox_request import SandboxLimits
from sandlot.engine.control.secrets import Secrets
from sandlot.engine.control.usage_history import UsageHistory
from sandlot.engine.core.errors import Unauthorized
from sandlot.engine.core.model import State
from sandlot.engine.gateway.app import App, Gateway
from sandlot.engine.gateway.routes import Routes
from sandlot.engine.store import Database, SqlAccess, SqlEgress, SqlHistories, SqlSandboxes, SqlSecrets, SqlTemplates
from sandlot.recipes.stock import StockNotes
from sandlot.recipes.stock_templates import StockTemplates
from sandlot.server import telemetry
from sandlot.settings import Settings
from sandlot.wiring.builds import Progress, built_in_templates, open_builds
from sandlot.wiring.clock import now
from sandlot.wiring.node import BuiltNode, open_node
from sandlot.wiring.own_address import OwnAddress
from sandlot.wiring.stock import StockMaker

Loop = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """The application, the loops that keep it going, and stock templates that are built when first used."""

    app: Gateway
    loops: Sequence[Loop]
    stock: StockTemplates
    cut: Callable[[], Awaitable[None]]  # ends open streams into sandboxes, before a shutdown


@contextlib.asynccontextmanager
async def open_engine(
    settings: Settings, progress: Progress, own: OwnAddress, beside: Callable[[App], App]
) -> AsyncIterator[Engine]:
    """Everything behind the port, ready to serve: templates built, earlier sandboxes adopted.

    `beside` puts another application in front of the API's.
    """
    async with contextlib.AsyncExitStack() as stack:
        database = Database.at(settings.data_dir, settings.database_url)
        stack.push_async_callback(database.close)
        await database.migrate()
        access, vault = Access(store=SqlAccess(database), clock=now), Secrets(SqlSecrets(database), now)
        await _first_key(access, settings.data_dir)
        built = await stack.enter_async_context(open_node(settings))
        progress(f"runtime: {built.default_runtime}")
        await built_in_templates(settings, SqlTemplates(database), progress)
        stock = StockTemplates(connection=own.connection, notes=StockNotes(settings.data_dir))
        control = await stack.enter_async_context(_open_control(settings, database, built, stock, vault))
        builds = await stack.enter_async_context(open_builds(settings, database, built, control, stock))
        stack.push_async_callback(stock.close)
        history = UsageHistory(control.nodes, control.lookup, SqlHistories(database))
        egress = EgressHistory(control.nodes, control.lookup, SqlEgress(database), vault, now)
        numbers, grants = telemetry.Telemetry(), PortGrants()
        deps = Deps(
            control=control,
            access=access,
            secrets=vault,
            templates=SqlTemplates(database),
            history=history,
            egress=egress,
            builder=builds.builder,
            cleanup=builds.cleanup,
            stock=StockMaker(stock),
            operator=builds.operator,
            clock=now,
            version=__version__,
            max_body_bytes=settings.max_body_mb << 20,
            is_closed=settings.metrics_need_key,
            domain=_public_domain(settings),
            metrics=partial(_metrics, control, numbers),
            grants=grants,
        )
        routes = Routes(control.lookup.find, control.lookup.running)
        gateway = Gateway(
            telemetry.Watched(beside(build_app(deps)), numbers),
            routes=routes,
            nodes=control.nodes,
            wakes=control.suspension,
            observer=numbers,
            grants=grants,
            domain=settings.domain,
        )
        control.states.on_change(routes.changed)
        reconciler = control.reconciler(
            sandboxes=SqlSandboxes(database), templates=SqlTemplates(database), kept=builds.builder
        )
        await builds.builder.recover()
        await builds.cleanup.claim()
        repairs = await reconciler.at_start()
        if repairs.adopted:
            progress(f"adopted {len(repairs.adopted)} running sandboxes")
        yield Engine(
            app=gateway,
            loops=(
                partial(control.deadlines.run, keep_ended=timedelta(hours=settings.keep_ended_hours)),
                partial(control.nodes.follow, control.ending.machine_exited),
                reconciler.run,
                history.run,
                partial(history.tidy, now),
                egress.run,
                partial(egress.tidy, timedelta(days=settings.keep_egress_days)),
                builds.cleanup.run,
                *built.node.loops(),
            ),
            stock=stock,
            cut=built.node.proxy.close,
        )


@contextlib.asynccontextmanager
async def _open_control(
    settings: Settings, database: Database, built: BuiltNode, stock: StockTemplates, vault: Secrets
) -> AsyncIterator[ControlPlane]:
    limits = SandboxLimits(max_sandboxes=settings.max_sandboxes, max_timeout_s=settings.max_timeout_hours * 3600)
    control = ControlPlane.build(
        sandboxes=SqlSandboxes(database),
        templates=SqlTemplates(database),
        nodes=[built.node],
        clock=now,
        options=CreateOptions(default_runtime=built.default_runtime, limits=limits, missing=StockMaker(stock)),
        secrets=vault.values,
    )
    vault.on_change(control.changes.secret_changed)
    await control.open()
    try:
        yield control
    finally:
        await control.close()
        await built.node.close_pool()


async def _metrics(control: ControlPlane, numbers: telemetry.Telemetry) -> bytes:
    by_state = {state.value: await control.lookup.count(None, [state]) for state in State if state is not State.ENDED}
    return numbers.render(by_state, {status.name: status.counters for status in await control.nodes.look()})


async def _first_key(access: Access, data_dir: Path) -> None:
    """Make the first team and its key, and keep the secret where only root reads it. Once."""
    team = await access.ensure_first_team()
    path = data_dir / "keys" / "default"
    if path.exists():
        with contextlib.suppress(Unauthorized):  # a key of another database
            await access.authenticate(path.read_text().strip())
            return
    path.parent.mkdir(mode=0o700, exist_ok=True)
    _, secret = await access.create_key(team.id, "default")
    draft = path.with_name(f".default-{secrets.token_hex(4)}")
    draft.touch(mode=0o600)
    draft.write_text(secret + "\n")
    draft.rename(path)


def _public_domain(settings: Settings) -> str | None:
    port = settings.https_port or settings.port
    if settings.domain is None or port == 443 or ":" in settings.domain:
        return settings.domain
    return f"{settings.domain}:{port}"
