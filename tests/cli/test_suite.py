"""A failed test gets one more chance, alone; what passes then is told as flaky."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandlot.cli import suite

FLAKY = """
from pathlib import Path

def test_passes_the_second_time():
    mark = Path("ran-once")
    ran = mark.exists()
    mark.touch()
    assert ran
"""
BROKEN = """
import pytest

@pytest.mark.parametrize("number", range({count}))
def test_fails_always(number):
    assert False
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(suite, "ROOT", tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --import-mode=importlib\n")
    (tmp_path / "tests" / "one").mkdir(parents=True)
    (tmp_path / "tests" / "two").mkdir()
    return tmp_path


def test_a_test_that_passes_alone_is_told_as_flaky(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (project / "tests" / "one" / "test_some.py").write_text(FLAKY)
    assert suite.all_tests() == 0
    assert "FLAKY: tests/one/test_some.py::test_passes_the_second_time" in capfd.readouterr().err


def test_a_test_that_fails_again_fails_the_run(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (project / "tests" / "one" / "test_some.py").write_text(FLAKY + BROKEN.format(count=1))
    assert suite.all_tests() == 1
    assert "FLAKY" not in capfd.readouterr().err


def test_many_failures_are_no_accident(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (project / "tests" / "one" / "test_some.py").write_text(BROKEN.format(count=11))
    assert suite.all_tests() == 1
    assert "once more" not in capfd.readouterr().err


MEETING = """
import os, time
from pathlib import Path

def test_meets_the_other():
    Path("{me}").write_text(os.environ["SANDLOT_TEST_PORTS"])
    deadline = time.monotonic() + 60
    while not Path("{other}").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
"""
APART = """
from pathlib import Path
text = '''
from tests.network import world
'''
import time

def test_is_alone():
    Path("alone").mkdir()
    time.sleep(0.3)
    Path("alone").rmdir()
"""


def test_groups_run_side_by_side_with_ports_of_their_own(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (project / "tests" / "one" / "test_some.py").write_text(MEETING.format(me="a", other="b"))
    (project / "tests" / "two" / "test_some.py").write_text(MEETING.format(me="b", other="a"))
    assert suite.all_tests(at_once=2) == 0
    assert "2 passed in" in capfd.readouterr().err
    first, second = ((project / name).read_text().split("-") for name in "ab")
    assert first[1] < second[0] or second[1] < first[0]


def test_groups_that_need_the_same_of_the_host_take_turns(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for name in ("one", "two"):
        (project / "tests" / name / "test_some.py").write_text(APART)
    assert [group.resources for group in suite.groups()] == [{"world"}, {"world"}]
    assert suite.all_tests(at_once=2) == 0, capfd.readouterr().err


def test_failures_of_all_groups_count_and_a_group_that_cannot_run_fails_all(
    project: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (project / "tests" / "one" / "test_some.py").write_text(FLAKY)
    (project / "tests" / "two" / "test_other.py").write_text(BROKEN.format(count=2))
    assert suite.all_tests() == 1
    said = capfd.readouterr().err
    assert "3 failed in" in said and "3 failed; they run once more" in said
    (project / "tests" / "two" / "test_other.py").write_text("import no_such_module")
    assert suite.all_tests() == 2
    assert "no_such_module" in capfd.readouterr().err


def test_a_run_that_finds_no_tests_is_no_success(project: Path) -> None:
    assert suite.all_tests() == 5


def test_every_test_of_the_project_is_in_exactly_one_group() -> None:
    files = [path for group in suite.groups() for path in group.paths]
    there = {path.relative_to(suite.ROOT).as_posix() for path in (suite.ROOT / "tests").rglob("test_*.py")}
    assert len(files) == len(there) and set(files) == there
