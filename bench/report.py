"""Turns samples into what a reader wants: medians, ratios to Docker, the aims met or missed, a table and a JSON file."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

REFERENCE = "docker"

# How each measure is shown: its title and unit, in the order of the table.
MEASURES = {
    "first_command": ("create to first command done", "ms"),
    "create": ("  of that, create", "ms"),
    "run_once": ("docker run IMAGE true", "ms"),
    "command": ("command round trip", "ms"),
    "write_1k": ("write 1 KB", "ms"),
    "read_1k": ("read 1 KB", "ms"),
    "write_20m": ("write 20 MB", "ms"),
    "read_20m": ("read 20 MB", "ms"),
    "kill": ("kill", "ms"),
    "memory": ("resident memory, idle", "MiB"),
    "idle_cpu": ("CPU, idle", "% of a core"),
}

Samples = Mapping[str, Mapping[str, Sequence[float]]]  # contestant -> measure -> values


@dataclass(frozen=True, slots=True)
class Summary:
    count: int
    p50: float
    p95: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Aim:
    """At most `ratio` times what `reference` needs for `against`."""

    contestant: str
    measure: str
    ratio: float
    against: str
    reference: str = REFERENCE


# The first command is held against both ways of having one in Docker: a container to go on with (`run --detach`, then
# `exec`), and the bare `docker run IMAGE true`, which leaves nothing to go on with and is the harder mark.
AIMS = (
    Aim("container", "first_command", 0.5, "first_command"),
    Aim("container", "first_command", 0.5, "run_once"),
    Aim("gvisor", "first_command", 1.5, "first_command"),
    Aim("gvisor", "first_command", 1.5, "run_once"),
    Aim("container", "command", 0.3, "command"),
)


def summarize(values: Sequence[float]) -> Summary:
    ordered = sorted(values)
    return Summary(
        count=len(ordered),
        p50=round(statistics.median(ordered), 3),
        p95=round(ordered[math.ceil(0.95 * len(ordered)) - 1], 3),
        low=round(ordered[0], 3),
        high=round(ordered[-1], 3),
    )


def summaries(samples: Samples) -> dict[str, dict[str, Summary]]:
    return {
        contestant: {measure: summarize(values) for measure, values in measures.items() if values}
        for contestant, measures in samples.items()
    }


def judged(results: Mapping[str, Mapping[str, Summary]]) -> list[dict[str, str | float | bool]]:
    """Each aim whose two sides were measured, with the ratio of medians that was reached."""
    verdicts: list[dict[str, str | float | bool]] = []
    for aim in AIMS:
        ours = results.get(aim.contestant, {}).get(aim.measure)
        theirs = results.get(aim.reference, {}).get(aim.against)
        if ours is None or theirs is None:
            continue
        reached = round(ours.p50 / theirs.p50, 3)
        verdicts.append(asdict(aim) | {"reached": reached, "met": reached <= aim.ratio})
    return verdicts


def table(results: Mapping[str, Mapping[str, Summary]]) -> str:
    """Median and p95 per contestant; for others than the reference, the ratio of medians to it."""
    rows = [["", *results]]
    for measure, (title, unit) in MEASURES.items():
        if any(measure in measures for measures in results.values()):
            rows.append([f"{title} ({unit})", *(_cell(results, name, measure) for name in results)])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def verdict_lines(verdicts: Sequence[Mapping[str, str | float | bool]]) -> str:
    return "\n".join(
        f"{'met   ' if verdict['met'] else 'MISSED'}  {verdict['contestant']}: {MEASURES[str(verdict['measure'])][0]} "
        f"at most {verdict['ratio']}x of {verdict['reference']}'s {MEASURES[str(verdict['against'])][0]!r}: "
        f"{verdict['reached']}x"
        for verdict in verdicts
    )


def _cell(results: Mapping[str, Mapping[str, Summary]], name: str, measure: str) -> str:
    ours, reference = results[name].get(measure), results.get(REFERENCE, {}).get(measure)
    if ours is None:
        return "-"
    numbers = f"{_number(ours.p50)} / {_number(ours.p95)}"
    if name == REFERENCE or reference is None or reference.p50 < 0.1:  # a ratio to next to nothing says nothing
        return numbers
    return f"{numbers}  {ours.p50 / reference.p50:.2f}x"


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 else f"{value:.2f}"
