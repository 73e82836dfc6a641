"""The server's commands: up, down, status, env, and the hidden one that is the server itself."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import select
import shlex
import signal
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sandlot.cli import client, output, preparation, stock
from sandlot.cli.console import login_link
from sandlot.cli.options import Json, of_instance, settings
from sandlot.cli.output import Failure
from sandlot.program import SANDLOT
from sandlot.server import instance

if TYPE_CHECKING:
    from sandlot.settings import Settings

READY_TIMEOUT_S = 180
LOG_LIMIT = 16 << 20
# What the server gets of the caller's environment. The rest may hold secrets that are none of its business.
_PASSED = ("PATH", "HOME", "LANG", "TZ", "TERM", "NO_COLOR", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "SSL_CERT_FILE")
_DOTENV, _ESCAPED = re.compile(r"([\\\\\"$`])"), r"\\\1"
_PASSED_PREFIXES = ("SANDLOT_", "LC_", "http_", "https_", "no_", "HTTP_", "HTTPS_", "NO_")


@of_instance
def up(
    *,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Return as soon as the server is ready.")] = False,
    domain: Annotated[
        str | None,
        typer.Option(help="Serve https://{port}-{id}.{domain}, by a local CA or your own certificate."),
    ] = None,
    https_port: Annotated[
        int | None, typer.Option(metavar="N", help="Listen on this port too: 443, so that addresses need no port.")
    ] = None,
    allow_stand_in: Annotated[
        bool,
        typer.Option("--allow-stand-in", help="Offline, let stock templates stand in for images of other versions."),
    ] = False,
    prepared: Annotated[
        str | None,
        typer.Option(
            "--with",
            metavar="NAMES",
            help="Have these stock templates built first, comma-separated: interpreter,agent.",
        ),
    ] = None,
    hello: Annotated[bool, typer.Option(help="Try a sandbox once the server is ready.")] = True,
) -> None:
    """Start the server; on a fresh machine, first install what is missing and build the base template.

    In the foreground, Ctrl-C ends the server and its sandboxes. SIGTERM ends the server alone: sandboxes go on,
    and the next `up` finds them.
    """
    if domain:
        os.environ["SANDLOT_DOMAIN"] = domain
    if https_port:
        os.environ["SANDLOT_HTTPS_PORT"] = str(https_port)
    if allow_stand_in:
        os.environ["SANDLOT_ALLOW_STAND_IN"] = "true"
    chosen = settings()
    preparation.require_root()
    if facts := _already_up(chosen):
        _prepare_templates(chosen, prepared)
        output.done(f"Sandlot already runs at {facts.url} (pid {facts.pid})")
        return
    preparation.prepare(chosen)
    child = _start(chosen, detach)
    try:
        facts = _wait_until_ready(chosen, child, detach)
        _prepare_templates(chosen, prepared)
        output.done(f"Sandlot is ready at {facts.url}")
        if chosen.https_port and facts.https_port is None:
            output.warn(f"port {chosen.https_port} is taken, so addresses of sandboxes name port {facts.port}")
        greeted = _say_hello(chosen) if hello else True
        _say_next_steps(chosen, detach)
    except KeyboardInterrupt:
        _end(child)
        raise
    except Failure:
        _end(child)
        raise
    if detach:
        raise typer.Exit(0 if greeted else 1)
    raise typer.Exit(_attend(chosen, child))


def ensure_up(chosen: Settings) -> None:
    """A server of this instance in the background: the one that runs, or a new one."""
    if _already_up(chosen):
        return
    preparation.require_root()
    preparation.prepare(chosen)
    child = _start(chosen, detach=True)
    try:
        facts = _wait_until_ready(chosen, child, detach=True)
    except (KeyboardInterrupt, Failure):
        _end(child)
        raise
    output.done(f"Sandlot is ready at {facts.url}; to end it: {SANDLOT} down{client.instance_option(chosen)}")


@of_instance
def down(
    *,
    keep: Annotated[bool, typer.Option("--keep", help="Leave sandboxes running; the next `up` finds them.")] = False,
) -> None:
    """End all sandboxes, then the server."""
    chosen = settings()
    try:
        pid = instance.holder(chosen.data_dir)
    except PermissionError as error:
        raise Failure(f"the server belongs to root; use sudo: sudo {SANDLOT} down") from error
    if pid is None:
        output.say(f"No server runs for {chosen.data_dir}.")
        if not keep and (left := _give_back_network(chosen)):
            output.warn(
                f"{left} sandboxes of an earlier server run on. To end them: {SANDLOT} up -d, then {SANDLOT} down"
            )
        return
    ended = not keep and _end_sandboxes(chosen)
    if not instance.stop(chosen.data_dir):
        raise Failure(f"the server (pid {pid}) did not end, not even when killed; look at it: ps -fp {pid}")
    if ended:
        _give_back_network(chosen)
    output.done("Sandlot is down" + (", its sandboxes run on" if keep else ""))


@of_instance
def status(*, as_json: Json = False) -> None:
    """Show the server, its sandboxes, its templates and how much disk they use."""
    chosen = settings()
    record = _status(chosen)
    if as_json:
        output.print_json(record)
    else:
        shown = {name.replace("_", " "): value for name, value in record.items() if name not in ("sandboxes", "disk")}
        counts = ", ".join(f"{count} {state}" for state, count in record["sandboxes"].items())
        disk = ", ".join(f"{name} {output.size(used)}" for name, used in record["disk"].items())
        shown["templates"] = ", ".join(record["templates"]) or "none"
        shown["building"] = "; ".join(record["building"]) or "nothing"
        output.print_record({**shown, "sandboxes": counts or "none", "disk": disk})
    if not record["running"]:
        output.say(f"Start it: {client.start_command(chosen)}")
        raise typer.Exit(3)


@of_instance
def env(
    *,
    docker: Annotated[
        bool, typer.Option("--docker", help="As options of `docker run`, on the host's network.")
    ] = False,
    dotenv: Annotated[bool, typer.Option("--dotenv", help="As a .env file.")] = False,
    as_json: Json = False,
) -> None:
    """Print what clients need in their environment: eval "$(./sandlot env)"."""
    values = client.exports(settings())
    if as_json:
        output.print_json(values)
    elif docker:
        print(shlex.join(_docker_options(values)))
    elif dotenv:
        for name, value in values.items():
            print(f'{name}="{_DOTENV.sub(_ESCAPED, value)}"')
    else:
        if "E2B_SANDBOX_URL" not in values:
            print("unset E2B_SANDBOX_URL;")  # it would keep SDKs from using a host name per port
        for name, value in values.items():
            print(f"export {name}={shlex.quote(value)};")


def _docker_options(values: dict[str, str]) -> list[str]:
    files = sorted({value for name, value in values.items() if not name.startswith("E2B_")})
    return [
        "--network=host",
        *(f"--volume={path}:{path}:ro" for path in files),
        *(f"--env={name}={value}" for name, value in values.items()),
    ]


@of_instance
def serve(*, with_parent: Annotated[int | None, typer.Option(hidden=True)] = None) -> None:
    """Be the server, in this process, with nothing prepared and nothing explained."""
    chosen = settings()
    if with_parent is not None:
        _end_with(with_parent)
    try:
        instance.claim(chosen.data_dir)
    except instance.AlreadyRunning as error:
        raise Failure(f"{error}. End it first: {SANDLOT} down") from error
    from sandlot.engine.core.errors import EngineError
    from sandlot.server.errors import StartupFailed
    from sandlot.wiring.serve import serve as serve_until_told

    try:
        serve_until_told(chosen)
    except (EngineError, StartupFailed) as error:
        raise Failure(str(error)) from error
    except Exception as error:
        traceback.print_exc()  # the log is where somebody will look for it
        raise typer.Exit(70) from error


def _end_with(parent: int) -> None:
    """Have this process told to end when its parent does. A parent-death signal would be lost with a change of
    credentials, which entering namespaces can be; a pidfd is not."""
    pidfd = os.pidfd_open(parent)
    if os.getppid() != parent:
        raise Failure("the command that started this server is gone")

    def wait() -> None:
        select.select([pidfd], [], [])
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, daemon=True).start()


def _already_up(chosen: Settings) -> instance.Facts | None:
    """A server that another `up` is just starting is waited for."""
    deadline = time.monotonic() + READY_TIMEOUT_S
    while instance.holder(chosen.data_dir) is not None:
        facts = instance.facts(chosen.data_dir)
        if facts and client.is_healthy(facts):
            return facts
        if time.monotonic() > deadline:
            raise Failure(
                f"a server holds {chosen.data_dir} and does not answer. Its log: {_log(chosen)}. End it: {SANDLOT} down"
            )
        time.sleep(0.1)
    return None


def _referenced(chosen: Settings) -> set[str]:
    """Variables that the platform's configuration takes secrets from."""
    path = chosen.config or chosen.data_dir / "sandlot.toml"
    from sandlot.platform.config.configuration import variables
    from sandlot.platform.config.models import WELL_KNOWN_VARIABLES

    return variables(path) if path.exists() else set(WELL_KNOWN_VARIABLES)


def _start(chosen: Settings, detach: bool) -> subprocess.Popen[bytes]:
    argv = [sys.executable, "-P", "-m", "sandlot", "serve"]
    wanted = {*_PASSED, *_referenced(chosen)}
    environment = {
        name: value for name, value in os.environ.items() if name in wanted or name.startswith(_PASSED_PREFIXES)
    }
    if not detach:
        argv += ["--with-parent", str(os.getpid())]
        return subprocess.Popen(argv, stdin=subprocess.DEVNULL, env=environment, start_new_session=True)
    log = _log(chosen)
    instance.make_private(chosen.data_dir)
    if log.exists() and log.stat().st_size > LOG_LIMIT:
        log.replace(log.with_suffix(".log.1"))
    log.touch(mode=0o600)
    with log.open("ab") as out:
        return subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment, start_new_session=True, cwd="/"
        )


def _wait_until_ready(chosen: Settings, child: subprocess.Popen[bytes], detach: bool) -> instance.Facts:
    deadline = time.monotonic() + READY_TIMEOUT_S
    with output.step("Starting the server"):
        while time.monotonic() < deadline:
            if child.poll() is not None:
                raise Failure(_why_not(chosen, f"the server ended with status {child.returncode}", detach))
            facts = instance.facts(chosen.data_dir)
            if facts and facts.pid == child.pid and client.is_healthy(facts):
                return facts
            time.sleep(0.03)
    raise Failure(_why_not(chosen, f"the server was not ready after {READY_TIMEOUT_S} s", detach))


def _prepare_templates(chosen: Settings, names: str | None) -> None:
    """Those that were built here before are taken as they are; the server renews them by itself."""
    for name in filter(None, (part.strip() for part in (names or "").split(","))):
        began = time.monotonic()
        with output.step(f"Building the template {name} (once, some minutes)") as tell:
            fresh = stock.make(chosen, name, tell)
        if fresh:
            output.done(f"Built the template {name} in {time.monotonic() - began:.0f} s")


def _say_what_is_built(chosen: Settings) -> None:
    for each in stock.listed(chosen):
        if each["state"] == "building":
            left = each["remaining_s"]
            about = f", ready in about {max(1, round(left / 60))} min" if left else ""
            output.say(f"The template {each['name']} is being built in the background{about}.")


def _why_not(chosen: Settings, what: str, detach: bool) -> str:
    if not detach:
        return f"{what}; its log is above. `{SANDLOT} doctor` checks the host"
    with _log(chosen).open("rb") as log:
        log.seek(max(0, _log(chosen).stat().st_size - 8192))
        tail = "\n".join(log.read().decode(errors="replace").splitlines()[-20:])
    return f"{what}. The last lines of {_log(chosen)}:\n{tail}\n`{SANDLOT} doctor` checks the host"


def _log(chosen: Settings) -> Path:
    return chosen.data_dir / instance.LOGS / "server.log"


def _say_hello(chosen: Settings) -> bool:
    began = time.monotonic()
    try:
        sandbox = client.sdk(chosen).create(timeout=60)
        try:
            said = sandbox.commands.run('echo "Hello from $(uname -s) $(uname -r), as $(id -un)"').stdout.strip()
        finally:
            sandbox.kill()
    except Exception as error:
        output.error(f"a first sandbox did not work: {error}. `{SANDLOT} doctor` checks the host")
        return False
    output.done(f"{said} (a sandbox, made, used and removed in {time.monotonic() - began:.1f} s)")
    return True


def _say_next_steps(chosen: Settings, detach: bool) -> None:
    option = client.instance_option(chosen)
    steps = [
        (f'eval "$({SANDLOT} env{option})"', "point the E2B SDKs at it"),
        (f"{SANDLOT} run{option} -- python3 -c 'print(6*7)'", "one command in a sandbox of its own"),
        (f"{SANDLOT} down{option}" if detach else "Ctrl-C", "end everything"),
    ]
    width = max(len(command) for command, _ in steps)
    output.say()
    for command, meaning in steps:
        output.say(f"  {command.ljust(width)}  {meaning}")
    with contextlib.suppress(Failure):
        output.say()
        _say_what_is_built(chosen)
        output.say(f"Console (this link logs one browser in, once): {login_link(chosen)['url']}")
    output.say()


def _attend(chosen: Settings, child: subprocess.Popen[bytes]) -> int:
    """Stay in the foreground until the server ends, by itself or because we are told to."""
    told: list[int] = []
    signal.signal(signal.SIGTERM, lambda *_: _pass_on(told, child))
    try:
        status = child.wait()
    except KeyboardInterrupt:
        output.say()
        ended = False
        try:
            ended = _end_sandboxes(chosen)
        finally:
            _end(child)
        if ended:
            _give_back_network(chosen)
        return 0
    return 0 if told and status in (0, -signal.SIGTERM) else abs(status)


def _pass_on(told: list[int], child: subprocess.Popen[bytes]) -> None:
    told.append(1)
    child.send_signal(signal.SIGTERM)


def _end(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is None:
        child.terminate()
        try:
            child.wait(30)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _end_sandboxes(chosen: Settings) -> bool:
    facts = instance.facts(chosen.data_dir)
    if facts is None or not client.is_healthy(facts):
        output.warn("the server does not answer, so its sandboxes could not be ended; the next `up` finds them")
        return False
    ended = client.end_all(chosen)
    if ended:
        output.done(f"{ended} sandbox{'es' if ended != 1 else ''} ended")
    return True


def _give_back_network(chosen: Settings) -> int:
    """Slots and rules outlive the server for the sake of running sandboxes; with the last of those, they go.

    Returns how many sandboxes still have one.
    """
    if os.geteuid() != 0 or not (chosen.data_dir / "network").is_dir():
        return 0
    from sandlot.engine.node.network.slots import Slots
    from sandlot.wiring.node import instance_id

    async def destroy() -> int:
        slots = Slots(chosen.data_dir, instance_id(chosen.data_dir), chosen.network_range)
        claims = await slots.claims()
        if not claims:
            await slots.destroy()
        return len(claims)

    return asyncio.run(destroy())


def _status(chosen: Settings) -> dict[str, Any]:
    try:
        facts = instance.facts(chosen.data_dir)
    except PermissionError as error:
        raise Failure(f"the data directory belongs to root; use sudo: sudo {SANDLOT} status") from error
    healthy = facts is not None and client.is_healthy(facts)
    sandboxes: dict[str, int] = {}
    for row in client.sandboxes(chosen) if healthy else []:
        sandboxes[row["state"]] = sandboxes.get(row["state"], 0) + 1
    from sandlot.engine.node.images.layers import Layers

    return {
        "running": facts is not None,
        "healthy": healthy,
        "url": facts.url if facts else None,
        "pid": facts.pid if facts else None,
        "started_at": facts.started_at if facts else None,
        "data_dir": str(chosen.data_dir),
        "sandboxes": sandboxes,
        "templates": [client.template_name(row) for row in client.get(chosen, "/templates")] if healthy else [],
        "building": [stock.described(each) for each in stock.listed(chosen) if stock.is_news(each)] if healthy else [],
        "disk": {
            "data": _disk_use(chosen.data_dir),
            "checkpoints": _disk_use(chosen.data_dir / "checkpoints"),
            "layers": sum(
                _disk_use(chosen.cache_dir / "layers" / name) for name in Layers(chosen.cache_dir / "layers").names()
            ),
        },
    }


def _disk_use(path: Path) -> int:
    if not path.exists():
        return 0
    answer = subprocess.run(["du", "-skx", str(path)], capture_output=True, text=True, check=False)
    return int(answer.stdout.split()[0]) * 1024 if answer.stdout else 0
