"""The benchmark's arithmetic and its counting of a box's footprint."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench import footprint, machine, report


def test_percentiles_are_values_that_were_measured() -> None:
    summary = report.summarize([float(value) for value in range(1, 21)])
    assert (summary.p50, summary.p95, summary.low, summary.high) == (10.5, 19.0, 1.0, 20.0)


def test_one_value_is_its_own_percentile() -> None:
    assert report.summarize([4.0]).p95 == 4.0


def test_an_aim_is_met_at_its_ratio_and_missed_above_it() -> None:
    results = report.summaries(
        {
            "docker": {"first_command": [300.0], "run_once": [200.0], "command": [60.0]},
            "container": {"first_command": [150.0], "command": [19.0]},
        }
    )
    verdicts = {(v["measure"], v["against"]): v["met"] for v in report.judged(results)}
    assert verdicts == {
        ("first_command", "first_command"): True,
        ("first_command", "run_once"): False,
        ("command", "command"): False,
    }


def test_the_table_shows_medians_and_ratios_to_docker() -> None:
    results = report.summaries({"docker": {"command": [80.0]}, "container": {"command": [20.0]}})
    assert "0.25x" in report.table(results)


def test_every_aim_is_about_a_measure_of_the_table() -> None:
    assert {name for aim in report.AIMS for name in (aim.measure, aim.against)} <= set(report.MEASURES)


def test_facts_do_not_name_the_machine() -> None:
    assert os.uname().nodename not in {str(value) for value in (machine.facts() | machine.versions()).values()}


@pytest.fixture
def box() -> Iterator[str]:
    """A process that holds 32 MiB in a control group of its own, named like a box."""
    name = f"bench-test-{os.getpid()}"
    hierarchies = [path for path in (Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup/cpuacct")) if path.is_dir()]
    groups = [parent / name for parent in hierarchies or [Path("/sys/fs/cgroup")]]
    if not os.access(groups[0].parent, os.W_OK):
        pytest.skip("making a control group needs root")
    for group in groups:
        group.mkdir()
    joins = "".join(f"open('{group}/cgroup.procs', 'w').write('0');" for group in groups)
    holding = f"{joins}held = bytearray(b'x' * (32 << 20)); print('ready', flush=True); input()"
    process = subprocess.Popen([sys.executable, "-c", holding], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield name
    finally:
        process.communicate()
        for group in groups:
            _remove(group)


def _remove(group: Path) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            return group.rmdir()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def test_a_footprint_counts_the_memory_and_cpu_of_the_boxs_group(box: str) -> None:
    reading = footprint.read(box)
    assert 32 << 20 <= reading.memory_bytes < 64 << 20
    assert 0 < reading.cpu_s < 10


def test_a_box_that_is_gone_has_no_footprint() -> None:
    with pytest.raises(LookupError, match="did the box end"):
        footprint.read("no-such-box")
