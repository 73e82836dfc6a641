"""Wiring: builds every part from the settings, runs them together, and takes them down in order. It alone knows everyone."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import resource
import secrets
import signal
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import uvicorn
import uvloop

from sandlot import __version__
from sandlot.engine.api.app import build_app
from sandlot.engine.api.deps import Deps
from sandlot.engine.builds.builder import Builder, BuildLimits
from sandlot.engine.builds.builder import Settings as BuildSettings
from sandlot.engine.builds.cleanup import Cleanup
from sandlot.engine.builds.template_catalog import TemplateCatalog
from sandlot.engine.control.access import Access
from sandlot.engine.control.deadlines import run_sweeper
from sandlot.engine.control.lifecycle import Lifecycle
from sandlot.engine.control.reconcile import Reconciler
from sandlot.engine.control.sandbox_request import Limits, new_sandbox_id
from sandlot.engine.control.suspension import Suspension
from sandlot.engine.control.usage_history import MetricsHistory
from sandlot.engine.core.errors import EngineError, Unauthorized, Unavailable
from sandlot.engine.core.model import Resources, Sandbox, State, Template
from sandlot.engine.core.ports import Runtime, TemplateStore
from sandlot.engine.gateway import Gateway
from sandlot.engine.gateway.routes import Routes
from sandlot.engine.node import processes
from sandlot.engine.node.boot import Guest
from sandlot.engine.node.boot_snapshots import BootSnapshots
from sandlot.engine.node.build_runner import LocalBuildRunner
from sandlot.engine.node.envd.client import EnvdClient
from sandlot.engine.node.envd.commands import CommandClient
from sandlot.engine.node.idle_freezer import IdleFreezer
from sandlot.engine.node.images import base, guest
from sandlot.engine.node.images.catalogue import Catalogue
from sandlot.engine.node.images.imported_images import ImportedImages
from sandlot.engine.node.images.layers import Layers
from sandlot.engine.node.images.registry import Registries
from sandlot.engine.node.images.sources import ImageSources
from sandlot.engine.node.images.storage import LayerStorage
from sandlot.engine.node.images.uploads import DiskUploads
from sandlot.engine.node.local import LocalNode
from sandlot.engine.node.network.slots import Slots
from sandlot.engine.node.runtimes import RUNTIMES
from sandlot.engine.node.warm_pool import Plan as Standby
from sandlot.engine.node.warm_pool import Pool
from sandlot.engine.store import Database, SqlAccess, SqlBuilds, SqlSandboxes, SqlTags, SqlTemplates
from sandlot.server import heap, instance, telemetry
from sandlot.server.http import Server, build_config
from sandlot.settings import Settings
from sandlot.stock import StockTemplates
from sandlot.wiring.combined import Together, inner_door, together

if TYPE_CHECKING:
    from sandlot.server import tls

log = logging.getLogger(__name__)

NODE = "local"
DRAIN_S = 0.2  # how long open exchanges may take to end by themselves before a pause cuts them
Progress = Callable[[str], None]


def serve(settings: Settings, progress: Progress = lambda _: None) -> None:
    """Run the server of one data directory until it is told to stop. Sandboxes outlive it."""
    settings.data_dir.mkdir(parents=True, exist_ok=True, mode=0o711)
    instance.claim(settings.data_dir)
    telemetry.configure_logging(settings.log_level, settings.log_format)
    _raise_file_limit()
    heap.share()
    processes.enter_private_mounts()
    uvloop.run(_serve(settings, progress))


def _raise_file_limit() -> None:
    """Each slot takes a handful of descriptors and each connection two: the usual soft limit of 1024 is soon used up."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def instance_id(data_dir: Path) -> str:
    """Six hex digits that keep two instances on one machine apart in names of namespaces, cgroups and interfaces."""
    return hashlib.sha256(os.fsencode(data_dir.resolve())).hexdigest()[:6]


async def _serve(settings: Settings, progress: Progress) -> None:
    processes.watch_orphans()
    async with contextlib.AsyncExitStack() as stack:
        platform = await stack.enter_async_context(together(settings))
        engine = await stack.enter_async_context(_engine(settings, progress, platform))
        await _listen(settings, engine, platform)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Engine:
    """The parts that the server and its loops need."""

    app: Gateway
    lifecycle: Lifecycle
    reconciler: Reconciler
    history: MetricsHistory
    cleanup: Cleanup
    first_use: StockTemplates
    stillness: IdleFreezer
    pool: Pool
    seeds: BootSnapshots


@contextlib.asynccontextmanager
async def _engine(settings: Settings, progress: Progress, platform: Together) -> AsyncIterator[_Engine]:
    """Everything behind the door, ready to serve: templates built, earlier sandboxes taken over."""
    async with contextlib.AsyncExitStack() as stack:
        database = Database.at(settings.data_dir, settings.database_url)
        stack.push_async_callback(database.close)
        await database.migrate()
        sandboxes, templates = SqlSandboxes(database), SqlTemplates(database)
        access = Access(store=SqlAccess(database), clock=now)
        await _first_key(access, settings.data_dir)

        runtimes = await _runtimes(settings)
        default_runtime = _default_runtime(settings, runtimes)
        progress(f"runtime: {default_runtime}")
        await _built_in_templates(settings, templates, progress)
        commands = CommandClient()
        await commands.open()
        stack.push_async_callback(commands.close)
        node = await stack.enter_async_context(_node(settings, runtimes, commands))
        nodes = {node.name: node}
        limits = Limits(max_sandboxes=settings.max_sandboxes, max_timeout_s=settings.max_timeout_hours * 3600)
        lifecycle = Lifecycle(
            sandboxes=sandboxes,
            templates=templates,
            nodes=nodes,
            clock=now,
            default_runtime=default_runtime,
            limits=limits,
        )
        stack.push_async_callback(node.pool.close)
        stack.push_async_callback(lifecycle.close)

        async def running() -> list[Sandbox]:
            return list(await sandboxes.query(states=[State.RUNNING]))

        history = MetricsHistory(lambda sandbox: node.usage(sandbox.id), running)
        numbers = telemetry.Telemetry()
        numbers.watch_starts(node.pool.numbers, lambda: node.seeds.used)

        async def by_state() -> Mapping[str, int]:
            return {state.value: await sandboxes.count(states=[state]) for state in State if state is not State.ENDED}

        suspension = Suspension(
            lifecycle=lifecycle,
            templates=templates,
            clock=now,
            limits=limits,
            drain=lambda sandbox_id: edge.drain(sandbox_id, DRAIN_S),
        )
        builder = await stack.enter_async_context(
            _builder(settings, database, sandboxes, templates, lifecycle, node, commands, default_runtime)
        )
        layers = Layers(settings.cache_dir / "layers")
        cleanup = Cleanup(
            templates=templates,
            builds=SqlBuilds(database),
            node=node,
            storage=LayerStorage(
                cache_dir=settings.cache_dir,
                layers=layers,
                imported=ImportedImages(settings.cache_dir / "images", layers),
                instance=instance_id(settings.data_dir),
                data_dir=settings.data_dir,
            ),
            archives=_uploads(settings),
        )
        builder.on_ready(cleanup.need)
        first_use = StockTemplates(settings)
        stack.push_async_callback(first_use.close)
        lifecycle.when_missing(first_use.announce)
        builder.when_missing(first_use.make)
        deps = Deps(
            lifecycle=lifecycle,
            suspension=suspension,
            access=access,
            templates=templates,
            history=history,
            builder=builder,
            cleanup=cleanup,
            clock=now,
            version=__version__,
            max_body_bytes=settings.max_body_mb << 20,
            domain=_public_domain(settings),
            metrics=lambda: numbers.render(
                by_state, lambda: edge.open_connections(), node.saved_bytes, node.stillness.count
            ),
        )
        edge = Gateway(
            telemetry.Watched(platform.beside(build_app(deps)), numbers),
            Routes(lifecycle.find, running),
            relay=node.relay_port,
            wake=suspension.wake,
            awake=node.stillness.awake,
            domain=settings.domain,
            on_pass=lambda kind: numbers.edge_passed.labels(kind).inc(),
            on_refusal=lambda status: numbers.edge_refused.labels(str(status)).inc(),
        )
        stack.push_async_callback(edge.close)
        lifecycle.on_change(node.stillness.changed)
        lifecycle.on_change(edge.changed)
        lifecycle.on_change(history.changed)
        reconciler = Reconciler(
            lifecycle=lifecycle,
            suspension=suspension,
            sandboxes=sandboxes,
            templates=templates,
            nodes=nodes,
            kept=builder.states,
        )
        await builder.recover()
        await cleanup.claim()
        repairs = await reconciler.at_start()
        if repairs.adopted:
            progress(f"took over {len(repairs.adopted)} running sandboxes")
        yield _Engine(
            app=edge,
            lifecycle=lifecycle,
            reconciler=reconciler,
            history=history,
            cleanup=cleanup,
            first_use=first_use,
            pool=node.pool,
            seeds=node.seeds,
            stillness=node.stillness,
        )


def now() -> datetime:
    return datetime.now(UTC)


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


async def _runtimes(settings: Settings) -> Mapping[str, Runtime]:
    """The runtimes that work on this host, by name."""
    programs = {"gvisor": settings.runsc, "container": None}
    found: dict[str, Runtime] = {}
    for name, kind in RUNTIMES.items():
        runtime: Runtime = kind(settings.data_dir, instance_id(settings.data_dir), program=programs.get(name))
        try:
            await runtime.check()
            found[name] = runtime
        except EngineError as error:
            log.warning("runtime %r does not work here: %s", name, error)
            if settings.runtime == name:
                raise
    if not found:
        raise Unavailable(
            "no runtime works on this host, so no sandbox can be started; `./sandlot doctor` says what is missing"
        )
    return found


def _default_runtime(settings: Settings, runtimes: Mapping[str, Runtime]) -> str:
    return settings.runtime if settings.runtime != "auto" else next(iter(runtimes))


@contextlib.asynccontextmanager
async def _node(
    settings: Settings, runtimes: Mapping[str, Runtime], commands: CommandClient
) -> AsyncIterator[LocalNode]:
    directory = await guest.build_guest(settings.data_dir / "guest")
    network = Slots(
        settings.data_dir,
        instance_id(settings.data_dir),
        settings.network_range,
        settings.network_allow_private,
        settings.dns_servers,
        settings.warm_slots,
    )
    envd = EnvdClient()
    await network.open()
    await envd.open()
    node = LocalNode(
        name=NODE,
        data_dir=settings.data_dir,
        layers_dir=settings.cache_dir / "layers",
        guest=Guest(directory=directory, argv=guest.guest_argv(), env=guest.GUEST_ENVIRONMENT),
        runtimes=runtimes,
        network=network,
        envd=envd,
        commands=commands,
        checkpoint_limit_bytes=settings.checkpoint_disk_gb << 30,
        keep_logs=timedelta(hours=settings.keep_ended_hours),
        idle_freeze_s=settings.idle_freeze_s,
        most_seeds=settings.seeds,
        standby=Standby(size=settings.pool_size, memory_bytes=settings.pool_memory_mb << 20, make_id=new_sandbox_id),
    )
    try:
        yield node
    finally:
        await node.close()
        await envd.close()
        await network.close()
        for runtime in runtimes.values():
            await runtime.close()


@contextlib.asynccontextmanager
async def _builder(
    settings: Settings,
    database: Database,
    sandboxes: SqlSandboxes,
    templates: SqlTemplates,
    lifecycle: Lifecycle,
    node: LocalNode,
    commands: CommandClient,
    runtime: str,
) -> AsyncIterator[Builder]:
    """What turns recipes into templates."""
    layers = Layers(settings.cache_dir / "layers")
    builds = SqlBuilds(database)
    registries = Registries(
        layers, trusted=settings.trusted_registries, amazon_endpoint=settings.amazon_registry_endpoint
    )
    await registries.open()
    catalog = TemplateCatalog(
        templates=templates,
        builds=builds,
        tags=SqlTags(database),
        sandboxes=sandboxes,
        clock=now,
        discard=node.discard,
        changed=node.template_changed,
    )
    builder = Builder(
        templates=templates,
        builds=builds,
        catalog=catalog,
        build_runner=LocalBuildRunner(
            node=node, layers=layers, commands=commands, steps_dir=settings.cache_dir / "steps"
        ),
        images=ImageSources(
            Catalogue.read(),
            registries,
            ImportedImages(settings.cache_dir / "images", layers),
            use_catalogue=settings.image_catalogue,
        ),
        uploads=_uploads(settings),
        clock=now,
        hold=lifecycle.transitions.holding,
        settings=BuildSettings(runtime=runtime, node=node.name, envd_version=guest.envd_version()),
        limits=BuildLimits(
            at_once=settings.builds_at_once,
            build_s=settings.build_timeout_minutes * 60,
            step_s=settings.build_timeout_minutes * 60,
            ready_s=settings.build_ready_s,
            memory_mb=settings.build_memory_mb,
            disk_mb=settings.build_disk_mb,
            internet=settings.build_internet,
            sandbox=_resources(settings, Resources()),
        ),
    )
    try:
        yield builder
    finally:
        await builder.close()
        await registries.close()


def _uploads(settings: Settings) -> DiskUploads:
    return DiskUploads(settings.data_dir / "uploads", settings.max_upload_mb << 20)


async def _built_in_templates(settings: Settings, templates: TemplateStore, progress: Progress) -> None:
    """Have the base template's layer on disk and its row in the store, as its recipe says now."""
    recipe = base.read_recipe()
    layer = await base.build_base(recipe, settings.cache_dir / "layers", progress)
    known = await templates.resolve(None, recipe.name)
    at = now()
    template = Template(
        id=recipe.name,
        team_id=None,
        name=recipe.name,
        layers=(layer,),
        build_id=_build_id(layer),
        created_at=at,
        updated_at=at,
        resources=_resources(settings, recipe.resources),
        default_user=recipe.user,
        default_workdir=recipe.workdir,
        public=True,
        recipe_digest=recipe.digest,
        envd_version=guest.envd_version(),
    )
    if known is not None:
        same = replace(
            template,
            created_at=known.created_at,
            updated_at=known.updated_at,
            spawn_count=known.spawn_count,
            last_spawned_at=known.last_spawned_at,
        )
        if same == known:
            return
        template = replace(same, updated_at=at)
    await templates.put(template)
    log.info("template %s is ready (%s)", recipe.name, layer)


def _resources(settings: Settings, recipe: Resources) -> Resources:
    """The operator's settings decide for built-in templates; recipes of users bring their own."""
    return replace(
        recipe,
        cpu_count=settings.sandbox_cpu_count,
        memory_mb=settings.sandbox_memory_mb,
        disk_mb=settings.sandbox_disk_mb,
        pids=settings.sandbox_pids,
    )


def _build_id(layer: str) -> str:
    digest = hashlib.sha256(layer.encode()).hexdigest()
    return f"{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:32]}"


# -- listening -----------------------------------------------------------------------------------------------------


def _public_domain(settings: Settings) -> str | None:
    if settings.domain is None or settings.port == 443 or ":" in settings.domain:
        return settings.domain
    return f"{settings.domain}:{settings.port}"


def _certificate(settings: Settings) -> tls.Certificate:
    from sandlot.server import tls  # what it stands on is large, and few servers need it

    return tls.certificate_for(
        settings.domain or "", settings.data_dir / "tls", chain=settings.tls_cert, key=settings.tls_key
    )


async def _listen(settings: Settings, engine: _Engine, platform: Together) -> None:
    sock = _bind(settings)
    port = sock.getsockname()[1]
    certificate = _certificate(settings) if settings.domain else None
    config = build_config(engine.app, certificate=(certificate.chain, certificate.key) if certificate else None)

    def listening() -> None:
        _announce(settings, port, certificate)
        engine.first_use.renew()
        heap.give_back()
        if certificate is None:
            platform.listening(port, is_plain=True)

    async def cut() -> None:
        await platform.close()
        await engine.app.close()

    server = _Server(config, before_shutdown=cut, on_listening=listening)
    loops = [
        asyncio.create_task(run_sweeper(engine.lifecycle, now, keep_ended=timedelta(hours=settings.keep_ended_hours))),
        asyncio.create_task(engine.reconciler.run()),
        asyncio.create_task(engine.history.run()),
        asyncio.create_task(engine.cleanup.run()),
        asyncio.create_task(engine.stillness.run()),
        asyncio.create_task(engine.pool.run()),
        asyncio.create_task(engine.seeds.run(engine.pool.quiet)),
        asyncio.create_task(platform.run()),
    ]
    for loop in loops:
        loop.add_done_callback(lambda task: _loop_ended(task, server))
    try:
        async with contextlib.AsyncExitStack() as inner:
            if certificate is not None:
                door = await inner.enter_async_context(inner_door(engine.app))
                platform.listening(door, is_plain=False)
            await server.serve(sockets=[sock])
    finally:
        (settings.data_dir / "server.json").unlink(missing_ok=True)
        for loop in loops:
            loop.cancel()
        await asyncio.gather(*loops, return_exceptions=True)


class _Server(Server):
    @contextlib.contextmanager
    def capture_signals(self):  # type: ignore[no-untyped-def]
        """Stop on SIGINT and SIGTERM, and leave what else the process does with signals alone."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        yield


def _loop_ended(task: asyncio.Task[None], server: uvicorn.Server) -> None:
    """A loop that dies takes the server down: better restarted than half alive."""
    if not task.cancelled():
        log.critical("a background loop ended; stopping the server", exc_info=task.exception())
        server.should_exit = True


def _bind(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    sock = socket.socket(family)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((settings.host, settings.port))
    except OSError as error:
        sock.close()
        raise Unavailable(
            f"cannot listen on {settings.host}:{settings.port}: {error.strerror}; choose another port with --port, or end what uses it"
        ) from error
    return sock


def _announce(settings: Settings, port: int, certificate: tls.Certificate | None) -> None:
    host = "127.0.0.1" if settings.host in ("0.0.0.0", "::") else settings.host
    url = f"https://{settings.domain}:{port}" if certificate else f"http://{host}:{port}"
    facts = instance.Facts(
        pid=os.getpid(),
        url=url,
        port=port,
        domain=settings.domain,
        started_at=now().isoformat(),
        ca=str(certificate.authority) if certificate and certificate.authority else None,
    )
    instance.announce(settings.data_dir, facts)
    log.info("listening on %s", url)
