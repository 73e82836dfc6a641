"""`sandlot ci` and the action for GitHub: its steps in a real shell, against a real server."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from tests.e2e.conftest import in_pristine
from tests.e2e.server import Server

from sandlot.cli.ci import unpacked

ROOT = Path(__file__).parents[2]
ACTION = ROOT / "integrations" / "github-actions" / "action.yml"
JUNIT = '<testsuites><testsuite tests="3" failures="1" errors="0" skipped="1"></testsuite></testsuites>'


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with in_pristine(tmp_path_factory, "container") as found:
        yield found


def act(server: Server, place: Path, **inputs: str) -> subprocess.CompletedProcess[str]:
    """Run the action's steps as GitHub would: expressions filled in, inputs with their defaults."""
    action = yaml.safe_load(ACTION.read_text())
    values = {name: str(each.get("default", "")) for name, each in action["inputs"].items()}
    program = place.parent / "sandlot"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m sandlot "$@"\n')
    program.chmod(0o755)
    values |= {"url": f"http://127.0.0.1:{server.port}", "key": server.key, "program": str(program)} | inputs
    [step] = [each for each in action["runs"]["steps"] if "if" not in each]
    told = {
        name: re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda m: values[m[1]], text)
        for name, text in step["env"].items()
    }
    env = {
        **server.cli_environment(),
        **told,
        "GITHUB_STEP_SUMMARY": str(place.parent / "summary.md"),
        "PASSED_ON": "yes",
    }
    env.pop("SANDLOT_DATA_DIR")
    script = place.parent / "step.sh"
    script.write_text(step["run"])
    argv = ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)]
    return subprocess.run(argv, env=env, cwd=place, capture_output=True, text=True, timeout=200)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "job" / "sub").mkdir(parents=True)
    (tmp_path / "job" / "sub" / "file.txt").write_text("hello\n")
    return tmp_path / "job"


def test_the_action_runs_a_script_with_the_jobs_files_and_brings_reports_back(server: Server, place: Path) -> None:
    run = f"cat sub/file.txt; echo \"$PASSED_ON $OTHER '$CI'\"; mkdir reports; echo '{JUNIT}' >reports/a.xml; touch left; exit 3"
    done = act(server, place, run=run, env="PASSED_ON\nOTHER=a b", junit="reports/*.xml")
    assert done.returncode == 3, done.stderr
    assert done.stdout == "hello\nyes a b 'true'\n"
    assert (place / "reports" / "a.xml").read_text().strip() == JUNIT and not (place / "left").exists()
    summary = (place.parent / "summary.md").read_text()
    assert "❌ Failed" in summary and "3 tests, 1 failed, 1 skipped" in summary and server.key not in summary
    assert json.loads(server.cli("sandbox", "list", "--json").stdout) == []


def test_nothing_of_an_input_becomes_part_of_the_steps_own_script(server: Server, place: Path) -> None:
    mark = place.parent / "touched"
    done = act(server, place, run="echo fine", env=f"X=$(touch {mark})", template=f'base"; touch {mark}; "')
    assert done.returncode != 0 and not mark.exists()


def test_a_task_for_no_repository_and_a_call_without_work_are_refused(server: Server, place: Path) -> None:
    done = act(server, place, task="Write a file", repository="no-such-repository")
    assert done.returncode == 1 and "no-such-repository" in done.stderr
    words = ("ci", "--url", f"http://127.0.0.1:{server.port}", "-t", "base")
    wrong = server.cli(*words, check=False)
    assert wrong.returncode == 2 and "--task" in wrong.stderr


def test_a_hostile_archive_writes_only_what_was_asked_for(tmp_path: Path) -> None:
    content, root = io.BytesIO(), tmp_path / "here"
    root.mkdir()
    (root / "out").symlink_to(tmp_path)
    with tarfile.open(fileobj=content, mode="w") as archive:
        for name in ("reports/a.xml", "../b.xml", "/tmp/c.xml", "out/d.xml", "reports/e.txt"):
            member = tarfile.TarInfo(name)
            member.size = 1
            archive.addfile(member, io.BytesIO(b"x"))
        link = tarfile.TarInfo("reports/l.xml")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    assert list(unpacked(content.getvalue(), root, ["./reports/*.xml", "*.xml"])) == ["reports/a.xml"]
    assert [each.name for each in tmp_path.iterdir()] == ["here"]
