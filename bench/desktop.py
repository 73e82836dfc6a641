"""Measures desktops: from create to the first screenshot, warm, beside a Docker container that starts the same desktop.

    ./sandlot bench desktop [--rounds N]

Each contestant has the template's root filesystem. A sandbox is asked for as the desktop SDKs do it: create, `Xvfb`, `xdpyinfo`,
`startxfce4`, then waiting for XFCE's programs, then `scrot` and the picture's bytes. Docker's container runs the template's
start command, is asked for the same programs until they are there, and then for the picture. One turn of each per round; a turn of
Sandlot begins when its warm pool has had time to fill.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sqlite3
import statistics
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

from e2b import CommandExitException, Sandbox

from bench import machine, server
from bench.clock import ms_since, say
from bench.dockerd import Docker, private_docker
from sandlot.settings import Settings

RESULTS = Path(__file__).parent / "results"
TEMPLATE, IMAGE, RUNTIMES = "desktop", "bench-desktop", ("gvisor", "container")
XVFB = "Xvfb :0 -ac -screen 0 1024x768x24 -retro -dpi 96 -nolisten tcp -nolisten unix"
UP = "pgrep -x xfce4-session >/dev/null && pgrep -x xfwm4 >/dev/null && pgrep -x xfdesktop >/dev/null"
SHOT = "scrot --pointer --overwrite /tmp/shot.png"
PNG = b"\x89PNG"
WAIT_S, EVERY_S = 120, 0.5  # the SDKs ask twice a second
Turn = Callable[[], Mapping[str, float]]


def main() -> None:
    parser = argparse.ArgumentParser(prog="./sandlot bench desktop", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--refill", type=float, default=15, help="seconds that the warm pool has before each turn")
    options = parser.parse_args()
    samples: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    with contestants() as turns:
        for number in range(options.rounds + 1):
            say(f"round {number} of {options.rounds}" if number else "warm-up round, not counted")
            for name, turn in turns.items():
                time.sleep(options.refill)
                for measure, value in turn().items():
                    if number:
                        samples[name][measure].append(value)
    report(samples, options.rounds)


@contextlib.contextmanager
def contestants() -> Iterator[dict[str, Turn]]:
    with contextlib.ExitStack() as cleanup:
        turns: dict[str, Turn] = {}
        root: Path | None = None
        for runtime in RUNTIMES:
            say(f"starting Sandlot with runtime {runtime}, and building the template")
            started = cleanup.enter_context(server.observed(runtime, prepare_templates="none"))
            _have_template(started.environment)
            turns[runtime] = _sandlot(started.environment)
            root = root or cleanup.enter_context(_root(started.data_dir))
        say("starting Docker")
        docker = cleanup.enter_context(private_docker())
        assert root is not None
        docker.import_directory(root, IMAGE)
        turns["docker"] = _docker(docker)
        yield turns


def _have_template(environment: Mapping[str, str]) -> None:
    """The first create has it built, and is told to come back until it is."""
    deadline = time.monotonic() + 1800
    while True:
        try:
            _create(environment).kill()
            return
        except Exception as error:
            if time.monotonic() > deadline or "built" not in str(error):
                raise
            time.sleep(5)


def _create(environment: Mapping[str, str]) -> Sandbox:
    return Sandbox.create(
        TEMPLATE,
        timeout=300,
        envs={"DISPLAY": ":0"},
        api_key=environment["E2B_API_KEY"],
        api_url=environment["E2B_API_URL"],
        sandbox_url=environment["E2B_SANDBOX_URL"],
        domain=environment["E2B_DOMAIN"],
    )


def _sandlot(environment: Mapping[str, str]) -> Turn:
    def turn() -> Mapping[str, float]:
        began = time.perf_counter()
        sandbox = _create(environment)
        try:
            sandbox.commands.run(XVFB, background=True, timeout=0).disconnect()
            _until(lambda: _succeeds(sandbox, "xdpyinfo -display :0"))
            sandbox.commands.run("startxfce4", background=True, timeout=0).disconnect()
            _until(lambda: _succeeds(sandbox, UP))
            created = ms_since(began)
            sandbox.commands.run(SHOT)
            _check(bytes(sandbox.files.read("/tmp/shot.png", format="bytes")))
            return {"create": created, "create + first screenshot": ms_since(began)}
        finally:
            sandbox.kill()

    return turn


def _docker(docker: Docker) -> Turn:
    options = ("--user", "user", "--workdir", "/home/user", "--env", "HOME=/home/user", "--env", "DISPLAY=:0")

    def turn() -> Mapping[str, float]:
        began = time.perf_counter()
        box = docker.run("run", "--detach", "--network", "none", *options, IMAGE, "/opt/desktop/start.sh").strip()
        try:
            _until(lambda: _done(docker, box, f"xdpyinfo >/dev/null && {UP}"))
            created = ms_since(began)
            docker.run("exec", "--user", "user", "--env", "DISPLAY=:0", box, "sh", "-c", SHOT)
            with tempfile.NamedTemporaryFile() as file:
                docker.run("cp", f"{box}:/tmp/shot.png", file.name)
                _check(Path(file.name).read_bytes())
            return {"create": created, "create + first screenshot": ms_since(began)}
        finally:
            docker.run("rm", "--force", box)

    return turn


def _until(check: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not check():
        if time.monotonic() > deadline:
            raise RuntimeError(f"the desktop was not up within {WAIT_S} s")
        time.sleep(EVERY_S)


def _succeeds(sandbox: Sandbox, command: str) -> bool:
    try:
        return sandbox.commands.run(command).exit_code == 0
    except CommandExitException:
        return False


def _done(docker: Docker, box: str, command: str) -> bool:
    try:
        docker.run("exec", "--user", "user", "--env", "DISPLAY=:0", box, "sh", "-c", command)
        return True
    except subprocess.CalledProcessError:
        return False


def _check(picture: bytes) -> None:
    if not picture.startswith(PNG):
        raise RuntimeError("the screenshot is no picture")


@contextlib.contextmanager
def _root(data_dir: Path) -> Iterator[Path]:
    """The template's root filesystem, its layers one upon the other."""
    with contextlib.closing(sqlite3.connect(f"file:{data_dir / 'sandlot.db'}?mode=ro", uri=True)) as rows:
        (found,) = rows.execute("SELECT layers FROM templates WHERE name = ?", (TEMPLATE,)).fetchone()
    layers = [str(Settings().cache_dir / "layers" / layer) for layer in json.loads(found)]
    with tempfile.TemporaryDirectory(prefix="bench-desktop-", dir="/var/tmp") as place:
        lower = ":".join(reversed(layers))
        subprocess.run(["mount", "-t", "overlay", "-o", f"ro,lowerdir={lower}", "overlay", place], check=True)
        try:
            yield Path(place)
        finally:
            subprocess.run(["umount", place], check=True)


def report(samples: Mapping[str, Mapping[str, list[float]]], rounds: int) -> None:
    measures = list(next(iter(samples.values())))
    lines = ["| | " + " | ".join(measures) + " |", "| --- |" + " --- |" * len(measures)]
    for name, taken in samples.items():
        cells = [f"{statistics.median(taken[each]):.0f} ms (at most {max(taken[each]):.0f})" for each in measures]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    facts = machine.facts()
    table = "\n".join(lines)
    print(table)
    about = f"{rounds} rounds, medians; load {facts['load_1m']} at the end, {facts['cores']} cores."
    (RESULTS / "desktop.md").write_text(f"# Desktops: create to first screenshot\n\n{table}\n\n{about}\n")
    record = {
        "taken_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "rounds": rounds,
        "machine": facts,
        "versions": machine.versions(),
        "results": samples,
    }
    (RESULTS / "desktop.json").write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
