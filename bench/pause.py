"""Measures pauses, resumes and forks of boxes with more and less memory, beside Docker's pause and commit, in one run."""

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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Protocol

from e2b import Sandbox

from bench import machine, server
from bench.contestants import BOX_TIMEOUT_S, TEMPLATE
from bench.dockerd import Docker, private_docker
from bench.report import Summary, summaries
from bench.run import IMAGE, RESULTS, RUNTIMES
from sandlot.engine.node.images.base import build_base, read_recipe
from sandlot.settings import Settings

SIZES_MB = (20, 200, 1024)
FORKS = (1, 10)
BOX_MEMORY_MB = 2048
# Random pages: neither zero pages nor equal ones can be left out by whoever writes them.
HOLD = """
import os, time
held, piece = bytearray({mb} << 20), os.urandom(1 << 20)
for number in range({mb}):
    held[number << 20 : (number + 1) << 20] = piece
open("/tmp/held", "w").close()
time.sleep(1e6)
"""
AWAIT = "until [ -e /tmp/held ]; do sleep 0.05; done"

Samples = defaultdict[str, defaultdict[str, list[float]]]


class Box(Protocol):
    def pause(self) -> None: ...

    def resume(self) -> None:
        """Until a command has run in it."""

    def fork(self, count: int) -> None:
        """Until a command has run in each; they are removed by `tidy`."""

    def tidy(self) -> None: ...

    def kill(self) -> None: ...


@dataclass
class SandlotBox:
    sandbox: Sandbox
    children: list[Sandbox]

    @classmethod
    def holding(cls, environment: dict[str, str], mb: int) -> SandlotBox:
        sandbox = Sandbox.create(
            TEMPLATE,
            timeout=BOX_TIMEOUT_S,
            api_key=environment["E2B_API_KEY"],
            api_url=environment["E2B_API_URL"],
            sandbox_url=environment["E2B_SANDBOX_URL"],
            domain=environment["E2B_DOMAIN"],
        )
        sandbox.files.write("/tmp/hold.py", HOLD.format(mb=mb))
        sandbox.commands.run("python3 /tmp/hold.py", background=True, timeout=0)
        sandbox.commands.run(AWAIT, timeout=120)
        return cls(sandbox, [])

    def pause(self) -> None:
        self.sandbox.pause()

    def resume(self) -> None:
        self.sandbox.connect(timeout=BOX_TIMEOUT_S)
        self.sandbox.commands.run("true")

    def fork(self, count: int) -> None:
        for child in self.sandbox.fork(count=count, timeout=BOX_TIMEOUT_S):
            if isinstance(child, Exception):
                raise child
            self.children.append(child)
            child.commands.run("true")

    def tidy(self) -> None:
        for child in self.children:
            child.kill()
        self.children.clear()

    def kill(self) -> None:
        self.sandbox.kill()


@dataclass
class DockerBox:
    """`commit` keeps files alone, so its forks are compared with what they are: new containers without the memory."""

    docker: Docker
    id: str
    children: list[str]

    @classmethod
    def holding(cls, docker: Docker, mb: int) -> DockerBox:
        run = ("run", "--detach", "--network", "none", IMAGE, "python3", "-c", HOLD.format(mb=mb))
        identity = docker.run(*run).strip()
        docker.run("exec", identity, "sh", "-c", AWAIT)
        return cls(docker, identity, [])

    def pause(self) -> None:
        self.docker.run("pause", self.id)

    def resume(self) -> None:
        self.docker.run("unpause", self.id)
        self.docker.run("exec", self.id, "true")

    def fork(self, count: int) -> None:
        self.docker.run("commit", self.id, "forked")
        for _ in range(count):
            self.children.append(
                self.docker.run("run", "--detach", "--network", "none", "forked", "sleep", "9").strip()
            )
            self.docker.run("exec", self.children[-1], "true")

    def tidy(self) -> None:
        self.docker.run("rm", "--force", *self.children)
        self.docker.run("rmi", "--force", "forked")
        self.children.clear()

    def kill(self) -> None:
        self.docker.run("rm", "--force", self.id)


Makes = Callable[[int], Box]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--name", default="pause", help="of the result's file")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("told to stop"))  # the servers go down with it
    samples: Samples = defaultdict(lambda: defaultdict(list))
    with _contestants() as contestants:
        facts, versions = machine.facts(), machine.versions()
        for number in range(options.rounds + 1):  # the first one warms caches and does not count
            measure(contestants, samples if number else defaultdict(lambda: defaultdict(list)), seed=number)
            print(f"round {number} of {options.rounds}", file=sys.stderr)
    results = summaries({name: samples[name] for name in contestants})
    print(table(results))
    record = {
        "taken_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "rounds": options.rounds,
        "machine": facts | {"load_1m_at_end": machine.load()},
        "versions": versions,
        "results": {name: {key: asdict(value) for key, value in row.items()} for name, row in results.items()},
    }
    path = RESULTS / f"{datetime.now(UTC):%Y-%m-%d}-{options.name}.json"
    path.write_text(json.dumps(record, indent=2) + "\n")
    print(f"\nwritten to bench/results/{path.name}")
    return 0


@contextlib.contextmanager
def _contestants() -> Iterator[dict[str, Makes]]:
    with contextlib.ExitStack() as stack:
        found: dict[str, Makes] = {}
        for runtime in RUNTIMES:
            environment = stack.enter_context(server.running(runtime, sandbox_memory_mb=str(BOX_MEMORY_MB)))
            found[runtime] = lambda mb, environment=environment: SandlotBox.holding(environment, mb)  # type: ignore[misc]
        docker = stack.enter_context(private_docker())
        layers = Settings().cache_dir / "layers"
        docker.import_directory(layers / asyncio.run(build_base(read_recipe(), layers, print)), IMAGE)
        found["docker"] = lambda mb: DockerBox.holding(docker, mb)
        yield found


def measure(contestants: dict[str, Makes], samples: Samples, seed: int) -> None:
    turns = [(name, mb) for name in contestants for mb in SIZES_MB]
    random.Random(seed).shuffle(turns)
    for name, mb in turns:
        box = contestants[name](mb)
        try:
            taken = samples[name]
            taken[f"pause {mb} MB"].append(_ms(box.pause))
            taken[f"resume to first command {mb} MB"].append(_ms(box.resume))
            for count in FORKS:
                if mb * count <= 2048:  # ten times a gigabyte measures the machine's swap, not us
                    taken[f"fork of {count}, {mb} MB"].append(_ms(partial(box.fork, count)))
                    box.tidy()
        finally:
            box.kill()


def _ms(act: Callable[[], None]) -> float:
    began = time.perf_counter()
    act()
    return (time.perf_counter() - began) * 1000


def table(results: dict[str, dict[str, Summary]]) -> str:
    measures = list(dict.fromkeys(measure for row in results.values() for measure in sorted(row)))
    lines = [f"{'p50 / p95, ms':34}" + "".join(f"{name:>18}" for name in results)]
    for measure in measures:
        cells = (
            f"{row[measure].p50:.0f} / {row[measure].p95:.0f}" if measure in row else "-" for row in results.values()
        )
        lines.append(f"{measure:34}" + "".join(f"{cell:>18}" for cell in cells))
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
