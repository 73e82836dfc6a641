"""The contract of runtimes, kept by the fake and by the real ones; and what only a real machine can show."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.contract.runtime_host import SERVER, SMALL, Bench, as_a_server, make_guest, make_layer, real_bench, slot
from tests.fakes_runtime import FakeHostOfMachines, FakeRuntime

from sandlot.engine.core.errors import MachineFailed, NotFound, Unavailable
from sandlot.engine.core.model import Instance, Isolation, Slot
from sandlot.engine.core.ports import Capturing, Freezing, LayerExporting
from sandlot.engine.node.runtimes import RUNTIMES, cgroups

REAL = tuple(RUNTIMES)
every_runtime = pytest.mark.parametrize("bench", ("fake", *REAL), indirect=True)
real_runtimes = pytest.mark.parametrize("bench", REAL, indirect=True)


@pytest.fixture(scope="module", autouse=True)
def server() -> Iterator[None]:
    with as_a_server():
        yield


@pytest.fixture(scope="module")
def layer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_layer(tmp_path_factory.mktemp("layer"))


@pytest.fixture
async def bench(request: pytest.FixtureRequest, tmp_path: Path, layer: Path) -> AsyncIterator[Bench]:
    guest = make_guest(tmp_path / "guest")
    if request.param != "fake":
        async with real_bench(request.param, tmp_path, layer, guest) as made:
            yield made
        return
    host = FakeHostOfMachines()
    nowhere = Slot(index=0, netns=Path("/nowhere"), address="", guest_address="", guest_gateway="")
    yield Bench(FakeRuntime(host), tmp_path, layer, guest, nowhere, "", lambda: FakeRuntime(host), real=False)


@every_runtime
async def test_a_started_machine_is_alive_and_found_until_it_is_stopped(bench: Bench) -> None:
    instance = await bench.start()
    assert await bench.runtime.alive(instance)
    assert [found.machine_id for found in await bench.runtime.instances()] == ["i1"]
    await bench.runtime.stop(instance)
    assert not await bench.runtime.alive(instance)
    assert await bench.runtime.instances() == []
    assert await bench.gone()


@every_runtime
async def test_stopping_twice_or_stopping_what_never_was_is_fine(bench: Bench) -> None:
    instance = await bench.start()
    await bench.runtime.stop(instance)
    await bench.runtime.stop(instance)
    await bench.runtime.stop(Instance(machine_id="inever", runtime=bench.runtime.name))
    assert await bench.gone()


@every_runtime
async def test_a_machine_that_ends_by_itself_is_reported_and_stays_listed_until_stopped(bench: Bench) -> None:
    instance = await bench.start(("/bin/sleep", "0.3"))
    ended = await asyncio.wait_for(bench.runtime.wait(instance), 20)
    assert (ended.reason, ended.expected) == ("exited", False)
    assert not await bench.runtime.alive(instance)
    assert [found.machine_id for found in await bench.runtime.instances()] == ["i1"]
    with pytest.raises(NotFound):
        await bench.runtime.usage(instance)
    await bench.runtime.stop(instance)
    assert await bench.gone()


@every_runtime
async def test_waiting_for_a_machine_that_is_stopped_ends_as_expected(bench: Bench) -> None:
    instance = await bench.start()
    waiting = asyncio.create_task(bench.runtime.wait(instance))
    await asyncio.sleep(0)
    await bench.runtime.stop(instance)
    assert (await asyncio.wait_for(waiting, 60)).expected


@every_runtime
async def test_a_program_that_is_not_there_fails_the_start_and_leaves_nothing(bench: Bench) -> None:
    with pytest.raises(MachineFailed) as failed:
        await bench.start(("/bin/not-there",))
    assert "i1" in str(failed.value)
    assert str(bench.data_dir) not in str(failed.value)
    assert await bench.gone()


@every_runtime
async def test_a_missing_layer_fails_the_start_and_leaves_nothing(bench: Bench) -> None:
    with pytest.raises(MachineFailed, match="layer"):
        await bench.start(layers=(bench.layer, bench.layer / "never-built"))
    assert await bench.gone()


@every_runtime
async def test_a_start_that_is_cancelled_midway_leaves_nothing(bench: Bench) -> None:
    for delay_s in (0, 0.001, 0.01, 0.03, 0.08):
        starting = asyncio.create_task(bench.runtime.start(bench.spec()))
        await asyncio.sleep(delay_s)
        starting.cancel()
        result = (await asyncio.gather(starting, return_exceptions=True))[0]
        if isinstance(result, Instance):  # it was quicker than the cancellation
            await bench.runtime.stop(result)
        else:
            assert isinstance(result, asyncio.CancelledError)
        assert await bench.gone()


@every_runtime
async def test_a_second_start_of_the_same_sandbox_is_refused_and_the_first_lives_on(bench: Bench) -> None:
    instance = await bench.start()
    with pytest.raises(MachineFailed):
        await bench.start()
    assert await bench.runtime.alive(instance)


@every_runtime
async def test_a_new_driver_finds_watches_and_stops_machines_of_the_one_before(bench: Bench) -> None:
    await bench.start()
    after = bench.makes()
    (found,) = await after.instances()
    assert await after.alive(found)
    assert (await after.usage(found)).mem_used > 0
    waiting = asyncio.create_task(after.wait(found))
    await asyncio.sleep(0)
    assert not waiting.done()
    await after.stop(found)
    await asyncio.wait_for(waiting, 60)
    assert await bench.gone()


@every_runtime
async def test_usage_is_within_what_was_given(bench: Bench) -> None:
    usage = await bench.runtime.usage(await bench.start())
    assert usage.cpu_count == SMALL.cpu_count
    assert 0 <= usage.cpu_used_pct <= 100
    assert 0 < usage.mem_used < usage.mem_total == SMALL.memory_mb << 20
    assert 0 < usage.disk_used < usage.disk_total == SMALL.disk_mb << 20


@every_runtime
async def test_usage_of_what_is_not_there_is_not_found(bench: Bench) -> None:
    with pytest.raises(NotFound):
        await bench.runtime.usage(Instance(machine_id="inever", runtime=bench.runtime.name))


@every_runtime
async def test_a_frozen_machine_can_be_thawed_or_stopped(bench: Bench) -> None:
    instance = await bench.start()
    assert isinstance(bench.runtime, Freezing)
    await bench.runtime.freeze(instance)
    assert await bench.runtime.alive(instance)
    await bench.runtime.thaw(instance)
    await bench.runtime.freeze(instance)
    await bench.runtime.stop(instance)
    assert await bench.gone()


@real_runtimes
async def test_what_is_frozen_stands_still_and_goes_on_when_thawed(bench: Bench) -> None:
    instance = await bench.start()
    assert await bench.ask("echo before") == "before\n"
    await bench.runtime.freeze(instance)
    asking = asyncio.create_task(bench.ask("echo after"))
    assert not (await asyncio.wait({asking}, timeout=0.3))[0]
    await bench.runtime.thaw(instance)
    assert await asking == "after\n"


# gVisor wakes a program that waits in accept(2) with EINTR when its state was captured or restored; busybox then gives up.
PATIENT = ("/bin/sh", "-c", f"while true; do {' '.join(SERVER)}; done")


async def captured(bench: Bench, instance: Instance, *, final: bool = False) -> dict[str, Any]:
    """What a start needs to begin with this machine's state."""
    into = bench.data_dir / "states" / instance.machine_id
    into.parent.mkdir(exist_ok=True)
    await asyncio.sleep(0.1)  # connections were closed a moment ago
    await bench.runtime.capture(instance, into, final=final)
    return {"checkpoint": into, "program": instance.state.get("program") or None}


@every_runtime
async def test_a_machine_that_was_captured_goes_on_and_another_begins_with_its_state(bench: Bench) -> None:
    assert isinstance(bench.runtime, Capturing)
    instance = await bench.start(PATIENT)
    state = await captured(bench, instance)
    assert await bench.runtime.alive(instance)
    await bench.runtime.stop(instance)
    assert await bench.gone(), "what is captured holds nothing of the machine"
    again = await bench.start(PATIENT, machine_id="i2", **state)
    assert await bench.runtime.alive(again)


@every_runtime
async def test_a_machine_that_is_not_there_cannot_be_captured(bench: Bench) -> None:
    with pytest.raises((NotFound, MachineFailed)):
        await bench.runtime.capture(
            Instance(machine_id="inever", runtime=bench.runtime.name), bench.data_dir / "x", final=False
        )
    assert not (bench.data_dir / "x").exists()


@every_runtime
async def test_a_state_that_cannot_be_read_fails_the_start_and_leaves_nothing(bench: Bench) -> None:
    instance = await bench.start(PATIENT)
    state = await captured(bench, instance)
    await bench.runtime.stop(instance)
    for path in sorted(state["checkpoint"].rglob("*")):
        if path.is_file() and not path.is_symlink():
            path.unlink()
    with pytest.raises((MachineFailed, Unavailable)):
        await bench.start(PATIENT, machine_id="i2", **state)
    assert await bench.gone()


async def answered(bench: Bench, script: str) -> str:
    """What the machine says, once it says something: a server may lose its first caller after a restore, a file be empty."""
    for _ in range(300):
        if said := (await bench.ask(script)).strip("\n"):
            return f"{said}\n"
        await asyncio.sleep(0.05)
    raise AssertionError("the machine said nothing")


@real_runtimes
async def test_files_are_in_a_state_as_they_were_at_that_moment(bench: Bench) -> None:
    instance = await bench.start(PATIENT)
    await bench.ask("echo first >/home/a; rm /bin/wc; chown 1000 /home/a; chmod 600 /home/a")
    state = await captured(bench, instance)
    assert await answered(bench, "echo second >/home/a; cat /home/a") == "second\n"
    await bench.runtime.stop(instance)
    for number in (2, 3):
        child = await bench.start(PATIENT, machine_id=f"i{number}", **state)
        said = await answered(bench, "cat /home/a; stat -c '%u %a' /home/a; ls /bin/wc")
        assert said.startswith("first\n1000 600\n") and "No such file" in said
        await bench.ask("echo of the child >/home/a")
        await bench.runtime.stop(child)


@real_runtimes
async def test_processes_are_in_a_state_where_the_runtime_says_so(bench: Bench) -> None:
    counting = "n=0; while true; do n=$((n+1)); echo $n >/tmp/next; mv /tmp/next /tmp/count; sleep 0.02; done"
    instance = await bench.start(("/bin/sh", "-c", f"({counting}) & {PATIENT[2]}"))
    await bench.ask("until [ -s /tmp/count ]; do sleep 0.02; done")
    state = await captured(bench, instance, final=True)
    await bench.runtime.stop(instance)
    await bench.start(PATIENT, machine_id="i2", **state)
    first, _ = int(await answered(bench, "cat /tmp/count")), await asyncio.sleep(0.3)
    assert (int(await answered(bench, "cat /tmp/count")) > first) is bench.runtime.captures_memory


@real_runtimes
async def test_the_boot_id_is_the_one_that_was_chosen_and_nobody_inside_can_change_it(bench: Bench) -> None:
    chosen = "5a0d1a3c-7d2b-4f0e-9c57-000000000001"
    await bench.start(boot_id=chosen)
    where = "/proc/sys/kernel/random/boot_id"
    assert await bench.ask(f"cat {where}") == f"{chosen}\n"
    await bench.ask(f"echo other >{where}")
    if bench.runtime.name == "container":  # under gVisor, root may uncover what runsc's own kernel says
        await bench.ask(f"umount {where}")
    assert await bench.ask(f"cat {where}") == f"{chosen}\n"


@real_runtimes
async def test_a_machine_has_its_names_its_guest_and_its_network(bench: Bench) -> None:
    await bench.start(hostname="box")
    said = await bench.ask(
        "hostname; cat /etc/hostname /etc/resolv.conf /.sandlot/mark; echo $GREETING; ip addr show eth0"
    )
    assert said.startswith(f"box\nbox\nnameserver {bench.slot.guest_gateway}\nguest runtime\nhello\n")
    assert f"{bench.slot.guest_address}/30" in said
    assert f"{bench.slot.guest_address}\tbox" in await bench.ask("cat /etc/hosts")


@real_runtimes
async def test_a_slot_can_be_used_again_and_again(bench: Bench) -> None:
    for number in range(3):
        instance = await bench.start(machine_id=f"i{number}")
        assert await bench.ask("hostname") == f"i{number}\n"
        await bench.runtime.stop(instance)


@real_runtimes
async def test_root_inside_can_write_everywhere_but_not_into_layers_or_the_guest_runtime(bench: Bench) -> None:
    before = _contents(bench.layer), _contents(bench.guest)
    await bench.start()
    said = await bench.ask(
        "echo mine >/etc/hosts; echo x >/new; rm /bin/wc; chown 1000 /etc/passwd; chmod 777 /bin/busybox; mkdir /tmp/d;"
        "echo y >>/etc/group; ls -l /new; cat /etc/hosts; echo z >/.sandlot/mark; rm -f /.sandlot/mark; cat /.sandlot/mark"
    )
    assert "mine" in said
    assert said.endswith("guest runtime\n")
    assert (_contents(bench.layer), _contents(bench.guest)) == before


@real_runtimes
async def test_layers_are_stacked_bottom_first(bench: Bench, tmp_path: Path) -> None:
    over = tmp_path / "over"
    (over / "etc").mkdir(parents=True)
    (over / "etc" / "passwd").write_text("root:x:0:0:from above:/root:/bin/sh\n")
    await bench.start(layers=(bench.layer, over))
    assert "from above" in await bench.ask("cat /etc/passwd; ls /bin/busybox")


@real_runtimes
async def test_extended_attributes_and_owners_are_kept(bench: Bench) -> None:
    await bench.start()
    said = await bench.ask(
        "touch /f; chown 1000:1000 /f; chmod 640 /f; stat -c '%u %g %a' /f; stat -c '%u %g' /bin/busybox"
    )
    assert said == "1000 1000 640\n0 0\n"


@real_runtimes
async def test_a_full_disk_is_an_error_inside_and_nothing_else(bench: Bench) -> None:
    instance = await bench.start()
    said = await bench.ask(
        "dd if=/dev/zero of=/tmp/big bs=1M count=200; echo; echo still here; rm /tmp/big; echo ok >/tmp/ok; cat /tmp/ok"
    )
    assert "No space left on device" in said
    assert said.endswith("still here\nok\n")
    assert await bench.runtime.alive(instance)


@real_runtimes
async def test_a_memory_hog_ends_in_its_own_machine_with_a_reason(bench: Bench) -> None:
    # As the first process, so that the machine ends with it in either runtime.
    hog = ("/bin/sh", "-c", "x=aaaaaaaaaaaaaaaa; while true; do x=$x$x; done")
    instance = await bench.start(hog, resources=replace(SMALL, memory_mb=128))
    started = time.monotonic()
    ended = await asyncio.wait_for(bench.runtime.wait(instance), 90)
    assert ended.reason == "out of memory"
    assert time.monotonic() - started < 90
    await bench.runtime.stop(instance)
    assert await bench.gone()


@real_runtimes
async def test_a_fork_bomb_stays_in_its_machine_and_the_host_answers(bench: Bench) -> None:
    instance = await bench.start(resources=replace(SMALL, pids=64))
    await bench.ask("echo ready")
    bombing = asyncio.create_task(bench.ask("bomb() { bomb | bomb & }; bomb; sleep 3", 20))
    slowest = 0.0
    for _ in range(60):
        then = time.monotonic()
        await asyncio.sleep(0.05)
        slowest = max(slowest, time.monotonic() - then)
    assert slowest < 20
    # A machine may live through it or end by it; what it may not do is end without saying why.
    if not await bench.runtime.alive(instance):
        assert (await bench.runtime.wait(instance)).reason in ("too many processes", "out of memory")
    bombing.cancel()
    await asyncio.gather(bombing, return_exceptions=True)
    await bench.runtime.stop(instance)
    assert await bench.gone()


@real_runtimes
async def test_a_busy_machine_gets_no_more_than_its_processors(bench: Bench) -> None:
    instance = await bench.start()
    spinning = asyncio.create_task(bench.ask("for i in 1 2 3; do (while true; do :; done) & done; sleep 60"))
    for _ in range(120):  # until it spins; the first answer is 0
        if (await bench.runtime.usage(instance)).cpu_used_pct > 1:
            break
        await asyncio.sleep(0.5)
    cgroup, began = bench.runtime._cgroup(instance.machine_id), time.monotonic()
    used = -cgroup.sample().cpu_ns
    await asyncio.sleep(1.5)
    used, elapsed = used + cgroup.sample().cpu_ns, time.monotonic() - began
    spinning.cancel()
    await asyncio.gather(spinning, return_exceptions=True)
    assert 0 < used / 1e9 < 1.25 * elapsed  # one processor; the kernel deals time out in pieces


@real_runtimes
async def test_machines_together_weigh_as_much_as_the_processors(bench: Bench) -> None:
    await bench.start()
    group = cgroups.Cgroup(bench.runtime._parent)
    file, each = ("cpu.weight", 100) if group._is_v2 else ("cpu.shares", 1024)
    assert int((group._dir("cpu") / file).read_text()) == each * (os.cpu_count() or 1)


@real_runtimes
async def test_grace_lets_the_first_process_end_by_itself(bench: Bench) -> None:
    script = f"trap 'sleep 0.4; exit 0' TERM; {' '.join(SERVER)} & while true; do wait; done"
    instance = await bench.start(("/bin/sh", "-c", script))
    assert await bench.ask("echo ready") == "ready\n"
    started = time.monotonic()
    await bench.runtime.stop(instance, grace=timedelta(seconds=90))
    assert 0.4 < time.monotonic() - started < 60
    assert await bench.gone()


@real_runtimes
async def test_many_machines_start_at_once_and_all_go(bench: Bench) -> None:
    async def one(number: int) -> None:
        async with slot(index=10 + number) as place:
            instance = await bench.runtime.start(bench.spec(machine_id=f"i{number}", slot=place))
            assert await bench.runtime.alive(instance)
            await bench.runtime.stop(instance)

    await asyncio.gather(*(one(number) for number in range(6)))
    assert await bench.gone()


@real_runtimes
async def test_an_id_that_is_a_path_is_refused(bench: Bench) -> None:
    for bad in ("../x", "a/b", "", ".", "x" * 200):
        with pytest.raises(MachineFailed):
            await bench.runtime.start(bench.spec(machine_id=bad, directory=bench.data_dir / "sandboxes" / "i1"))
        with pytest.raises(MachineFailed):
            await bench.runtime.stop(Instance(machine_id=bad, runtime=bench.runtime.name))


@real_runtimes
async def test_a_program_that_is_not_installed_is_named_with_what_to_install(bench: Bench) -> None:
    runtime = RUNTIMES[bench.runtime.name](bench.data_dir, bench.instance, program="no-such-program")
    with pytest.raises(Unavailable, match=r"'no-such-program'.*apt-get install"):
        await runtime.check()


def test_the_table_names_each_runtime_and_its_isolation() -> None:
    assert {name: kind.isolation for name, kind in RUNTIMES.items()} == {
        "gvisor": Isolation.SENTRY,
        "container": Isolation.NAMESPACES,
    }
    assert all(name == kind.name for name, kind in RUNTIMES.items())


def _contents(top: Path) -> dict[str, tuple[int, int, int, bytes]]:
    """Every file below, with its owner, mode and bytes."""
    found = {}
    for path in sorted(top.rglob("*")):
        info = path.lstat()
        data = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        found[str(path)] = (info.st_uid, info.st_gid, info.st_mode, data)
    return found


WROTE = """
cd /home
echo a >plain; chmod 640 plain; chown 7:8 plain; ln plain second; ln -s /nowhere link
mkdir -p deep/er; chmod 2755 deep; echo x >"deep/er/odd name"; echo sudo >setuid; chmod 4755 setuid
touch -d "2001-02-03 04:05:06" old; echo late >late
sleep 1.1; echo more >>late; mkdir again; touch again/x; rm -r again; mkdir again
rm /bin/wc; rm -r /etc/group; mv /bin/tail /home/moved
"""


@real_runtimes
async def test_what_a_machine_wrote_can_be_read_as_a_layer(bench: Bench) -> None:
    """Owners, modes, times, links and what was removed: a build's next step, in any runtime, stands on it."""
    assert isinstance(bench.runtime, LayerExporting)
    instance = await bench.start(writes_layer=True)
    said = await bench.ask(f"{WROTE}\nstat -c '%n %f %u %g %h %s %Y' plain second setuid old late deep deep/er")
    kept = bench.data_dir / "kept"
    bench.runtime.keep_disk(instance, kept)
    await bench.runtime.stop(instance)
    assert await bench.gone(), "what is kept holds nothing of the machine"
    async with bench.runtime.written(kept, instance.machine_id) as upper:
        seen = ""
        for name in ("plain", "second", "setuid", "old", "late", "deep", "deep/er"):
            fact = (upper / "home" / name).lstat()
            facts = (fact.st_mode, fact.st_uid, fact.st_gid, fact.st_nlink, fact.st_size, int(fact.st_mtime))
            seen += f"{name} {facts[0]:x} {' '.join(map(str, facts[1:]))}\n"
        assert seen == said
        assert str((upper / "home/link").readlink()) == "/nowhere"
        assert (upper / "home/deep/er/odd name").read_text() == "x\n"
        assert str((upper / "home/moved").readlink()) == "busybox"
        for gone in ("bin/wc", "bin/tail", "etc/group"):
            removed = (upper / gone).lstat()
            assert (removed.st_mode & 0o170000, removed.st_rdev) == (0o020000, 0), f"{gone} is not marked as removed"
        assert sorted(path.name for path in upper.iterdir()) == ["bin", "etc", "home"]
    assert await bench.gone()
