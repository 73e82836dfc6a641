"""Measures Sandlot's runtimes and Docker on the same root filesystem in one interleaved run, and records the result."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from bench import footprint, machine, report, server
from bench.clock import ms_since, say, timed
from bench.contestants import Box, Contestant, DockerContestant, SandlotContestant
from bench.dockerd import private_docker
from sandlot.engine.node.images.base import build_base, read_recipe
from sandlot.settings import Settings

RUNTIMES = ("container", "gvisor")
RESULTS = Path(__file__).parent / "results"
IMAGE = "bench"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much to measure."""

    rounds: int
    commands: int  # round trips per round
    idle_boxes: int
    idle_s: float
    settle_s: float


QUICK = Plan(rounds=5, commands=5, idle_boxes=2, idle_s=5, settle_s=3)
FULL = Plan(rounds=30, commands=10, idle_boxes=4, idle_s=20, settle_s=10)

Samples = defaultdict[str, defaultdict[str, list[float]]]


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    plan = QUICK if options.quick else FULL
    plan = replace(plan, rounds=options.rounds or plan.rounds)
    samples: Samples = defaultdict(lambda: defaultdict(list))
    with _contestants(options.runtimes) as contestants, tempfile.TemporaryDirectory() as files:
        facts, versions = machine.facts(), machine.versions() | _docker_versions(contestants)
        measure_rounds(contestants, plan, Path(files), samples)
        say("idle boxes")
        measure_idle(contestants, plan, samples)
    results = report.summaries({contestant.name: samples[contestant.name] for contestant in contestants})
    verdicts = report.judged(results)
    print(f"\np50 / p95 of {plan.rounds} rounds, ratio of medians to {report.REFERENCE}\n\n{report.table(results)}\n")
    print(report.verdict_lines(verdicts))
    record = {
        "taken_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "plan": asdict(plan),
        "machine": facts | {"load_1m_at_end": machine.load()},
        "versions": versions,
        "aims": verdicts,
        "results": {name: {key: asdict(value) for key, value in row.items()} for name, row in results.items()},
    }
    path = RESULTS / f"{datetime.now(UTC):%Y-%m-%d}-{options.name or ('quick' if options.quick else 'full')}.json"
    path.write_text(json.dumps(record, indent=2) + "\n")
    print(f"\nwritten to bench/results/{path.name}")
    return 0


def measure_rounds(contestants: Sequence[Contestant], plan: Plan, files: Path, samples: Samples) -> None:
    """Every round gives each contestant one turn, in random order, so that noise of the machine falls on all alike."""
    order = random.Random(0)
    small, large = files / "small", files / "large"
    small.write_bytes(os.urandom(1000))
    large.write_bytes(os.urandom(20_000_000))
    for number in range(plan.rounds + 1):
        say(f"round {number} of {plan.rounds}" if number else "warm-up round, not counted")
        taken: Samples = defaultdict(lambda: defaultdict(list))
        for contestant in order.sample(list(contestants), len(contestants)):
            _take_turn(contestant, plan, small, large, taken[contestant.name])
        if number:
            for name, measures in taken.items():
                for measure, values in measures.items():
                    samples[name][measure].extend(values)


def _take_turn(
    contestant: Contestant, plan: Plan, small: Path, large: Path, into: defaultdict[str, list[float]]
) -> None:
    started = time.perf_counter()
    box = contestant.create()
    try:
        into["create"].append(ms_since(started))
        box.run_true()
        into["first_command"].append(ms_since(started))
        into["command"].extend(timed(box.run_true) for _ in range(plan.commands))
        for size, source in (("1k", small), ("20m", large)):
            _measure_file(box, source, size, into)
    except BaseException:
        box.kill()
        raise
    into["kill"].append(timed(box.kill))
    if isinstance(contestant, DockerContestant):
        into["run_once"].append(timed(contestant.run_once))
        contestant.tidy()


def _measure_file(box: Box, source: Path, size: str, into: defaultdict[str, list[float]]) -> None:
    target = source.with_suffix(".back")
    into[f"write_{size}"].append(timed(lambda: box.write(source)))
    into[f"read_{size}"].append(timed(lambda: box.read(target)))
    if target.read_bytes() != source.read_bytes():
        raise RuntimeError(f"a file of {source.stat().st_size} bytes came back changed from box {box.id}")


def measure_idle(contestants: Sequence[Contestant], plan: Plan, samples: Samples) -> None:
    """One window for all: the idle boxes of every contestant stand side by side."""
    with contextlib.ExitStack() as cleanup:
        boxes: list[tuple[str, Box]] = []
        for _ in range(plan.idle_boxes):
            for contestant in contestants:
                box = contestant.create()
                cleanup.callback(box.kill)
                box.run_true()
                boxes.append((contestant.name, box))
        time.sleep(plan.settle_s)
        started = time.perf_counter()
        before = [footprint.read(box.id) for _, box in boxes]
        time.sleep(plan.idle_s)
        after = [footprint.read(box.id) for _, box in boxes]
        elapsed_s = time.perf_counter() - started
    for (name, _), first, last in zip(boxes, before, after, strict=True):
        samples[name]["memory"].append(last.memory_bytes / 1024**2)
        samples[name]["idle_cpu"].append(100 * (last.cpu_s - first.cpu_s) / elapsed_s)


@contextlib.contextmanager
def _contestants(runtimes: Sequence[str]) -> Iterator[list[Contestant]]:
    """All of them up at once: an idle server costs the others nothing, and only so can turns alternate."""
    layers = Settings().cache_dir / "layers"
    root = layers / asyncio.run(build_base(read_recipe(), layers, say))
    with contextlib.ExitStack() as cleanup:
        say("starting Docker")
        docker = cleanup.enter_context(private_docker())
        docker.import_directory(root, IMAGE)
        contestants: list[Contestant] = []
        for runtime in runtimes:
            say(f"starting Sandlot with runtime {runtime}")
            started = cleanup.enter_context(server.observed(runtime))
            contestants.append(SandlotContestant(runtime, started.environment, started.data_dir))
        contestants.append(DockerContestant(report.REFERENCE, docker, IMAGE, "none"))
        contestants.append(DockerContestant("docker with bridge", docker, IMAGE, "bridge"))
        yield contestants


def _docker_versions(contestants: Sequence[Contestant]) -> dict[str, str]:
    dockers = [contestant.docker for contestant in contestants if isinstance(contestant, DockerContestant)]
    return dockers[0].versions() if dockers else {}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.run", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few rounds: a minute instead of ten")
    parser.add_argument("--rounds", type=int, help="how many rounds are counted, instead of the usual number")
    parser.add_argument("--runtimes", nargs="*", default=list(RUNTIMES), choices=RUNTIMES, metavar="RUNTIME")
    parser.add_argument("--name", help="last part of the result's file name (default: quick or full)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
