"""Measures every goal of speed and thrift in one run, with Docker on the same root filesystem beside it, and records the table.

Warm: the server keeps sandboxes ready, and a turn begins when it has them. Cold: a server that keeps none.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from e2b import Sandbox

from bench import bare, floor, footprint, goals, machine, pulse, report, server
from bench.clock import ms_since, say, timed
from bench.contestants import Box, Contestant, DockerContestant, SandlotBox, SandlotContestant
from bench.dockerd import private_docker
from bench.run import IMAGE, RESULTS, RUNTIMES
from sandlot.engine.node.images.base import build_base, read_recipe
from sandlot.settings import Settings

FILE_BYTES = 20_000_000
READY = "sandlot_warm_pool_ready"
KEPT = 2  # sandboxes that warm servers keep ready
KEPT_MB = 4096  # what those that stand ready may take
READY_LIMIT_S = 45.0
FROZEN = "sandlot_frozen_sandboxes"
STILL_LIMIT_S = 120.0
POOL_REST_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much to measure."""

    rounds: int
    commands: int  # round trips per round
    files: int  # transfers each way, with the SDK alone between them
    burst: int
    crowd: int  # idle sandboxes that stand side by side
    docker_crowd: int
    window_s: float
    floors: int


QUICK = Plan(rounds=3, commands=5, files=3, burst=10, crowd=10, docker_crowd=2, window_s=5, floors=3)
FULL = Plan(rounds=12, commands=10, files=8, burst=50, crowd=100, docker_crowd=4, window_s=10, floors=10)

Samples = defaultdict[str, defaultdict[str, list[float]]]


@dataclass(frozen=True, slots=True)
class Side:
    """One contestant, and the server behind it if it is ours."""

    contestant: Contestant
    server: server.Server | None = None
    keeps_ready: int = 0

    @property
    def name(self) -> str:
        return self.contestant.name

    def prepare(self) -> None:
        """Wait until what the server keeps ready stands ready: that is what warm means."""
        if self.server is None or not self.keeps_ready:
            return
        deadline = time.monotonic() + READY_LIMIT_S
        while time.monotonic() < deadline:
            ready = self.server.number(READY)
            if ready is None or ready >= self.keeps_ready:
                return
            time.sleep(0.05)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    plan = QUICK if options.quick else FULL
    plan = replace(plan, rounds=options.rounds or plan.rounds)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # servers and Docker are taken down all the same
    samples: Samples = defaultdict(lambda: defaultdict(list))
    began = time.monotonic()
    layers = Settings().cache_dir / "layers"
    root = layers / asyncio.run(build_base(read_recipe(), layers, say))
    with _sides(options.runtimes, root) as sides:
        facts, versions = machine.facts(), machine.versions() | _docker_versions(sides)
        _measure(sides, plan, root, samples)
    results = report.summaries(samples)
    verdicts = goals.judged(results)
    text = _page(results, verdicts, facts, plan)
    print(f"\n{text}")
    record = {
        "taken_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "took_s": round(time.monotonic() - began),
        "plan": asdict(plan),
        "machine": facts | {"load_1m_at_end": machine.load()},
        "versions": versions,
        "goals": goals.as_data(verdicts),
        "results": {name: {key: asdict(value) for key, value in row.items()} for name, row in results.items()},
    }
    if not options.dry:
        name = options.name or ("fast-quick" if options.quick else "fast")
        (RESULTS / f"{name}.json").write_text(json.dumps(record, indent=2) + "\n")
        (RESULTS / f"{name}.md").write_text(text)
        print(f"\nwritten to bench/results/{name}.json and {name}.md")
    return 0


def _measure(sides: Sequence[Side], plan: Plan, root: Path, samples: Samples) -> None:
    for side in sides:
        if side.server is not None and side.keeps_ready:
            samples[side.name]["plane_empty"].append(side.server.resident_bytes() / 1e6)
    measure_turns(sides, plan, samples)
    warm = [side for side in sides if side.server is None or side.keeps_ready]
    measure_files(warm, plan, samples)
    say("the bare runtimes")
    for runtime in {side.name.partition(" ")[0] for side in sides if side.server is not None}:
        samples[f"{runtime} floor"]["run_once"] = floor.measure(runtime, root, plan.floors)
    for side in warm:
        measure_burst(side, plan, samples)
    for side in warm:
        measure_crowd(side, plan, samples)


def measure_turns(sides: Sequence[Side], plan: Plan, samples: Samples) -> None:
    """Every round gives each side one turn, in random order, so that noise of the machine falls on all alike."""
    order = random.Random(0)
    for number in range(plan.rounds + 1):
        say(f"round {number} of {plan.rounds}" if number else "warm-up round, not counted")
        for side in order.sample(list(sides), len(sides)):
            side.prepare()
            taken = samples[side.name] if number else defaultdict(list)
            started = time.perf_counter()
            box = side.contestant.create()
            try:
                taken["create"].append(ms_since(started))
                box.run_true()
                taken["first_command"].append(ms_since(started))
                taken["command"].extend(timed(box.run_true) for _ in range(plan.commands))
            finally:
                taken["kill"].append(timed(box.kill))
            side.prepare()  # what makes up for the sandbox that was taken must not fall into another's turn


def measure_files(sides: Sequence[Side], plan: Plan, samples: Samples) -> None:
    """The same SDK, the same file, by turns: into sandboxes, and into a server that does nothing with it."""
    say("files")
    with contextlib.ExitStack() as cleanup:
        source = Path(cleanup.enter_context(tempfile.TemporaryDirectory())) / "file"
        source.write_bytes(os.urandom(FILE_BYTES))
        boxes: dict[str, Box] = {}
        for side in sides:
            boxes[side.name] = box = side.contestant.create()
            cleanup.callback(box.kill)
            if isinstance(box, SandlotBox) and side.server is not None and goals.CLIENT_LIMIT not in boxes:
                address = cleanup.enter_context(bare.running(FILE_BYTES))
                boxes[goals.CLIENT_LIMIT] = SandlotBox(
                    box.data_dir, _elsewhere(box.sandbox, side.server.environment, address)
                )
        for number in range(plan.files + 1):
            for name, box in boxes.items():
                taken = samples[name] if number else defaultdict(list)
                _exchange(box, source, taken, is_kept=name != goals.CLIENT_LIMIT)


def _exchange(box: Box, source: Path, into: defaultdict[str, list[float]], *, is_kept: bool) -> None:
    back = source.with_suffix(".back")
    into["write_20m"].append(timed(lambda: box.write(source)))
    into["read_20m"].append(timed(lambda: box.read(back)))
    if is_kept and back.read_bytes() != source.read_bytes():
        raise RuntimeError(f"a file of {FILE_BYTES} bytes came back changed from box {box.id}")


def _elsewhere(sandbox: Sandbox, environment: Mapping[str, str], address: str) -> Sandbox:
    """The same sandbox to the SDK, with its traffic going to another server."""
    return Sandbox.connect(
        sandbox.sandbox_id,
        api_key=environment["E2B_API_KEY"],
        api_url=environment["E2B_API_URL"],
        sandbox_url=address,
        domain=environment["E2B_DOMAIN"],
    )


def measure_burst(side: Side, plan: Plan, samples: Samples) -> None:
    """Many creates at the same moment, each with its first command, while one sandbox that is there already goes on working.

    Twice for a server that keeps sandboxes ready: it learns from the first burst, and is ready for the next one.
    """
    for name in ("burst_unready", "burst") if side.keeps_ready else ("burst",):
        say(f"burst of {plan.burst} on {side.name}{' (nothing prepared)' if name == 'burst_unready' else ''}")
        with contextlib.ExitStack() as cleanup:
            beats: list[float] = []
            steady = side.contestant.create()
            cleanup.callback(steady.kill)
            replace(
                side, keeps_ready=plan.burst if name == "burst" and side.keeps_ready else side.keeps_ready
            ).prepare()
            if side.server is not None and isinstance(steady, SandlotBox):
                beats = cleanup.enter_context(pulse.beating(side.server.environment, steady.sandbox.sandbox_id))
            started = time.perf_counter()
            with ThreadPoolExecutor(plan.burst) as threads:
                boxes = list(threads.map(lambda _: _first(side.contestant), range(plan.burst)))
            samples[side.name][name].append(ms_since(started))
        samples[side.name][f"command_in_{name}"].extend(beats)
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(lambda box: box.kill(), boxes))


def _first(contestant: Contestant) -> Box:
    box = contestant.create()
    box.run_true()
    return box


def measure_crowd(side: Side, plan: Plan, samples: Samples) -> None:
    """What many idle sandboxes cost, and what the server costs that has them."""
    count = plan.crowd if side.server is not None else plan.docker_crowd
    say(f"{count} idle boxes of {side.name}")
    with ThreadPoolExecutor(4) as threads:
        boxes = list(threads.map(lambda _: _first(side.contestant), range(count)))
        try:
            _await_frozen(side, count)
            started, sample = time.perf_counter(), boxes[:: max(1, count // 20)]
            before = [footprint.read(box.id) for box in sample]
            busy = side.server.cpu_s() if side.server is not None else 0.0
            time.sleep(plan.window_s)
            after = [footprint.read(box.id) for box in sample]
            elapsed_s = time.perf_counter() - started
            taken = samples[side.name]
            taken["memory"].extend(each.memory_bytes / 1024**2 for each in after)
            pairs = zip(before, after, strict=True)
            taken["idle_cpu"].extend(100 * (last.cpu_s - first.cpu_s) / elapsed_s for first, last in pairs)
            if side.server is not None:
                taken["plane_full"].append(side.server.resident_bytes() / 1e6)
                taken["plane_cpu"].append(100 * (side.server.cpu_s() - busy) / elapsed_s)
                taken["after_rest"].extend(timed(box.run_true) for box in boxes[:10])
        finally:
            list(threads.map(lambda box: box.kill(), boxes))


def _await_frozen(side: Side, count: int) -> None:
    """Until all of them are frozen, and the warm pool, which replaces them, has been quiet for a while."""
    deadline, last, since = time.monotonic() + STILL_LIMIT_S, None, time.monotonic()
    while side.server is not None and time.monotonic() < deadline:
        ready = side.server.number(READY)
        if ready != last:
            last, since = ready, time.monotonic()
        if (side.server.number(FROZEN) or 0) >= count and time.monotonic() - since > POOL_REST_S:
            return
        time.sleep(0.5)


@contextlib.contextmanager
def _sides(runtimes: Sequence[str], root: Path) -> Iterator[list[Side]]:
    """All of them up at once: an idle server costs the others nothing, and only so can turns alternate."""
    with contextlib.ExitStack() as cleanup:
        say("starting Docker")
        docker = cleanup.enter_context(private_docker())
        docker.import_directory(root, IMAGE)
        sides = []
        for runtime in runtimes:
            say(f"starting servers with runtime {runtime}")
            warm = cleanup.enter_context(
                server.observed(runtime, max_sandboxes="200", pool_size=str(KEPT), pool_memory_mb=str(KEPT_MB))
            )
            cold = cleanup.enter_context(server.observed(runtime, max_sandboxes="200", pool_size="0"))
            sides.append(Side(SandlotContestant(runtime, warm.environment, warm.data_dir), warm, KEPT))
            sides.append(Side(SandlotContestant(f"{runtime} cold", cold.environment, cold.data_dir), cold))
        sides.append(Side(DockerContestant(report.REFERENCE, docker, IMAGE, "none")))
        yield sides


def _docker_versions(sides: Sequence[Side]) -> dict[str, str]:
    dockers = [side.contestant.docker for side in sides if isinstance(side.contestant, DockerContestant)]
    return dockers[0].versions() if dockers else {}


TITLES = {
    "create": "create alone (ms)",
    "burst_unready": "burst, nothing prepared (ms)",
    "command_in_burst": "command of a running sandbox during the burst (ms)",
    "command_in_burst_unready": "the same, nothing prepared (ms)",
    "after_rest": "first command after standing still (ms)",
    "kill": "kill (ms)",
    "plane_cpu": "CPU of the control plane with many idle sandboxes (% of a core)",
}


def _page(results: goals.Results, verdicts: Sequence[goals.Verdict], facts: Mapping[str, object], plan: Plan) -> str:
    """The table as people read it."""
    beside = [
        f"| {title} | `{name}` | {row[key].p50:.3g} / {row[key].p95:.3g} |"
        for key, title in TITLES.items()
        for name, row in results.items()
        if key in row
    ]
    about = ", ".join(f"{name} {value}" for name, value in facts.items())
    return "\n".join(
        [
            "# Fast",
            "",
            f"`./sandlot bench fast`, {datetime.now(UTC):%Y-%m-%d}: {plan.rounds} rounds, bursts of {plan.burst}, {plan.crowd} idle sandboxes.",
            f"Machine: {about}.",
            f"Warm servers keep {KEPT} ready, more by demand, with room for {KEPT_MB} MiB. A burst is the second of two: the pool",
            "learned from the first, which stands below as one with nothing prepared.",
            "",
            goals.markdown(verdicts),
            "",
            "Beside the goals, median / 95th percentile:",
            "",
            "| measure | of | |",
            "| --- | --- | --- |",
            *beside,
            "",
        ]
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="./sandlot bench fast", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few rounds, small bursts: a first impression")
    parser.add_argument("--rounds", type=int, help="how many rounds are counted, instead of the usual number")
    parser.add_argument("--runtimes", nargs="*", default=list(RUNTIMES), choices=RUNTIMES, metavar="RUNTIME")
    parser.add_argument("--name", help="name of the result's files (default: fast)")
    parser.add_argument("--dry", action="store_true", help="record nothing")
    return parser


if __name__ == "__main__":
    sys.exit(main())
