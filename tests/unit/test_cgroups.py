"""Control groups of v2, read and written in a directory that looks like one: this host may have v1."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandlot.engine.node.runtimes import cgroups
from sandlot.engine.node.runtimes.cgroups import Cgroup, Limits


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(cgroups, "ROOT", tmp_path)
    (tmp_path / "cgroup.controllers").write_text("cpu memory pids\n")
    directory = tmp_path / "sandlot-abc123" / "i1"
    directory.mkdir(parents=True)
    files = {
        "cpu.stat": "usage_usec 1500\nuser_usec 1000\n",
        "memory.current": "10000\n",
        "memory.stat": "anon 3000\nfile 6000\nshmem 2000\n",
        "memory.events": "low 0\noom 2\noom_kill 1\n",
        "pids.events": "max 7\n",
        "cgroup.events": "populated 1\nfrozen 1\n",
        "cgroup.procs": "",
    }
    for name, text in files.items():
        (directory / name).write_text(text)
    return directory


def test_what_a_v2_group_uses_leaves_the_page_cache_out_and_counts_shared_memory(group: Path) -> None:
    sample = Cgroup("/sandlot-abc123/i1").sample()
    assert (sample.cpu_ns, sample.mem_used, sample.mem_cache) == (1_500_000, 6000, 4000)


def test_a_v2_group_tells_why_it_was_cut_short(group: Path) -> None:
    cgroup = Cgroup("/sandlot-abc123/i1")
    assert (cgroup.oom_kills(), cgroup.refused_forks()) == (1, 7)


def test_a_v2_group_is_frozen_and_thawed_by_one_file(group: Path) -> None:
    cgroup = Cgroup("/sandlot-abc123/i1")
    cgroup.freeze()
    assert (group / "cgroup.freeze").read_text() == "1"
    assert cgroup.is_frozen()
    cgroup.thaw()
    assert (group / "cgroup.freeze").read_text() == "0"


def test_groups_are_listed_by_their_parent(group: Path) -> None:
    assert cgroups.names("/sandlot-abc123") == {"i1"}
    assert cgroups.names("/sandlot-none") == set()


def test_counters_of_a_group_that_is_gone_are_zero_and_its_sample_is_an_error(group: Path) -> None:
    gone = Cgroup("/sandlot-abc123/gone")
    assert (gone.oom_kills(), gone.refused_forks(), gone.exists(), gone.pids()) == (0, 0, False, set())
    with pytest.raises(FileNotFoundError):
        gone.sample()


def test_a_pid_file_cannot_make_a_strange_process_a_machines_own(group: Path) -> None:
    (group / "cgroup.procs").write_text("1\n0\n")
    cgroup = Cgroup("/sandlot-abc123/i1")
    assert not cgroup.holds(1)
    for pid in (0, 1, -1):
        cgroup._kill_one(pid)  # would raise, or worse, if it signalled anything


@pytest.mark.parametrize("is_v2", [True, False])
def test_a_group_is_made_with_its_limits_in_both_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_v2: bool
) -> None:
    if is_v2:
        (tmp_path / "cgroup.controllers").write_text("")
    monkeypatch.setattr(cgroups, "ROOT", tmp_path)
    made = Cgroup("/some/group").make(Limits(memory_bytes=1 << 20, processes=5, cpus=0.5))
    written = {path.name: path.read_text() for each in made for path in each.iterdir()}
    assert all(each.is_relative_to(tmp_path) for each in made)
    if is_v2:
        assert written == {"memory.max": "1048576", "pids.max": "5", "cpu.max": "50000 100000"}
        assert (tmp_path / "some" / "cgroup.subtree_control").read_text() == "+memory +pids +cpu"
    else:
        assert written["memory.limit_in_bytes"] == "1048576" and written["pids.max"] == "5"
        assert (written["cpu.cfs_quota_us"], written["cpu.cfs_period_us"]) == ("50000", "100000")
