"""The goals' arithmetic, and the command that measures."""

from __future__ import annotations

import pytest
from bench import goals, report
from typer.testing import CliRunner

from sandlot.cli import measuring
from sandlot.cli.app import app
from sandlot.cli.output import Failure


def results(**samples: dict[str, list[float]]) -> goals.Results:
    return report.summaries({name.replace("_", " "): measures for name, measures in samples.items()})


def verdict(found: goals.Results, measure: str, subject: str) -> goals.Verdict:
    return next(each for each in goals.judged(found) if each.measure.startswith(measure) and each.subject == subject)


@pytest.mark.parametrize(("ours", "met"), [(48.0, True), (49.0, False)])
def test_a_start_is_held_against_dockers(ours: float, met: bool) -> None:
    found = results(docker={"first_command": [400.0]}, container={"first_command": [ours]})
    assert verdict(found, "create to first", "container").met is met


def test_a_start_shows_what_the_bare_runtime_needs() -> None:
    found = results(
        docker={"first_command": [400.0]}, gvisor_cold={"first_command": [500.0]}, gvisor_floor={"run_once": [200.0]}
    )
    assert "200 ms" in verdict(found, "create to first", "gvisor cold").floor


def test_a_file_that_is_as_quick_as_the_client_can_be_is_quick_enough() -> None:
    slow = {"write_20m": [400.0]}  # 50 MB/s
    assert not verdict(results(container=slow, sdk_alone={"write_20m": [100.0]}), "write", "container").met
    assert verdict(results(container=slow, sdk_alone={"write_20m": [390.0]}), "write", "container").met


def test_what_was_not_measured_is_not_judged() -> None:
    assert goals.judged(results(docker={"command": [1.0]})) == []


def test_every_verdict_is_a_row_of_the_table() -> None:
    found = goals.judged(results(container={"memory": [20.0], "idle_cpu": [0.01]}))
    table = goals.markdown(found)
    assert table.count("\n") == 3 and "**missed**" in table and "| met |" in table


def test_a_measurement_that_there_is_not_is_refused_with_those_there_are() -> None:
    refused = CliRunner().invoke(app, ["bench", "nothing"])
    assert isinstance(refused.exception, Failure)
    assert all(kind in str(refused.exception) for kind in measuring.KINDS)


def test_the_bench_command_tells_what_it_can_measure() -> None:
    told = CliRunner().invoke(app, ["bench", "--help"])
    assert told.exit_code == 0 and "fast" in told.output
