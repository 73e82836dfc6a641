"""Shows where the time of a create goes: the server's own spans, cold and warm, for every runtime."""

from __future__ import annotations

import argparse
import re
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence

import httpx
from e2b import Sandbox

from bench import server
from bench.clock import ms_since

RUNTIMES = ("container", "gvisor")
TEMPLATE = "base"
SETTLE_S = 60.0
_PART = re.compile(r"\s*([^;,]+);dur=([0-9.]+)")
TOTAL, FIRST = "create, as the caller sees it", "first command"


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    for runtime in options.runtimes:
        for is_warm in (False, True):
            size = "4" if is_warm else "0"
            with server.running(runtime, pool_size=size, warm_slots="8") as environment:
                taken = measure(environment, options.rounds, is_warm=is_warm)
            print(f"\n{runtime}, {'from the pool' if is_warm else 'cold'}: p50 of {options.rounds} rounds, ms\n")
            print(table(taken))
    return 0


def measure(environment: Mapping[str, str], rounds: int, *, is_warm: bool) -> dict[str, list[float]]:
    """Spans of creates, one after the other, with the first not counted."""
    taken: defaultdict[str, list[float]] = defaultdict(list)
    headers = {"X-API-KEY": environment["E2B_API_KEY"], "X-Sandlot-Trace": "1"}
    with httpx.Client(base_url=environment["E2B_API_URL"], headers=headers, timeout=60, trust_env=False) as client:
        for number in range(rounds + 1):
            if is_warm and number:
                _until_ready(client)
            spans = _round(client, environment)
            for name, value in spans.items() if number else ():
                taken[name].append(value)
            time.sleep(0.2)
    return taken


def _round(client: httpx.Client, environment: Mapping[str, str]) -> dict[str, float]:
    started = time.perf_counter()
    reply = client.post("/v2/sandboxes", json={"templateID": TEMPLATE, "timeout": 60})
    spans = {TOTAL: ms_since(started)} | parsed(reply.raise_for_status().headers.get("server-timing", ""))
    sandbox = Sandbox.connect(
        reply.json()["sandboxID"],
        timeout=60,
        api_key=environment["E2B_API_KEY"],
        api_url=environment["E2B_API_URL"],
        sandbox_url=environment["E2B_SANDBOX_URL"],
        domain=environment["E2B_DOMAIN"],
    )
    started = time.perf_counter()
    sandbox.commands.run("true")
    spans[FIRST] = ms_since(started)
    sandbox.kill()
    return spans


def parsed(header: str) -> dict[str, float]:
    """Milliseconds by name; parts that occur twice are added up."""
    spans: defaultdict[str, float] = defaultdict(float)
    for name, value in _PART.findall(header):
        spans[name] += float(value)
    return dict(spans)


def table(taken: Mapping[str, Sequence[float]]) -> str:
    medians = {name: statistics.median(values) for name, values in taken.items()}
    whole = medians.get(TOTAL, 0.0) or 1.0
    names = [TOTAL, *sorted(name for name in medians if name not in (TOTAL, FIRST)), FIRST]
    lines = []
    for name in filter(medians.__contains__, names):
        shown = "  " * (name.count(".") + 1) + name.rpartition(".")[2] if name not in (TOTAL, FIRST) else name
        share = "" if name == FIRST else f"{100 * medians[name] / whole:5.0f} %"
        lines.append(f"{shown:<36}{medians[name]:8.1f} {share}")
    return "\n".join(lines)


def _until_ready(client: httpx.Client) -> None:
    deadline = time.monotonic() + SETTLE_S
    while not re.search(r"^sandlot_warm_pool_ready{.*} [1-9]", client.get("/metrics").text, re.MULTILINE):
        if time.monotonic() > deadline:
            raise RuntimeError("no sandbox stood ready in time")
        time.sleep(0.05)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="./sandlot bench --trace", description=__doc__)
    parser.add_argument("--rounds", type=int, default=10, help="how many creates are counted")
    parser.add_argument("--runtimes", nargs="*", default=list(RUNTIMES), choices=RUNTIMES, metavar="RUNTIME")
    return parser


if __name__ == "__main__":
    sys.exit(main())
