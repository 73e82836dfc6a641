"""Measures how far one machine goes: sandboxes alive, creates, commands and events per second, and how cost grows with them."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from e2b import AsyncSandbox, Sandbox

from bench import machine, server
from bench.clock import say
from bench.contestants import BOX_TIMEOUT_S, TEMPLATE
from bench.report import summarize
from bench.run import RESULTS, RUNTIMES

AT_ONCE = 4
COMMANDS_S = 5.0
STREAMS = 8
LINES = 3000  # that each streaming command writes, a thousandth of a second apart
LEAST_FREE_MB = 2048  # no more sandboxes are made when the host has less


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What was seen with so many sandboxes alive."""

    alive: int
    creates_per_s: float
    create_p50_ms: float
    create_p95_ms: float
    commands_per_s: float  # of 8 at once, in different sandboxes
    command_p50_ms: float
    command_p95_ms: float
    list_ms: float
    plane_mb: float
    plane_idle_cpu_pct: float
    host_memory_per_sandbox_mb: float


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    taken: dict[str, Any] = {}
    facts = machine.facts()
    for runtime in options.runtimes:
        with server.observed(runtime, max_sandboxes=str(max(options.steps) + 10), pool_size="0") as running:
            taken[runtime] = _runtime(running, options.steps, options.minutes * 60)
    record = {
        "taken_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": facts | {"load_1m_at_end": machine.load()},
        "versions": machine.versions(),
        "runtimes": taken,
    }
    text = _page(taken, facts)
    print(text)
    if not options.dry:
        (RESULTS / "scale.json").write_text(json.dumps(record, indent=2) + "\n")
        (RESULTS / "scale.md").write_text(text)
        print("\nwritten to bench/results/scale.json and scale.md")
    return 0


def _runtime(running: server.Server, steps: Sequence[int], limit_s: float) -> dict[str, Any]:
    access = _access(running.environment)
    boxes: list[Sandbox] = []
    seen: list[dict[str, Any]] = []
    stopped, started = "", time.monotonic()
    free_mb, threads = _available_mb(), ThreadPoolExecutor(AT_ONCE)
    try:
        events = asyncio.run(_events_per_s(access))
        for wanted in steps:
            if time.monotonic() - started > limit_s:
                stopped = f"the time was up at {len(boxes)}"
                break
            if _available_mb() < LEAST_FREE_MB:
                stopped = f"memory was short at {len(boxes)}"
                break
            say(f"{wanted} sandboxes")
            seen.append(asdict(_step(running, boxes, wanted, access, threads, free_mb)))
    finally:
        say("ending them")
        list(threads.map(lambda box: box.kill(), boxes))
        threads.shutdown()
    return {"steps": seen, "events_per_s": events, "stopped": stopped}


def _step(
    running: server.Server,
    boxes: list[Sandbox],
    wanted: int,
    access: Mapping[str, Any],
    threads: ThreadPoolExecutor,
    free_mb: float,
) -> Step:
    began, more = time.perf_counter(), wanted - len(boxes)
    made = list(threads.map(lambda _: _timed_create(access), range(more)))
    elapsed_s = time.perf_counter() - began
    boxes.extend(box for box, _ in made)
    creates = summarize([ms for _, ms in made])
    commands = asyncio.run(_commands(access, [box.sandbox_id for box in boxes[:: max(1, len(boxes) // 8)]][:8]))
    listed = time.perf_counter()
    Sandbox.list(**access).next_items()
    list_ms = (time.perf_counter() - listed) * 1000
    _await_frozen(running, wanted)
    busy, at = running.cpu_s(), time.perf_counter()
    time.sleep(5)
    idle_pct = 100 * (running.cpu_s() - busy) / (time.perf_counter() - at)
    times = summarize(commands)
    return Step(
        alive=len(boxes),
        creates_per_s=round(more / elapsed_s, 2),
        create_p50_ms=creates.p50,
        create_p95_ms=creates.p95,
        commands_per_s=round(len(commands) / COMMANDS_S, 1),
        command_p50_ms=times.p50,
        command_p95_ms=times.p95,
        list_ms=round(list_ms, 1),
        plane_mb=round(running.resident_bytes() / 1e6, 1),
        plane_idle_cpu_pct=round(idle_pct, 2),
        host_memory_per_sandbox_mb=round((free_mb - _available_mb()) / len(boxes), 1),
    )


def _timed_create(access: Mapping[str, Any]) -> tuple[Sandbox, float]:
    started = time.perf_counter()
    box = Sandbox.create(TEMPLATE, timeout=BOX_TIMEOUT_S * 3, **access)
    return box, (time.perf_counter() - started) * 1000


async def _commands(access: Mapping[str, Any], ids: Sequence[str]) -> list[float]:
    """Round trips of `true`, one after the other in each of these sandboxes, all at once."""
    end = time.perf_counter() + COMMANDS_S
    times: list[float] = []

    async def work(sandbox_id: str) -> None:
        box = await AsyncSandbox.connect(sandbox_id, timeout=BOX_TIMEOUT_S * 3, **access)
        while (started := time.perf_counter()) < end:
            await box.commands.run("true")
            times.append((time.perf_counter() - started) * 1000)

    await asyncio.gather(*map(work, ids))
    return times


async def _events_per_s(access: Mapping[str, Any]) -> float:
    """Events of output that reach the client through streams of several commands at once, per second."""
    box = await AsyncSandbox.create(TEMPLATE, timeout=BOX_TIMEOUT_S, **access)
    got = 0

    def note(_: str) -> None:
        nonlocal got
        got += 1

    # A pause after every line makes lines events of their own, as far as the daemon and the edge keep up with them.
    script = f"import os, time\nfor n in range({LINES}): os.write(1, b'line %d\\n' % n); time.sleep(0.001)"
    try:
        await box.files.write("/tmp/lines.py", script)
        started = time.perf_counter()
        await asyncio.gather(
            *(box.commands.run("python3 /tmp/lines.py", on_stdout=note, timeout=120) for _ in range(STREAMS))
        )
        return round(got / (time.perf_counter() - started))
    finally:
        await box.kill()


def _await_frozen(running: server.Server, count: int) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and (running.number("sandlot_frozen_sandboxes") or 0) < count:
        time.sleep(0.5)


def _access(environment: Mapping[str, str]) -> dict[str, Any]:
    names = {
        "api_key": "E2B_API_KEY",
        "api_url": "E2B_API_URL",
        "sandbox_url": "E2B_SANDBOX_URL",
        "domain": "E2B_DOMAIN",
    }
    return {option: environment[name] for option, name in names.items()}


def _available_mb() -> float:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise RuntimeError("the kernel does not say how much memory is available")


COLUMNS = {
    "alive": "alive",
    "creates_per_s": "creates/s",
    "create_p50_ms": "create p50",
    "create_p95_ms": "p95",
    "commands_per_s": "commands/s",
    "command_p50_ms": "command p50",
    "command_p95_ms": "p95",
    "list_ms": "list",
    "plane_mb": "server, MB",
    "plane_idle_cpu_pct": "server idle, % CPU",
    "host_memory_per_sandbox_mb": "host MB per sandbox",
}


def _page(taken: Mapping[str, Any], facts: Mapping[str, object]) -> str:
    about = ", ".join(f"{name} {value}" for name, value in facts.items())
    lines = ["# Scale", "", f"`./sandlot bench scale`, {datetime.now(UTC):%Y-%m-%d}. Machine: {about}.", ""]
    for runtime, found in taken.items():
        lines += [f"## `{runtime}`", "", f"| {' | '.join(COLUMNS.values())} |", f"|{' --- |' * len(COLUMNS)}"]
        lines += [f"| {' | '.join(str(step[key]) for key in COLUMNS)} |" for step in found["steps"]]
        lines += ["", f"Events of output through {STREAMS} streams: {found['events_per_s']:.0f} per second."]
        lines += [f"Stopped early: {found['stopped']}."] if found["stopped"] else []
        lines += [""]
    return "\n".join(lines)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="./sandlot bench scale", description=__doc__)
    parser.add_argument("--steps", nargs="*", type=int, default=[10, 50, 100, 200], help="how many sandboxes, in turn")
    parser.add_argument("--minutes", type=float, default=3, help="per runtime; no further step begins after it")
    parser.add_argument("--runtimes", nargs="*", default=list(RUNTIMES), choices=RUNTIMES, metavar="RUNTIME")
    parser.add_argument("--dry", action="store_true", help="record nothing")
    return parser


if __name__ == "__main__":
    sys.exit(main())
