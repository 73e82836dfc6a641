"""Puts the platform's parts together, as the configuration says; for the server that has an engine, and for one that has none."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from sandlot.platform.agents.descriptions import load_agents
from sandlot.platform.api.app import Platform
from sandlot.platform.api.deps import Deps
from sandlot.platform.audit.log import AuditLog
from sandlot.platform.config.configuration import Configuration
from sandlot.platform.console.histories import ConsoleHistories
from sandlot.platform.console.logins import Logins
from sandlot.platform.console.metering import MeterStores, UsageMeter
from sandlot.platform.console.origins import ConsoleHosts
from sandlot.platform.console.parts import Console, DoctorFinding, Operation, no_findings
from sandlot.platform.console.sandboxes import ConsoleSandboxes
from sandlot.platform.console.usage import UsageSummary
from sandlot.platform.core.ports import Clock, Provider
from sandlot.platform.events import webhooks
from sandlot.platform.events.log import EventLog
from sandlot.platform.events.webhook_http import HttpWebhookTransport
from sandlot.platform.identity.keys import Access
from sandlot.platform.models.upstream import Upstream
from sandlot.platform.providers.health import ProviderRegistry
from sandlot.platform.sessions.background import BackgroundCommands
from sandlot.platform.sessions.commands import Commands
from sandlot.platform.sessions.files import Files
from sandlot.platform.sessions.queue import Queue
from sandlot.platform.sessions.reconcile import SessionReconciler
from sandlot.platform.sessions.retention import Retention
from sandlot.platform.sessions.service import SessionDefaults, Sessions
from sandlot.platform.sessions.snapshots import SessionSnapshots
from sandlot.platform.sessions.state import SessionState
from sandlot.platform.sessions.terminals import Terminals
from sandlot.platform.sessions.tools import SandboxTools
from sandlot.platform.store import (
    Database,
    SqlAudit,
    SqlCommands,
    SqlDeliveries,
    SqlEvents,
    SqlFacts,
    SqlKeys,
    SqlLogins,
    SqlModelCalls,
    SqlSessions,
    SqlTasks,
    SqlUsage,
)
from sandlot.platform.tasks.board import TaskBoard
from sandlot.platform.tasks.steps import BeforeStep, no_step
from sandlot.platform.tunnel.service import Tunnels
from sandlot.wiring.browsers import BrowserParts, build_browsers
from sandlot.wiring.clock import now
from sandlot.wiring.forges import ForgeParts, build_forges
from sandlot.wiring.models import ModelParts, build_models
from sandlot.wiring.providers import Locate, ProviderParts, build_providers
from sandlot.wiring.tasks import TaskParts, build_tasks
from sandlot.wiring.triggers import TriggerParts, build_triggers


class Loop(Protocol):
    """A part that works in the background."""

    async def run(self) -> None: ...


class Closing(Protocol):
    """A part that has something to end before the server does."""

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What the platform needs from outside itself."""

    configuration: Configuration
    database: Database
    version: str
    data_dir: Path  # where hosted repositories and mirrors are
    engine: Locate | None = None  # where this server's own engine listens; waits until it does
    url: str = ""  # where people reach this server, if it has no name
    hosts: Sequence[str] = ()  # names of this server at which the console is served, beside localhost
    doctor: Callable[[], Awaitable[Sequence[DoctorFinding]]] = no_findings
    admin_secret: Callable[[], str | None] = lambda: None
    clock: Clock = now
    providers: Callable[[str], dict[str, Provider]] | None = None  # instead of those of the configuration
    keep_alive_s: float = 15.0
    step_hook: BeforeStep = no_step  # around each step of a task; for tests that end the server there


@asynccontextmanager
async def platform(setup: Setup) -> AsyncIterator[Platform]:
    """The platform, ready to answer; its loops run when `run` does."""
    config, clock = setup.configuration, setup.clock
    async with AsyncExitStack() as stack:
        stack.push_async_callback(setup.database.close)
        await setup.database.migrate()
        identity = await setup.database.identity()
        secret = await SqlFacts(setup.database).once("tools-secret", lambda: secrets.token_hex(32))
        route = partial(webhooks.webhooks_for, config.webhooks)
        events = EventLog(SqlEvents(setup.database, route))
        await events.open()
        state = SessionState(store=SqlSessions(setup.database, route), events=events, clock=clock)
        providers = ProviderRegistry(await _providers(setup, identity, stack), clock)
        queue = Queue(state=state, providers=providers, limits=config.limits)
        sessions = Sessions(
            state=state,
            queue=queue,
            providers=providers,
            limits=config.limits,
            defaults=SessionDefaults(
                provider=config.default, agents=config.agents, envs=config.envs, backends=config.backends
            ),
        )
        reconciler = SessionReconciler(state=state, sessions=sessions, queue=queue, providers=providers)
        tools = SandboxTools(sessions=sessions, secret=secret)
        background = BackgroundCommands(store=SqlCommands(setup.database, route), sessions=sessions, state=state)
        retention = Retention(
            state=state,
            sessions=sessions,
            queue=queue,
            tools=tools,
            background=background,
            policy=config.policy,
            limits=config.limits,
        )
        commands = Commands(sessions=sessions, state=state)
        forges = await build_forges(
            ForgeParts(
                root=setup.data_dir / "git",
                secret=await SqlFacts(setup.database).once("git-secret", lambda: secrets.token_hex(32)),
                database=setup.database,
                route=route,
                events=events,
                clock=clock,
                github=config.github,
                console=_console(setup),
            )
        )
        stack.push_async_callback(forges.github.close)
        agents = load_agents()
        tunnels = Tunnels(sessions.running_box)
        access = Access(store=SqlKeys(setup.database), clock=clock, admin_secret=setup.admin_secret)
        models = build_models(
            ModelParts(
                configuration=config,
                database=setup.database,
                route=route,
                events=events,
                secret=await SqlFacts(setup.database).once("models-secret", lambda: secrets.token_hex(32)),
                access=access,
                tasks=SqlTasks(setup.database, route),
                sessions=SqlSessions(setup.database, route),
                upstream=await stack.enter_async_context(Upstream()),
                clock=clock,
            )
        )
        board = TaskBoard(secret)
        tasks = build_tasks(
            TaskParts(
                configuration=config,
                database=setup.database,
                route=route,
                events=events,
                sessions=sessions,
                session_state=state,
                snapshots=SessionSnapshots(state=state, providers=providers),
                providers=providers,
                board=board,
                tunnels=tunnels,
                git=forges.git,
                repositories=forges.repositories,
                gateway=models.gateway,
                agents=agents,
                clock=clock,
                data_dir=setup.data_dir,
                console=_console(setup),
                hook=setup.step_hook,
            )
        )
        triggers = build_triggers(
            TriggerParts(
                configuration=config,
                database=setup.database,
                route=route,
                events=events,
                forges=forges,
                tasks=tasks,
                clock=clock,
            )
        )
        browsers = build_browsers(
            BrowserParts(
                database=setup.database,
                route=route,
                events=events,
                providers=ProviderRegistry(await _providers(setup, f"{identity}-browsers", stack), clock),
                limits=config.browsers,
                secret=await SqlFacts(setup.database).once("browsers-secret", lambda: secrets.token_hex(32)),
                directory=setup.data_dir / "browsers",
                clock=clock,
            )
        )
        transport = await stack.enter_async_context(HttpWebhookTransport())
        outbox = SqlDeliveries(setup.database)
        deliverer = webhooks.WebhookDeliverer(store=outbox, transport=transport, webhooks=config.webhooks, clock=clock)
        meter = UsageMeter(
            stores=MeterStores(usage=SqlUsage(setup.database), sessions=state.store, tasks=SqlTasks(setup.database)),
            providers=providers,
            default=config.default,
            clock=clock,
        )
        loops: tuple[Loop, ...] = (
            meter,
            events,
            queue,
            background,
            retention,
            reconciler,
            providers,
            deliverer,
            *triggers.loops,
            browsers,
            *tasks.loops,
        )
        closing: tuple[Closing, ...] = (
            events,
            *tasks.closing,
            browsers,
            tunnels,
            commands,
            background,
            queue,
            retention,
            deliverer,
            models.gateway,
            triggers.inbox,
        )
        report = UsageSummary(SqlUsage(setup.database), SqlTasks(setup.database), SqlModelCalls(setup.database))
        shown = ConsoleSandboxes(sessions=sessions, state=state, providers=providers, default=config.default)
        deps = Deps(
            access=access,
            console=Console(
                logins=Logins(store=SqlLogins(setup.database), access=access, clock=clock),
                sandboxes=shown,
                usage=report,
                histories=ConsoleHistories(sandboxes=shown, state=state, events=SqlEvents(setup.database)),
                operation=Operation(
                    queue=queue,
                    providers=providers,
                    default_provider=config.default,
                    provider_kinds={name: plan.table.kind for name, plan in config.providers.items()},
                    limits=config.limits,
                    policy=config.policy,
                    webhooks=config.webhooks,
                    outbox=outbox,
                    doctor=setup.doctor,
                ),
                hosts=ConsoleHosts((*setup.hosts, *config.console_hosts)),
            ),
            sessions=sessions,
            commands=commands,
            background=background,
            files=Files(sessions=sessions, state=state),
            terminals=Terminals(sessions=sessions, state=state),
            tools=tools,
            events=events,
            repositories=forges.repositories,
            local=forges.local,
            git=forges.git,
            inbox=triggers.inbox,
            rules=triggers.rules,
            tasks=tasks.service,
            board=board,
            timeline=tasks.timeline,
            artifacts=tasks.artifacts,
            agents=agents,
            models=models,
            browsers=browsers,
            audit=AuditLog(store=SqlAudit(setup.database), clock=clock),
            version=setup.version,
            keep_alive_s=setup.keep_alive_s,
        )
        built = Platform(deps, partial(_run, reconciler, loops), partial(_close, closing))
        stack.push_async_callback(built.close)
        yield built


async def _providers(setup: Setup, mark: str, stack: AsyncExitStack) -> dict[str, Provider]:
    """What they create bears the mark: the sandboxes of browsers are no strays among sessions, nor the other way round."""
    if setup.providers is not None:
        return setup.providers(mark)
    parts = ProviderParts(
        configuration=setup.configuration,
        platform=mark,
        secret=await SqlFacts(setup.database).once("docker-secret", lambda: secrets.token_hex(32)),
        data_dir=setup.data_dir,
        engine=setup.engine,
    )
    return await stack.enter_async_context(build_providers(parts))


def _console(setup: Setup) -> str:
    if setup.hosts:
        return f"https://{setup.hosts[0]}/console"
    return f"{setup.url}/console" if setup.url else "/console"


async def _run(reconciler: SessionReconciler, loops: Sequence[Loop]) -> None:
    """Until cancelled."""
    await reconciler.at_start()
    async with asyncio.TaskGroup() as group:
        for loop in loops:
            group.create_task(loop.run())


async def _close(parts: Sequence[Closing]) -> None:
    """In this order."""
    for part in parts:
        await part.close()
