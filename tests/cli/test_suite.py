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
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    return tmp_path


def test_a_test_that_passes_alone_is_told_as_flaky(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (project / "test_some.py").write_text(FLAKY)
    assert suite.all_tests() == 0
    assert "FLAKY: test_some.py::test_passes_the_second_time" in capfd.readouterr().err


def test_a_test_that_fails_again_fails_the_run(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (project / "test_some.py").write_text(FLAKY + BROKEN.format(count=1))
    assert suite.all_tests() == 1
    assert "FLAKY" not in capfd.readouterr().err


def test_many_failures_are_no_accident(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (project / "test_some.py").write_text(BROKEN.format(count=11))
    assert suite.all_tests() == 1
    assert "once more" not in capfd.readouterr().err
