"""Measures what a second tenant notices of attacks on the shared parts: the latency of its API calls, quiet and under each attack."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx
from e2b import Sandbox

from bench import server
from bench.clock import ms_since
from bench.machine import facts

RUNTIMES = ("container", "gvisor")
RESULTS = Path(__file__).parent / "results" / "hostile.md"
GOAL = 3.0  # times the quiet p95
WARM_UP_S = 1.0
ATTACK_S = 600

# Run inside the attacker's sandbox. 198.51.100.1 is nobody's: with rules by domain the relay answers whatever is dialled.
ONE_BYTE_RECORDS = """
import socket, threading, time
def one():
    while True:
        try:
            with socket.create_connection(("198.51.100.1", 443), 10) as wire:
                wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                wire.sendall(b"\\x16\\3\\1\\0\\1\\1")
                for _ in range(6000):
                    wire.sendall(b"\\x16\\3\\1\\0\\1\\0")
        except OSError:
            time.sleep(0.01)
for _ in range(120):
    threading.Thread(target=one, daemon=True).start()
time.sleep(600)
"""
NAMES = """
import socket
wire = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
wire.connect(("169.254.0.22", 53))
number = 0
while True:
    number += 1
    name = b"n%08d" % number
    try:
        wire.send(number.to_bytes(4, "big")[2:] + b"\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0" + bytes([len(name)]) + name + b"\\7invalid\\0\\0\\1\\0\\1")
    except OSError:
        pass
"""
# Run beside the server, as somebody on the network would.
BODIES = """
import http.client, os, threading
body = b"[" + b"1," * (8 << 20) + b"1]"
headers = {"Content-Type": "application/json"}
if os.environ.get("KEY"):
    headers["X-API-KEY"] = os.environ["KEY"]
def one():
    while True:
        try:
            wire = http.client.HTTPConnection("127.0.0.1", int(os.environ["PORT"]), timeout=30)
            wire.request("POST", "/v3/templates", body, headers)
            wire.getresponse().read()
            wire.close()
        except OSError:
            pass
for _ in range(4):
    threading.Thread(target=one, daemon=True).start()
threading.Event().wait()
"""
CONNECTIONS = """
import os, socket, time
held = []
while True:
    while len(held) < 800:
        try:
            held.append(socket.create_connection(("127.0.0.1", int(os.environ["PORT"])), 10))
        except OSError:
            break
    time.sleep(1)
"""
BOMB = """
import gzip, http.client, io, json, os, tarfile, urllib.parse, uuid, zlib
key, port = os.environ["KEY"], int(os.environ["PORT"])
info = tarfile.TarInfo("x")
info.type, info.size = tarfile.XHDTYPE, 1200 << 20
packer = zlib.compressobj(9, wbits=31)
bomb = packer.compress(info.tobuf(tarfile.GNU_FORMAT)) + b"".join(packer.compress(b"0" * (1 << 20)) for _ in range(1200)) + packer.flush()
def ask(method, path, body=None):
    wire = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    raw = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    wire.request(method, path, raw, {"X-API-KEY": key, "Content-Type": "application/json"})
    return json.loads(wire.getresponse().read() or b"{}")
while True:
    made, name = ask("POST", "/v3/templates", {"name": "bomb-" + uuid.uuid4().hex[:8]}), uuid.uuid4().hex * 2
    link = urllib.parse.urlsplit(ask("GET", f"/templates/{made['templateID']}/files/{name}")["url"])
    ask("PUT", f"{link.path}?{link.query}", bomb)
    build = f"/v2/templates/{made['templateID']}/builds/{made['buildID']}"
    ask("POST", build, {"fromTemplate": "base", "steps": [{"type": "COPY", "args": [".", "/x"], "filesHash": name}]})
    while ask("GET", f"/templates/{made['templateID']}/builds/{made['buildID']}/status").get("status") not in ("ready", "error"):
        pass
"""


@dataclass(frozen=True, slots=True)
class Scene:
    """A server with two tenants."""

    environment: Mapping[str, str]
    data_dir: Path
    second_key: str

    @property
    def port(self) -> int:
        return int(self.environment["E2B_API_URL"].rpartition(":")[2].strip("/"))


@contextlib.contextmanager
def inside(scene: Scene, script: str, **options: object) -> Iterator[None]:
    """Run a script in a sandbox of the first tenant."""
    names = ("E2B_API_KEY", "E2B_API_URL", "E2B_SANDBOX_URL", "E2B_DOMAIN")
    key, api_url, sandbox_url, domain = (scene.environment[name] for name in names)
    sandbox = Sandbox.create(
        api_key=key, api_url=api_url, sandbox_url=sandbox_url, domain=domain, timeout=ATTACK_S, **options
    )  # type: ignore[arg-type]
    try:
        sandbox.files.write("/tmp/attack.py", script)
        sandbox.commands.run("python3 /tmp/attack.py", background=True, timeout=ATTACK_S)
        time.sleep(WARM_UP_S)
        if not sandbox.commands.list():
            raise RuntimeError("the attack ended by itself: nothing would be measured")
        yield
    finally:
        sandbox.kill()


@contextlib.contextmanager
def beside(scene: Scene, script: str, key: str = "") -> Iterator[None]:
    environment = {"PATH": os.environ["PATH"], "PORT": str(scene.port), "KEY": key}
    attacker = subprocess.Popen([sys.executable, "-I", "-c", script], env=environment, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        attacker.kill()
        attacker.wait()


BY_NAME = {"deny_out": ["0.0.0.0/0"], "allow_out": ["www.example.com"]}
ATTACKS: Mapping[str, Callable[[Scene], contextlib.AbstractContextManager[None]]] = {
    "quiet": lambda scene: contextlib.nullcontext(),
    "TLS in one-byte records, 120 connections": lambda scene: inside(scene, ONE_BYTE_RECORDS, network=BY_NAME),
    "a flood of names": lambda scene: inside(scene, NAMES),
    "16 MiB bodies without a key": lambda scene: beside(scene, BODIES),
    "16 MiB of JSON numbers, with a key": lambda scene: beside(scene, BODIES, scene.environment["E2B_API_KEY"]),
    "800 idle connections": lambda scene: beside(scene, CONNECTIONS),
    "archives that unpack to memory": lambda scene: beside(scene, BOMB, scene.environment["E2B_API_KEY"]),
}


def calls(scene: Scene, count: int) -> list[float]:
    """Milliseconds of the second tenant's calls, one after the other."""
    taken = []
    url, headers = scene.environment["E2B_API_URL"], {"X-API-KEY": scene.second_key}
    with httpx.Client(base_url=url, headers=headers, timeout=60, trust_env=False) as client:
        for _ in range(count):
            started = time.perf_counter()
            client.get("/v2/sandboxes").raise_for_status()
            taken.append(ms_since(started))
            time.sleep(0.02)
    return taken


def second_tenant(data_dir: Path) -> str:
    environment = {**os.environ, "SANDLOT_DATA_DIR": str(data_dir)}

    def sandlot(*arguments: str) -> str:
        done = subprocess.run([str(server.LAUNCHER), *arguments], env=environment, capture_output=True, check=True)
        return done.stdout.decode()

    sandlot("team", "create", "second")
    return str(json.loads(sandlot("key", "create", "bench", "--team", "second", "--json"))["key"])


def table(taken: Mapping[str, list[float]]) -> str:
    lines = ["| attack | p50 ms | p95 ms | p95, times quiet | within the goal |", "| --- | --- | --- | --- | --- |"]
    quiet = _p95(taken["quiet"])
    for name, values in taken.items():
        ratio = _p95(values) / quiet
        verdict = "" if name == "quiet" else ("yes" if ratio <= GOAL else "no")
        lines.append(f"| {name} | {statistics.median(values):.1f} | {_p95(values):.1f} | {ratio:.1f} | {verdict} |")
    return "\n".join(lines)


def _p95(values: list[float]) -> float:
    return statistics.quantiles(values, n=20)[-1]


def main() -> int:
    parser = argparse.ArgumentParser(prog="./sandlot bench hostile", description=__doc__)
    parser.add_argument("--calls", type=int, default=200, help="how many calls of the second tenant are counted")
    parser.add_argument("--runtimes", nargs="*", default=list(RUNTIMES), choices=RUNTIMES, metavar="RUNTIME")
    options = parser.parse_args()
    parts = [
        "# What a second tenant notices of attacks\n",
        ", ".join(f"{name}: {value}" for name, value in facts().items()) + ".\n",
        f"Goal: the p95 of its API calls stays within {GOAL:g} times that of the quiet server. {options.calls} calls each.\n",
    ]
    for runtime in options.runtimes:
        with server.observed(runtime) as running:
            scene = Scene(running.environment, running.data_dir, second_tenant(running.data_dir))
            taken = {}
            for name, attack in ATTACKS.items():
                with attack(scene):
                    time.sleep(WARM_UP_S)
                    taken[name] = calls(scene, options.calls)
        parts += [f"## {runtime}\n", table(taken) + "\n"]
        print(f"\n{runtime}\n\n{parts[-1]}", flush=True)
    RESULTS.write_text("\n".join(parts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
