"""The launcher, in a directory of its own with a small lock file: what it does the first time, and not the second."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from tests.cli.conftest import ROOT, environment

PACKAGE = "iniconfig"


def block(name: str) -> str:
    """One package of the real lock file, with its hashes."""
    match = re.search(rf"^{name}==.*?(?=^\S)", (ROOT / "requirements.lock").read_text(), re.MULTILINE | re.DOTALL)
    assert match
    return match[0]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    package = tmp_path / "checkout" / "src" / "sandlot"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text("import sys, iniconfig\nprint(sys.prefix, sys.argv[1:])\nsys.exit(7)\n")
    root = tmp_path / "checkout"
    shutil.copy(ROOT / "sandlot", root)
    (root / "requirements.lock").write_text(block("uv") + block(PACKAGE))
    return root


def start(checkout: Path, *arguments: str, cwd: Path | None = None, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(checkout / "sandlot"), *arguments],
        env={**environment(**_index()), **more},
        cwd=cwd or checkout,
        capture_output=True,
        text=True,
        timeout=110,
    )


def _index() -> dict[str, str]:
    """How this machine reaches a package index is not ours to say: what is set stays set."""
    import os

    return {
        name: value for name, value in os.environ.items() if name.startswith(("PIP_", "UV_", "SSL_", "http", "HTTP"))
    }


def test_the_first_start_makes_an_environment_and_the_second_does_nothing(checkout: Path) -> None:
    first = start(checkout, "a b", "--c")
    assert first.returncode == 7, first.stderr
    assert first.stdout == f"{checkout / '.venv'} ['a b', '--c']\n"
    assert "installing Python packages" in first.stderr
    second = start(checkout, "a b", "--c")
    assert (second.returncode, second.stdout, second.stderr) == (7, first.stdout, "")

    (checkout / "requirements.lock").write_text(block("uv") + block(PACKAGE) + block("packaging"))
    third = start(checkout)
    assert "installing Python packages" in third.stderr
    assert list((checkout / ".venv").glob("lib/python*/site-packages/packaging"))
    assert start(checkout).stderr == ""


def test_directories_of_wheels_that_are_gone_are_passed_over(checkout: Path, tmp_path: Path) -> None:
    gone = f"{tmp_path / 'gone'} file://{tmp_path / 'gone'} {checkout}"
    done = start(checkout, PIP_FIND_LINKS=gone)
    assert done.returncode == 7, done.stderr
    assert "uv could not do it" not in done.stderr


def test_it_works_through_a_link_from_anywhere_and_imports_nothing_from_there(checkout: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "iniconfig.py").write_text("raise SystemExit('imported from the current directory')")
    (elsewhere / "link").symlink_to(checkout / "sandlot")
    done = subprocess.run(
        ["./link", "x"],
        env=environment(SANDLOT_VENV=str(tmp_path / "the venv"), **_index()),
        cwd=elsewhere,
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.returncode == 7, done.stderr
    assert done.stdout == f"{tmp_path / 'the venv'} ['x']\n"
    assert not (checkout / ".venv").exists()


def test_bytes_that_the_lock_file_does_not_know_are_refused_and_the_next_start_tries_again(checkout: Path) -> None:
    lock = checkout / "requirements.lock"
    lock.write_text(block("uv") + re.sub(r"sha256:\w{64}", f"sha256:{'0' * 64}", block(PACKAGE)))
    done = start(checkout)
    assert done.returncode == 1
    assert "could not be installed" in done.stderr
    assert done.stdout == ""
    lock.write_text(block("uv") + block(PACKAGE))
    assert start(checkout).returncode == 7


@pytest.mark.parametrize("state", ["missing", "outdated", "closed"])
def test_an_ordinary_user_who_may_not_write_there_is_told_to_use_sudo(state: str) -> None:
    with tempfile.TemporaryDirectory() as directory:  # pytest's own is closed to other users
        root = Path(directory)
        root.chmod(0o755)
        shutil.copy(ROOT / "sandlot", root)
        (root / "requirements.lock").write_text("new")
        if state != "missing":
            (root / ".venv" / "bin").mkdir(parents=True)
            (root / ".venv" / "bin" / "python").symlink_to("/bin/true")
            (root / ".venv" / ".sandlot-lock").write_text("old")
        if state == "closed":
            (root / ".venv").chmod(0o700)
        before = sorted(root.rglob("*"))
        done = subprocess.run(
            [str(root / "sandlot"), "up", "--detach"], cwd="/", env=environment(), capture_output=True, text=True,
            timeout=110, user=65534, group=65534, extra_groups=[],
        )  # fmt: skip
        assert done.returncode == 1
        assert f"Use sudo: sudo {root}/sandlot up." in done.stderr
        assert done.stderr.count("\n") == 1 and "ermission" not in done.stderr
        assert sorted(root.rglob("*")) == before
