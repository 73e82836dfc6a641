"""Runs the groups of the test suite side by side, each in a pytest of its own, and puts their results together."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sandlot.cli import output

PASSED, FAILED, NOTHING = (
    0,
    1,
    5,
)  # exit codes of pytest that say how the tests went; others mean that it could not work
SHOWN_DURATIONS = 15
PORTS_PER_LANE = 4000
FIRST_PORT = 20000  # all below those that the kernel gives to outgoing connections
LOOK_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Tests that run in one process, one after another. Groups that share a resource never run at the same time."""

    name: str
    paths: Sequence[str]
    seconds: float = 10  # about; the longest begin first
    resources: frozenset[str] = frozenset()


@dataclass(slots=True)
class _Running:
    group: Group
    lane: int
    directory: Path
    process: subprocess.Popen[bytes]
    began: float = field(default_factory=time.monotonic)


@dataclass(slots=True)
class Outcome:
    """What all groups gave together."""

    status: int = PASSED
    failed: list[str] = field(default_factory=list)  # ids of tests
    counts: dict[str, int] = field(default_factory=dict)
    durations: list[tuple[float, str]] = field(default_factory=list)


def run(
    groups: Sequence[Group], arguments: Sequence[str], *, lanes: int, root: Path, environment: Mapping[str, str]
) -> Outcome:
    """Run all groups, at most `lanes` at a time. What a group prints is shown when it is over, if something failed."""
    began, outcome = time.monotonic(), Outcome()
    waiting = sorted(groups, key=lambda group: -group.seconds)
    running: list[_Running] = []
    with tempfile.TemporaryDirectory(prefix="sandlot-lanes-") as directory:
        try:
            while waiting or running:
                for lane in sorted(set(range(lanes)) - {each.lane for each in running}):
                    if (group := _next(waiting, running)) is not None:
                        running.append(_start(group, lane, Path(directory), arguments, root, environment))
                for each in [each for each in running if each.process.poll() is not None]:
                    running.remove(each)
                    _finish(each, outcome)
                time.sleep(LOOK_S)
        finally:
            for each in running:  # told to stop: they take down what they started
                each.process.terminate()
            for each in running:
                each.process.wait()
    if outcome.status == PASSED and not outcome.durations:
        outcome.status = NOTHING
    _summarize(outcome, time.monotonic() - began)
    return outcome


def _next(waiting: list[Group], running: Sequence[_Running]) -> Group | None:
    taken = {resource for each in running for resource in each.group.resources}
    free = next((group for group in waiting if not group.resources & taken), None)
    if free is not None:
        waiting.remove(free)
    return free


def _start(
    group: Group, lane: int, directory: Path, arguments: Sequence[str], root: Path, environment: Mapping[str, str]
) -> _Running:
    place = directory / group.name.replace("/", "-")
    place.mkdir()
    first = FIRST_PORT + lane * PORTS_PER_LANE
    argv = [sys.executable, "-m", "pytest", "-q", *arguments, f"--junitxml={place / 'results.xml'}"]
    argv += ["-o", f"cache_dir={place / 'cache'}", *group.paths]
    with (place / "output").open("wb") as out:
        process = subprocess.Popen(
            argv,
            cwd=root,
            env={**environment, "SANDLOT_TEST_PORTS": f"{first}-{first + PORTS_PER_LANE - 1}"},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    return _Running(group, lane, place, process)


def _finish(each: _Running, outcome: Outcome) -> None:
    status, took = each.process.returncode, time.monotonic() - each.began
    counts = _read_results(each.directory / "results.xml", outcome)
    outcome.failed += _failed_tests(each.directory / "cache")
    shown = ", ".join(f"{count} {name}" for name, count in counts.items() if count) or "nothing to run"
    if status in (PASSED, NOTHING):
        output.done(f"{each.group.name}: {shown} ({took:.0f} s)")
        return
    output.say((each.directory / "output").read_text(errors="replace"))
    output.error(f"{each.group.name}: {shown} ({took:.0f} s, exit status {status})")
    if outcome.status in (PASSED, FAILED):  # what could not work is worse than what failed
        outcome.status = status


def _read_results(path: Path, outcome: Outcome) -> Mapping[str, int]:
    """Counts of one group, which are added to those of all. A pytest that broke down may have written nothing."""
    try:
        suites = list(ElementTree.parse(path).getroot().iter("testsuite"))
    except (OSError, ElementTree.ParseError):
        return {}
    numbers = {name: sum(int(suite.get(name, 0)) for suite in suites) for name in _COUNTED}
    numbers["passed"] = numbers.pop("tests") - sum(numbers.values())
    counts = {shown: numbers[name] for name, shown in _SHOWN.items()}
    for name, count in counts.items():
        outcome.counts[name] = outcome.counts.get(name, 0) + count
    for case in (case for suite in suites for case in suite.iter("testcase")):
        name = f"{case.get('classname', '')}::{case.get('name', '')}"
        outcome.durations.append((float(case.get("time", 0)), name))
    return counts


_COUNTED = ("tests", "failures", "errors", "skipped")
_SHOWN = {"passed": "passed", "failures": "failed", "errors": "broken", "skipped": "skipped"}


def _failed_tests(cache: Path) -> Sequence[str]:
    try:
        return sorted(json.loads((cache / "v/cache/lastfailed").read_text()))
    except (OSError, ValueError):
        return ()


def _summarize(outcome: Outcome, took: float) -> None:
    output.say(f"\nSlowest {SHOWN_DURATIONS} tests:")
    for seconds, name in sorted(outcome.durations, reverse=True)[:SHOWN_DURATIONS]:
        output.say(f"{seconds:7.2f} s  {name}")
    shown = ", ".join(f"{count} {name}" for name, count in outcome.counts.items() if count) or "nothing to run"
    tell: Callable[[str], None] = output.done if outcome.status == PASSED else output.error
    tell(f"{shown} in {took / 60:.1f} min")
