"""The goals of speed and thrift: what is held against what, and how close a run came to each of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from bench.report import REFERENCE, Summary

CLIENT_LIMIT = "sdk alone"  # the SDK against a server that does nothing
CLIENT_SHARE = 0.9  # this much of the client's own limit is the client's limit, within what repeats

Results = Mapping[str, Mapping[str, Summary]]  # contestant -> measure -> numbers


@dataclass(frozen=True, slots=True)
class Verdict:
    """One row of the table. `floor`: what the same run showed to be the least possible, where that is known."""

    measure: str
    subject: str
    aim: str
    reached: str
    met: bool
    floor: str = ""


@dataclass(frozen=True, slots=True)
class Ratio:
    """At most `most` times what Docker needs for the same."""

    measure: str
    subject: str
    most: float
    title: str

    def judge(self, results: Results) -> Verdict | None:
        ours = results.get(self.subject, {}).get(self.measure)
        theirs = results.get(REFERENCE, {}).get(self.measure)
        if ours is None or theirs is None:
            return None
        ratio = ours.p50 / theirs.p50
        reached = f"{ratio:.2f}x ({_ms(ours.p50)} to {_ms(theirs.p50)})"
        bare = results.get(f"{self.subject.partition(' ')[0]} floor", {}).get("run_once")
        floor = f"the bare runtime: {_ms(bare.p50)}" if bare and self.measure == "first_command" else ""
        return Verdict(
            self.title, self.subject, f"at most {self.most:g}x of Docker", reached, ratio <= self.most, floor
        )


@dataclass(frozen=True, slots=True)
class Rate:
    """At least so many MB/s for a file of 20 MB, or what the SDK can do by itself."""

    measure: str
    subject: str
    least: float
    title: str

    def judge(self, results: Results) -> Verdict | None:
        ours = results.get(self.subject, {}).get(self.measure)
        if ours is None:
            return None
        rate, limit = _rate(ours), results.get(CLIENT_LIMIT, {}).get(self.measure)
        met = rate >= self.least or (limit is not None and rate >= CLIENT_SHARE * _rate(limit))
        floor = f"the SDK alone: {_rate(limit):.0f} MB/s" if limit else ""
        return Verdict(self.title, self.subject, f"at least {self.least:g} MB/s", f"{rate:.0f} MB/s", met, floor)


@dataclass(frozen=True, slots=True)
class Most:
    """At most this much."""

    measure: str
    subject: str
    most: float
    unit: str
    title: str

    def judge(self, results: Results) -> Verdict | None:
        ours = results.get(self.subject, {}).get(self.measure)
        if ours is None:
            return None
        reached = f"{ours.p50:.3g} {self.unit}"
        return Verdict(self.title, self.subject, f"at most {self.most:g} {self.unit}", reached, ours.p50 <= self.most)


FIRST = "create to first command done"
GOALS: Sequence[Ratio | Rate | Most] = (
    Ratio("first_command", "container", 0.12, f"{FIRST}, warm"),
    Ratio("first_command", "gvisor", 0.35, f"{FIRST}, warm"),
    Ratio("first_command", "container cold", 0.4, f"{FIRST}, pool empty"),
    Ratio("first_command", "gvisor cold", 1.0, f"{FIRST}, pool empty"),
    Ratio("burst", "container", 0.3, "a burst of creates, all first commands done"),
    Ratio("burst", "gvisor", 0.3, "a burst of creates, all first commands done"),
    Ratio("command", "container", 0.2, "command round trip"),
    Ratio("command", "gvisor", 0.8, "command round trip"),
    Rate("write_20m", "container", 100, "write 20 MB"),
    Rate("read_20m", "container", 100, "read 20 MB"),
    Rate("write_20m", "gvisor", 50, "write 20 MB"),
    Rate("read_20m", "gvisor", 50, "read 20 MB"),
    Most("memory", "container", 15, "MiB", "resident memory, idle"),
    Most("memory", "gvisor", 35, "MiB", "resident memory, idle"),
    Most("idle_cpu", "container", 0.05, "% of a core", "CPU, idle"),
    Most("idle_cpu", "gvisor", 0.05, "% of a core", "CPU, idle"),
    Most("plane_empty", "container", 150, "MB", "control plane, no sandbox"),
    Most("plane_empty", "gvisor", 150, "MB", "control plane, no sandbox"),
    Most("plane_full", "container", 200, "MB", "control plane, many sandboxes"),
    Most("plane_full", "gvisor", 200, "MB", "control plane, many sandboxes"),
)


def judged(results: Results) -> list[Verdict]:
    """A verdict for each goal whose sides were all measured."""
    return [verdict for goal in GOALS if (verdict := goal.judge(results)) is not None]


def markdown(verdicts: Sequence[Verdict]) -> str:
    rows = [
        f"| {each.measure} | `{each.subject}` | {each.aim} | {each.reached} | {'met' if each.met else '**missed**'} | {each.floor} |"
        for each in verdicts
    ]
    return "\n".join(["| measure | of | aim | reached | | floor |", "| --- | --- | --- | --- | --- | --- |", *rows])


def as_data(verdicts: Sequence[Verdict]) -> list[dict[str, object]]:
    return [asdict(verdict) for verdict in verdicts]


def _rate(summary: Summary) -> float:
    return 20 / (summary.p50 / 1000)


def _ms(value: float) -> str:
    return f"{value / 1000:.1f} s" if value >= 10_000 else f"{value:.0f} ms" if value >= 100 else f"{value:.1f} ms"
