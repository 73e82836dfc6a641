"""Runs the server of one data directory: the process's own set-up, the listening socket, the loops, and the end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
import signal
import socket

import uvicorn
import uvloop

from sandlot.engine.node import processes
from sandlot.server import heap, instance, telemetry
from sandlot.server.certificates import Certificate, find_certificate
from sandlot.server.errors import StartupFailed
from sandlot.server.http import Server, build_config
from sandlot.server.https_only import HttpsOnly
from sandlot.settings import DEFAULT_PORT, LOCAL_DOMAIN, Settings
from sandlot.wiring.builds import Progress
from sandlot.wiring.clock import now
from sandlot.wiring.combined import MountedPlatform, loopback_listener, open_platform
from sandlot.wiring.engine import Engine, Loop, open_engine
from sandlot.wiring.own_address import OwnAddress

log = logging.getLogger(__name__)

HTTPS_PORT = 443  # what addresses without a port mean


def serve(settings: Settings, progress: Progress = lambda _: None) -> None:
    """Run the server of one data directory until it is told to stop. Sandboxes outlive it."""
    instance.claim(settings.data_dir)
    telemetry.configure_logging(settings.log_level, settings.log_format)
    _raise_file_limit()
    certificate = find_certificate(
        settings.domain or LOCAL_DOMAIN, settings.data_dir / "tls", chain=settings.tls_cert, key=settings.tls_key
    )
    heap.share()
    processes.enter_private_mounts()
    uvloop.run(_serve(settings, certificate, progress))


def _raise_file_limit() -> None:
    """Each slot takes a handful of descriptors and each connection two: the usual soft limit of 1024 is soon used up."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def _serve(settings: Settings, certificate: Certificate, progress: Progress) -> None:
    processes.watch_orphans()
    own = OwnAddress(settings)
    async with contextlib.AsyncExitStack() as stack:
        platform = await stack.enter_async_context(open_platform(settings, own))
        engine = await stack.enter_async_context(open_engine(settings, progress, own, platform.beside))
        await _listen(settings, engine, platform, own, certificate)


async def _listen(
    settings: Settings, engine: Engine, platform: MountedPlatform, own: OwnAddress, certificate: Certificate
) -> None:
    sock = _bind(settings.host, settings.port)
    port, second = sock.getsockname()[1], _bind_second(settings)
    app = HttpsOnly(engine.app) if settings.domain else engine.app
    config = build_config(app, certificate=(certificate.chain, certificate.key))

    def listening() -> None:
        _announce(settings, port, second, certificate)
        engine.stock.renew()
        engine.stock.prepare(settings.prepare_templates)
        heap.give_back()
        if settings.domain is None:
            own.listening(port, is_public=True)

    async def cut() -> None:
        await engine.stock.close()
        await platform.close()
        await engine.cut()

    server = _Server(config, before_shutdown=cut, on_listening=listening)
    loops = [asyncio.create_task(_forever(run)) for run in (*engine.loops, platform.run)]
    for loop in loops:
        loop.add_done_callback(lambda task: _loop_ended(task, server))
    try:
        async with contextlib.AsyncExitStack() as inner:
            if settings.domain is not None:
                inner_port = await inner.enter_async_context(loopback_listener(engine.app))
                own.listening(inner_port, is_public=False)
            await server.serve(sockets=[sock, *([second] if second else [])])
    finally:
        (settings.data_dir / "server.json").unlink(missing_ok=True)
        for loop in loops:
            loop.cancel()
        await asyncio.gather(*loops, return_exceptions=True)


async def _forever(run: Loop) -> None:
    await run()


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


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        raise StartupFailed(
            f"cannot listen on {host}:{port}: {error.strerror}; choose another port with --port, or end what uses it"
        ) from error
    return sock


def _bind_second(settings: Settings) -> socket.socket | None:
    """The port that addresses need not name; whoever has it already keeps it."""
    is_usual = settings.domain is None and settings.port == DEFAULT_PORT
    port = (HTTPS_PORT if is_usual else 0) if settings.https_port is None else settings.https_port
    if not port:
        return None
    try:
        return _bind(settings.host, port)
    except StartupFailed as error:
        if settings.domain:  # whose addresses are given out without a port
            raise
        level = logging.DEBUG if settings.https_port is None else logging.WARNING
        log.log(level, "no second port (SANDLOT_HTTPS_PORT): %s. Addresses of sandboxes name the first one", error)
        return None


def _announce(settings: Settings, port: int, second: socket.socket | None, certificate: Certificate) -> None:
    host = "127.0.0.1" if settings.host in ("0.0.0.0", "::") else settings.host
    url = f"https://{settings.domain}:{port}" if settings.domain else f"http://{host}:{port}"
    facts = instance.Facts(
        pid=os.getpid(),
        url=url,
        port=port,
        domain=settings.domain or LOCAL_DOMAIN,
        started_at=now().isoformat(),
        ca=str(certificate.authority) if certificate.authority else None,
        https_port=second.getsockname()[1] if second else None,
    )
    instance.announce(settings.data_dir, facts)
    log.info("listening on %s", url)
