"""System packages: what is asked of the package manager, and what people are told where that cannot be done."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sandlot.cli import preparation
from sandlot.cli.output import Failure
from sandlot.setup import packages
from sandlot.setup.packages import MANAGERS, Manager, Need, SetupFailed

Here = Callable[[str | None], None]
THING = Need(name="no-such-thing", why="does things", packages={"apt": "libthing", "dnf": "thing"})
OTHER = Need(name="no-such-other", why="does the rest", packages={"apt": "other"})


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> Here:
    """A system with this package manager, or with none that is known; it installs nothing."""

    def set_manager(name: str | None) -> None:
        here: Manager | None = MANAGERS[name] if name else None
        monkeypatch.setattr(packages, "manager", lambda: here)
        monkeypatch.setattr(packages, "run", lambda *_, **__: None)

    return set_manager


def test_a_fix_is_what_a_person_would_type(on: Here) -> None:
    on("apt")
    assert packages.fix([THING, OTHER]).endswith("apt-get install -y --no-install-recommends libthing other")
    on("dnf")
    assert packages.fix([THING]) == "sudo dnf install thing"


def test_what_the_system_does_not_package_is_named_with_its_purpose(on: Here) -> None:
    on("dnf")
    assert packages.fix([THING, OTHER]) == (
        "sudo dnf install thing; then install by hand, since dnf has no package for it: no-such-other, which does the rest"
    )


def test_an_unknown_system_is_told_everything_it_needs(on: Here) -> None:
    on(None)
    with pytest.raises(SetupFailed) as caught:
        packages.install([THING, OTHER], print)
    said = str(caught.value)
    assert "with this system's package manager" in said
    assert "no-such-thing, which does things" in said and "no-such-other, which does the rest" in said


def test_what_no_package_brought_is_told(on: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    on("apt")
    monkeypatch.setattr(packages, "POLICY", Path(os.devnull))
    monkeypatch.setattr(packages, "needs", lambda *groups: [THING])
    with pytest.raises(Failure, match=r"no-such-thing is still missing. It does things. To get it: sudo apt-get"):
        preparation.install_packages("run")


def test_daemons_are_not_started_while_packages_are_installed(
    on: Here, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    on("apt")
    policy, answers = tmp_path / "policy-rc.d", []
    monkeypatch.setattr(packages, "POLICY", policy)
    monkeypatch.setattr(packages, "run", lambda *_, **__: answers.append(os.system(str(policy)) >> 8))
    packages.install([THING], print)
    assert answers[-1] == 101
    assert not policy.exists()


def test_every_system_can_get_what_a_server_needs() -> None:
    lacking = {
        (name, need.name)
        for need in packages.needs("run")
        for name in MANAGERS
        if not need.optional and name not in need.packages
    }
    assert lacking == {("zypper", "/usr/share/keyrings/debian-archive-keyring.gpg")}


def test_a_library_is_there_if_it_loads() -> None:
    assert Need(name="library libc.so.6", why="").is_met()
    assert not Need(name="library libno-such-thing.so.1", why="").is_met()
