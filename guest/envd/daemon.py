"""Ties the daemon together: routes, who may call what, start and stop."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import socket
import sys

from envd import PORT, VERSION, connect, logs
from envd.codecs import Undecodable, parse_json
from envd.elevation import Elevation
from envd.files import Files
from envd.filesystem_service import FilesystemService
from envd.http import Connection, Disconnected, HttpError, cors_preflight
from envd.process_service import ProcessService
from envd.processes import Processes
from envd.state import State
from envd.users import Users

TYPE_CHECKING = False
if TYPE_CHECKING:
    from envd.http import Handler, Reply, Request
    from envd.relay import Relays

_NO_TOKEN_NEEDED = frozenset(
    {"GET /health", "GET /files", "POST /files", "POST /init"}
)  # the last three check by themselves
MAX_INIT = 1024 * 1024
_UNAUTHORIZED = "unauthorized access, please provide a valid access token or method signing if supported"


class Daemon:
    """Answers every request."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.processes = Processes()
        self.elevation = Elevation(state.users, self.processes, f"{state.run_dir}/sudo.sock")
        files = Files(state)
        filesystem = FilesystemService(state)
        service = ProcessService(self.processes, state)
        self._services = connect.Services({**service.methods(), **filesystem.methods()}, state)
        self._relays: Relays | None = None
        self._routes: dict[str, Handler] = {
            "GET /health": self._health,
            "GET /files": files.download,
            "POST /files": files.upload,
            "POST /files/compose": files.compose,
            "GET /envs": self._envs,
            "GET /metrics": self._metrics,
            "POST /init": self._init,
            "POST /relay": self._relay,
            "POST /halt": self._halt,
            "GET /logs": self._logs,
            "GET /idle": self._idle,
        }
        self._paths = {route.split(" ")[1] for route in self._routes}

    async def handle(self, request: Request, reply: Reply) -> None:
        """Raises `HttpError` or `Disconnected`; everything else is answered here."""
        preflight = cors_preflight(request)
        if preflight is not None:
            await reply.send(204, preflight)
            return
        route = f"{request.method} {request.path}"
        if route not in _NO_TOKEN_NEEDED and not self._state.allows(request.headers.get("x-access-token")):
            raise HttpError(401, _UNAUTHORIZED)
        if self._services.owns(request.path):
            await self._services.handle(request, reply)
            return
        handler = self._routes.get(route)
        if handler is None:
            known = request.path in self._paths
            raise HttpError(405 if known else 404, "method not allowed" if known else "there is nothing at this path")
        try:
            await handler(request, reply)
        except Undecodable as error:
            raise HttpError(400, str(error)) from error
        except (HttpError, Disconnected):
            raise
        except Exception as error:
            logs.report(f"{route} failed", error)
            raise HttpError(500, f"{type(error).__name__}: {error}") from error

    async def _health(self, request: Request, reply: Reply) -> None:
        await reply.send(204, [("Cache-Control", "no-store")])

    async def _envs(self, request: Request, reply: Reply) -> None:
        await reply.send_json(200, self._state.environment())

    async def _metrics(self, request: Request, reply: Reply) -> None:
        from envd.metrics import measure

        await reply.send_json(200, measure())

    async def _init(self, request: Request, reply: Reply) -> None:
        body = await request.body.read_all(MAX_INIT)
        if not self._state.allows(request.headers.get("x-access-token")):
            raise HttpError(401, "access token validation failed")
        self._state.init(body)
        await reply.send(204, [("Cache-Control", "no-store"), ("X-Envd-Version", VERSION)])

    async def _relay(self, request: Request, reply: Reply) -> None:
        wish = parse_json(await request.body.read_all(4096))
        port = wish.get("port") if isinstance(wish, dict) else None
        if isinstance(port, bool) or not isinstance(port, int) or not 0 < port < 65536:
            raise HttpError(400, "port must be a number from 1 to 65535")
        if self._relays is None:
            from envd.relay import Relays

            self._relays = Relays()
        opened = await self._relays.open(port)
        if opened is None:
            raise HttpError(404, f"nothing accepts connections on the loopback's port {port}")
        await reply.send_json(200, {"port": opened})

    async def _halt(self, request: Request, reply: Reply) -> None:
        """End everything but this daemon, as turning a machine off would: only files are to be kept."""
        self.processes.end_all()
        if os.getpid() == 1:  # else the processes of others are not ours to end
            with contextlib.suppress(ProcessLookupError):
                os.kill(-1, signal.SIGKILL)
        for _ in range(100):
            self.processes.reap()
            if not any(self.processes):
                break
            await asyncio.sleep(0.01)
        os.sync()
        await reply.send(204, [("Cache-Control", "no-store")])

    async def _idle(self, request: Request, reply: Reply) -> None:
        await reply.send_json(200, {"processes": self.processes.count_all()})

    async def _logs(self, request: Request, reply: Reply) -> None:
        after = request.query.get("after", "0")
        if not after.isdecimal() or len(after) > 15:
            raise HttpError(400, "after must be a number")
        await reply.send_json(200, {"entries": logs.after(int(after))})


async def serve(host: str, port: int, state: State) -> None:
    """Serve until told to stop."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    daemon = Daemon(state)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGCHLD, daemon.processes.reap)
    daemon.elevation.open()
    # asyncio turns Nagle off only for sockets that say they are TCP.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((host, port))
    server = await loop.create_server(lambda: Connection(daemon.handle, logs.report), sock=listener, backlog=1024)
    try:
        print(f"envd {VERSION} listens on {host}:{listener.getsockname()[1]}", flush=True)
    except OSError as error:  # nobody listens to us
        logs.report("could not say that the daemon listens", error)
    gc.freeze()
    gc.enable()
    await stop.wait()
    server.close()
    daemon.processes.end_all()


def _prepare() -> None:
    """Bring what commands inherit from this process into a known state."""
    os.umask(0o022)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGCHLD, signal.SIGTSTP):
        signal.signal(number, signal.SIG_DFL)
    for descriptor in _open_descriptors():
        try:
            os.set_inheritable(descriptor, False)
        except OSError:
            continue  # it belonged to the listing itself


def _open_descriptors() -> list[int]:
    """Those beyond the standard three."""
    try:
        return [int(name) for name in os.listdir("/proc/self/fd") if int(name) > 2]
    except OSError:
        return list(range(3, 256))


def main(arguments: list[str]) -> int:
    options = {"--host": "0.0.0.0", "--port": str(PORT), "--etc": "/etc", "--run": "/run/e2b", "--init": ""}
    for name, value in zip(arguments[::2], arguments[1::2], strict=False):
        if name not in options:
            print(f"envd: unknown option {name}; options are {' '.join(options)}", file=sys.stderr)
            return 2
        options[name] = value
    _prepare()
    state = State(Users(options["--etc"]), options["--run"])
    if options["--init"]:  # what is otherwise given by /init, for a daemon that must know it whenever it starts
        with open(options["--init"], "rb") as file:
            state.init(file.read(MAX_INIT))
    asyncio.run(serve(options["--host"], int(options["--port"]), state))
    return 0
