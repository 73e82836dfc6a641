"""Measures tasks: what Sandlot adds to the work itself, clones with a warm cache, and how fast many readers get a timeline.

The same work is done by hand with Docker and git in the same run.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench import by_hand, machine, report, server
from bench.clock import ms_since, say
from bench.dockerd import private_docker
from bench.run import IMAGE, RESULTS, RUNTIMES
from sandlot.client import Client, Task, TaskNetwork
from sandlot.engine.node.images.base import build_base, read_recipe
from sandlot.settings import Settings

SMALL, LARGE = "small", "large"
CHANGE, CHECK = "echo changed >> README.md", "test -s README.md"
NOTHING = "#!scripted\ndone There is nothing to do.\n"
OFFLINE = TaskNetwork(internet=False)
AIM = 0.5
MEASURES = {
    "change": "from the request to an open pull request: one line changed, one check",
    "nothing": "from the request to the end: an agent that does nothing",
    "clone": "clone of a repository of {megabytes} MB, not the first",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    rounds: int
    megabytes: int
    readers: int
    lines: int  # that one agent writes for the readers


QUICK = Plan(rounds=3, megabytes=20, readers=10, lines=500)
FULL = Plan(rounds=15, megabytes=100, readers=50, lines=3000)
Samples = defaultdict[str, defaultdict[str, list[float]]]


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    plan = QUICK if options.quick else FULL
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # servers and Docker are taken down all the same
    layers = Settings().cache_dir / "layers"
    root = layers / asyncio.run(build_base(read_recipe(), layers, say))
    samples: Samples = defaultdict(lambda: defaultdict(list))
    with _sides(options.runtimes, root, plan) as (servers, small, large):
        facts, versions = machine.facts(), machine.versions() | small.docker.versions()
        asyncio.run(_measure(servers, small, large, plan, samples))
    results = report.summaries(samples)
    text = _page(results, facts, plan)
    print(f"\n{text}")
    if not options.dry:
        record = {
            "taken_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "plan": asdict(plan),
            "machine": facts | {"load_1m_at_end": machine.load()},
            "versions": versions,
            "results": {name: {key: asdict(value) for key, value in row.items()} for name, row in results.items()},
        }
        name = "tasks-quick" if options.quick else "tasks"
        (RESULTS / f"{name}.json").write_text(json.dumps(record, indent=2) + "\n")
        (RESULTS / f"{name}.md").write_text(text)
        print(f"\nwritten to bench/results/{name}.json and {name}.md")
    return 0


@contextlib.contextmanager
def _sides(
    runtimes: Sequence[str], root: Path, plan: Plan
) -> Iterator[tuple[dict[str, server.Server], by_hand.ByHand, by_hand.ByHand]]:
    with contextlib.ExitStack() as stack:
        docker = stack.enter_context(private_docker())
        docker.import_directory(root, IMAGE)
        small, large = (stack.enter_context(by_hand.bare_repository(size)) for size in (0, plan.megabytes))
        servers = {runtime: stack.enter_context(server.observed(runtime)) for runtime in runtimes}
        for one in servers.values():
            asyncio.run(_host(one, {SMALL: small, LARGE: large}))
        yield servers, by_hand.ByHand(docker, IMAGE, small), by_hand.ByHand(docker, IMAGE, large, 10_000)


async def _host(one: server.Server, bares: dict[str, Path]) -> None:
    async with _client(one) as client:
        for name, bare in bares.items():
            made = await client.repositories.create(name, empty=True)
            by_hand.push_to(bare, made.clone_url, one.environment["E2B_API_KEY"])


def _client(one: server.Server) -> Client:
    return Client(one.environment["E2B_API_URL"], one.environment["E2B_API_KEY"])


async def _measure(
    servers: dict[str, server.Server], small: by_hand.ByHand, large: by_hand.ByHand, plan: Plan, samples: Samples
) -> None:
    order = random.Random(0)
    async with contextlib.AsyncExitStack() as stack:
        clients = {name: await stack.enter_async_context(_client(one)) for name, one in servers.items()}
        for number in range(plan.rounds + 1):
            turns = [*clients, "docker"]
            order.shuffle(turns)
            say(f"round {number} of {plan.rounds}")
            for name in turns:
                found = await (_docker(small) if name == "docker" else _tasks(clients[name]))
                if number:  # the first round warms up
                    for measure, value in found.items():
                        samples["docker, at once" if measure == "at_once" else name][
                            "change" if measure == "at_once" else measure
                        ].append(value)
        for number in range(1 + max(3, plan.rounds // 3)):
            say(f"clone {number}")
            for name, client in clients.items():
                took = await _clone(client)
                if number:
                    samples[name]["clone"].append(took)
            if number:
                samples["docker"]["clone"].append(await asyncio.to_thread(large.clone))
        for name, client in clients.items():
            say(f"{plan.readers} readers on {name}")
            samples[name]["events"].append(await _events(client, servers[name], plan))


async def _docker(hand: by_hand.ByHand) -> dict[str, float]:
    return {
        "change": await asyncio.to_thread(hand.steps, CHANGE, CHECK),
        "at_once": await asyncio.to_thread(hand.at_once, CHANGE, CHECK),
    }


async def _tasks(client: Client) -> dict[str, float]:
    change = {"agent": "command", "command": CHANGE, "checks": [CHECK]}
    found = {}
    for measure, prompt, given, state in (
        ("change", "Change a line", change, "review"),
        ("nothing", NOTHING, {"agent": "scripted"}, "done"),
    ):
        took, task = await _timed_task(client, SMALL, prompt, given)
        if task.info.state != state:
            raise RuntimeError(f"task {task.id} is {task.info.state}, not {state}: {task.info.reason}")
        found[measure] = took
        for step in await task.steps():
            if step.started_at and step.ended_at:
                found[f"{measure}: {step.name}"] = (step.ended_at - step.started_at).total_seconds() * 1000
    return found


async def _timed_task(client: Client, repository: str, prompt: str, given: dict[str, Any]) -> tuple[float, Task]:
    started = time.perf_counter()
    task = await client.tasks.create(repository, prompt, network=OFFLINE, **given)
    await task.wait(timeout=300)
    return ms_since(started), task


async def _clone(client: Client) -> float:
    """From the steps: what the platform itself noted."""
    _, task = await _timed_task(client, LARGE, NOTHING, {"agent": "scripted"})
    step = next(step for step in await task.steps() if step.name == "clone")
    if step.started_at is None or step.ended_at is None:
        raise RuntimeError(f"task {task.id} has no times for its clone")
    return (step.ended_at - step.started_at).total_seconds() * 1000


async def _events(client: Client, one: server.Server, plan: Plan) -> float:
    """Events per second that all readers together got, from the first line to the last."""
    command = f"for i in $(seq {plan.lines}); do echo line $i; done"
    task = await client.tasks.create(SMALL, "Talk", agent="command", command=command, network=OFFLINE)
    times: list[float] = []

    async def read() -> int:
        count = 0
        async with _client(one) as own:
            async for news in (await own.tasks.get(task.id)).events():
                if news.entry is not None:
                    count += 1
                    times.append(time.perf_counter())
                if news.task is not None and news.task.is_resting and news.entry is not None:
                    return count
        return count

    counts = await asyncio.wait_for(asyncio.gather(*(read() for _ in range(plan.readers))), 600)
    return sum(counts) / max(0.001, max(times) - min(times))


def _page(results: dict[str, dict[str, report.Summary]], facts: dict[str, Any], plan: Plan) -> str:
    lines = [
        "# Tasks",
        "",
        f"`./sandlot bench tasks`, {datetime.now(UTC):%Y-%m-%d}: {plan.rounds} rounds.",
        "Machine: " + ", ".join(f"{name} {value}" for name, value in facts.items()) + ".",
        "",
        "By hand is `docker run`, then `docker exec` for each of `git clone`, branch, change, check, commit and `git push`, with a bare",
        "repository on the same disk as the remote. At once is all of it in one script of one `docker run --rm`. Neither opens a pull request.",
        "Times are of the caller, median / 95th percentile.",
        "",
        "| measure | of | time (ms) | to by hand | aim |",
        "| --- | --- | --- | --- | --- |",
    ]
    for measure, title in MEASURES.items():
        reference = results["docker"].get(measure)
        for name, row in results.items():
            if measure in row:
                own = row[measure]
                ratio = own.p50 / reference.p50 if reference and not name.startswith("docker") else None
                aim = "" if ratio is None else f"at most {AIM}x: {'met' if ratio <= AIM else 'missed'}"
                shown = f"{ratio:.2f}x" if ratio is not None else ""
                who = {"docker": "by hand", "docker, at once": "by hand, at once"}.get(name, f"`{name}`")
                lines.append(
                    f"| {title.format(**asdict(plan))} | {who} | {own.p50:.0f} / {own.p95:.0f} | {shown} | {aim} |"
                )
    lines += ["", f"Events of one timeline to {plan.readers} readers, {plan.lines} lines of an agent:", ""]
    lines += [
        f"- `{name}`: {row['events'].p50:.0f} events per second" for name, row in results.items() if "events" in row
    ]
    lines += [
        "",
        "Where the time of a task with a change goes, by its steps (ms):",
        "",
        "| step | " + " | ".join(RUNTIMES) + " |",
    ]
    lines += ["| --- |" + " --- |" * len(RUNTIMES)]
    steps = list(dict.fromkeys(key for row in results.values() for key in row if key.startswith("change: ")))
    for step in steps:
        cells = [f"{results[name][step].p50:.0f}" if step in results.get(name, {}) else "" for name in RUNTIMES]
        lines.append(f"| {step.removeprefix('change: ')} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="./sandlot bench tasks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="A few rounds, small repositories.")
    parser.add_argument("--runtimes", nargs="+", choices=RUNTIMES, default=list(RUNTIMES))
    parser.add_argument("--dry", action="store_true", help="Record nothing.")
    return parser


if __name__ == "__main__":
    sys.exit(main())
