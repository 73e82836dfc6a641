"""Known ways out of containers, tried by root inside a machine of each runtime."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import socket
from pathlib import Path

import pytest
from tests.contract.runtime_host import real_bench
from tests.security.conftest import Prisoner

from sandlot.engine.core.model import GUEST_MOUNT
from sandlot.engine.node.images.guest import loader
from sandlot.engine.node.runtimes import RUNTIMES

pytestmark = pytest.mark.usefixtures("private_mounts")
# x86-64 numbers would not do on other machines; these are looked up where they differ.
ARM = os.uname().machine == "aarch64"


async def test_the_hosts_files_are_not_in_reach_of_any_proc_link(prisoner: Prisoner) -> None:
    said = await prisoner.sh(f"""
        for pid in self thread-self 1 2 $$ $PPID; do for link in root cwd; do cat /proc/$pid/$link{prisoner.secret}; done; done
        cat {prisoner.secret} /../../..{prisoner.secret}
        for fd in 0 1 2 3 4 5 6 7 8 9 10 11 12; do cat /proc/self/fd/$fd/../../../../..{prisoner.secret}; done
        cd /proc/self/fd/7 && cat ../../../..{prisoner.secret}
        for p in /proc/[0-9]*; do cat $p/root{prisoner.secret}; done; echo tried""")
    assert prisoner.word not in said
    assert said.endswith("tried\n")


async def test_a_second_chroot_leads_back_to_the_machines_own_root(prisoner: Prisoner) -> None:
    said = await prisoner.python(f"""
os.makedirs("/tmp/jail")
keep = os.open("/", os.O_RDONLY)
os.chroot("/tmp/jail")
os.fchdir(keep)
for _ in range(50): os.chdir("..")
os.chroot(".")
print(os.path.exists("/bin/busybox"), os.path.exists("{prisoner.secret}"))""")
    assert said.split()[1] == "False"


async def test_no_descriptor_of_the_host_is_left_open(prisoner: Prisoner) -> None:
    said = await prisoner.python("""
for pid in ("1", "self"):
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try: print(pid, fd, os.readlink(f"/proc/{pid}/fd/{fd}"))
        except OSError: pass""")
    kinds = {line.split(" ", 2)[2].split(":")[0] for line in said.splitlines()}
    # gVisor shows /dev/null of the host, which is all a machine gets as its standard streams, as "host:".
    assert kinds <= {"/dev/null", "socket", "pipe", "host", "/proc/1/fd", "/dev/urandom"} | {
        kind for kind in kinds if kind.startswith("/proc/") and kind.endswith("/fd")
    }


async def test_what_the_first_process_writes_fills_nothing_on_the_host(prisoner: Prisoner) -> None:
    place = Path(prisoner.bench.spec().directory) / "runtime"
    size = sum(path.stat().st_blocks for path in place.rglob("*") if path.is_file())
    await prisoner.sh("dd if=/dev/zero of=/proc/1/fd/1 bs=1M count=20; dd if=/dev/zero of=/proc/1/fd/2 bs=1M count=20")
    assert sum(path.stat().st_blocks for path in place.rglob("*") if path.is_file()) - size < 2048


async def test_the_kernels_memory_cannot_be_read(prisoner: Prisoner) -> None:
    said = await prisoner.sh("""
        for f in /proc/kcore /dev/mem /dev/kmem /dev/port /proc/kmsg /dev/kmsg /proc/kallsyms /proc/vmcore; do
            [ -e $f ] && head -c 16 $f | wc -c; done; dmesg | head -3; echo tried""")
    own = "Starting gVisor" if prisoner.runtime == "gvisor" else ""  # its kernel's own jokes
    lines = [line for line in said.splitlines() if line not in ("0", "tried") and "can't open" not in line]
    assert [line for line in lines if "not permitted" not in line and not (own and line.startswith("["))] == []


async def test_devices_cannot_be_made_or_used(prisoner: Prisoner, tmp_path: Path) -> None:
    device = tmp_path.stat().st_dev
    given = set((await prisoner.sh("ls /dev")).split())
    assert not {name for name in given if name.startswith(("sd", "vd", "nvme", "loop", "dm", "kvm", "mem", "kmsg"))}
    said = await prisoner.sh(f"""
        mknod /tmp/disk b {os.major(device)} {os.minor(device)} && head -c 64 /tmp/disk | wc -c
        mknod /dev/mem2 c 1 1 && head -c 64 /dev/mem2 | wc -c
        mknod /dev/loopc c 10 237 && echo x 2>/dev/null >/dev/loopc && echo OPENED; echo tried""")
    assert "64" not in said
    assert "OPENED" not in said
    assert said.endswith("tried\n")


@pytest.mark.parametrize("name", tuple(RUNTIMES))
async def test_device_files_in_a_layer_do_not_work(name: str, tmp_path: Path, layer: Path, guest: Path) -> None:
    over = tmp_path / "over"
    over.mkdir()
    device = tmp_path.stat().st_dev
    os.mknod(over / "disk", 0o666 | 0o060000, device)
    os.mknod(over / "kmsg", 0o666 | 0o020000, os.makedev(1, 11))
    async with real_bench(name, tmp_path, layer, guest) as bench:
        await bench.start(layers=(layer, over))
        said = await bench.ask("head -c 64 /disk | wc -c; head -c 64 /kmsg | wc -c; echo x >/kmsg; echo tried")
    assert "64" not in said
    assert said.endswith("tried\n")


async def test_nothing_below_sys_can_be_written(prisoner: Prisoner) -> None:
    said = await prisoner.python("""
opened = []
for top, directories, files in os.walk("/sys"):
    for name in files:
        # No value that anything would accept: a success would be a change of the host.
        try: os.write(os.open(os.path.join(top, name), os.O_WRONLY), b"no such value"); opened.append(os.path.join(top, name))
        except OSError: pass
    try: os.mkdir(os.path.join(top, "x")); opened.append(top)
    except OSError: pass
print(opened)""")
    assert said == "[]\n"


async def test_the_hosts_settings_cannot_be_changed(prisoner: Prisoner) -> None:
    settings = ("kernel/core_pattern", "vm/overcommit_memory", "kernel/hostname", "fs/file-max")
    before = {name: (Path("/proc/sys") / name).read_text() for name in settings}
    await prisoner.sh("\n".join(f"echo '|/bin/evil' >/proc/sys/{name}; echo 1 >/proc/sys/{name}" for name in settings))
    assert {name: (Path("/proc/sys") / name).read_text() for name in settings} == before
    said = await prisoner.sh("echo h >/proc/sysrq-trigger || echo refused; [ -e /proc/sysrq-trigger ] || echo refused")
    assert "refused" in said or prisoner.runtime == "container"  # there it is /dev/null, which takes anything
    assert await prisoner.bench.runtime.alive(prisoner.instance)


async def test_mounting_is_refused_and_covers_stay_on(prisoner: Prisoner) -> None:
    if prisoner.runtime == "gvisor":
        pytest.skip("root mounts what runsc's own kernel has, see the next test")
    said = await prisoner.sh("""
        mkdir -p /tmp/m
        mount -t tmpfs none /tmp/m && echo MOUNTED; mount -t proc none /tmp/m && echo MOUNTED
        mount -t sysfs none /tmp/m && echo MOUNTED; mount -t cgroup -o memory none /tmp/m && echo MOUNTED
        mount -t cgroup2 none /tmp/m && echo MOUNTED; mount -t devtmpfs none /tmp/m && echo MOUNTED
        mount --bind / /tmp/m && echo MOUNTED; mount -o remount,rw,bind /.sandlot && echo MOUNTED
        umount /proc/kcore && echo MOUNTED; umount -l /proc && echo MOUNTED; umount -l /sys && echo MOUNTED
        umount -l /.sandlot && echo MOUNTED; echo tried""")
    assert "MOUNTED" not in said
    assert said.endswith("tried\n")


async def test_what_root_mounts_under_gvisor_is_its_own_kernels_and_nothing_of_the_host(prisoner: Prisoner) -> None:
    if prisoner.runtime != "gvisor":
        pytest.skip("the host's kernel refuses all mounts")
    guest = prisoner.bench.spec().guest
    before = {path: path.stat().st_mtime_ns for path in guest.rglob("*")}
    said = await prisoner.sh(f"""
        mkdir -p /tmp/m /tmp/c
        mount -t tmpfs none /tmp/m && echo TMPFS && umount /tmp/m
        mount -t proc none /tmp/m; cat /tmp/m/1/root{prisoner.secret}; umount /tmp/m
        mount -t cgroup -o memory none /tmp/c; ls /tmp/c; umount /tmp/c
        mount -t sysfs none /tmp/m; ls /tmp/m/block /tmp/m/class/block; umount /tmp/m
        for fd in 0 1 2 3 4 5 6 7 8 9 10; do
            mount -t 9p -o trans=fd,rfdno=$fd,wfdno=$fd,aname=/,version=9P2000.L none /tmp/m && echo BEYOND
            mount -t erofs -o ifd=$fd none /tmp/m && echo BEYOND
        done
        mount -o remount,rw,bind /.sandlot; mount -o remount,rw /.sandlot; echo x >/.sandlot/evil; truncate -s 0 /.sandlot/bin/python3
        mount --bind /.sandlot /tmp/m; mount -o remount,rw,bind /tmp/m; echo x >/tmp/m/evil; umount /tmp/m
        echo tried""")
    assert "TMPFS" in said and "BEYOND" not in said and prisoner.word not in said and "release_agent" not in said
    assert said.endswith("tried\n")
    assert {path: path.stat().st_mtime_ns for path in guest.rglob("*")} == before
    assert await prisoner.bench.runtime.alive(prisoner.instance)


async def test_a_new_user_namespace_opens_no_way_to_the_host(prisoner: Prisoner) -> None:
    said = await prisoner.sh(f"""
        unshare -Ur sh -c 'echo INSIDE; mkdir -p /tmp/m /tmp/c; mount -t proc none /tmp/m; mount -t sysfs none /tmp/m;
            mount -t cgroup -o rdma none /tmp/c; ls /tmp/c; cat /tmp/m/1/root{prisoner.secret}; cat /proc/1/root{prisoner.secret}'
        nsenter -t 1 -m -p -n cat {prisoner.secret}; ls -la /tmp/c; echo tried""")
    assert prisoner.word not in said
    assert "release_agent" not in said
    if prisoner.runtime == "container":
        assert "INSIDE" not in said
    assert said.endswith("tried\n")


async def test_system_calls_that_a_sandbox_has_no_use_for_are_refused(prisoner: Prisoner) -> None:
    said = await prisoner.python(f"""
numbers = {_numbers()}
buffer = ctypes.create_string_buffer(256)
arguments = dict(
    bpf=(0, buffer, 120), perf_event_open=(buffer, 0, -1, -1, 0), io_uring_setup=(8, buffer), userfaultfd=(0,),
    open_by_handle_at=(-100, buffer, 0), kexec_load=(0, 0, 0, 0), init_module=(buffer, 1, b""), finit_module=(0, b"", 0),
    delete_module=(b"x", 0), swapon=(b"/x", 0), acct=(0,), reboot=(0xFEE1DEAD, 672274793, 0, 0), fanotify_init=(0, 0),
    open_tree=(-100, b"/", 1), fsopen=(b"ext4", 0), mount_setattr=(-100, b"/", 0, buffer, 32), iopl=(3,),
    settimeofday=(buffer, 0), quotactl=(0, b"/", 0, 0), setns=(0, 0), pivot_root=(b"/", b"/"),
)
for name, args in arguments.items():
    result, error = call(numbers[name], *args) if name in numbers else (-1, "ENOSYS")
    print(name, result, error)
print("tried")""")
    answers = [line.split() for line in said.splitlines()[:-1]]
    assert len(answers) == 21
    assert [answer for answer in answers if int(answer[1]) >= 0] == []
    if prisoner.runtime == "container":  # the filter says no before the kernel looks at what was asked
        assert [answer for answer in answers if answer[2] not in ("EPERM", "ENOSYS")] == []


async def test_keys_of_the_host_are_not_shared(prisoner: Prisoner) -> None:
    said = await prisoner.python(f"""
numbers = {_numbers()}
print(call(numbers["add_key"], b"user", b"mark", b"data", 4, -4), call(numbers["request_key"], b"user", b"mark", 0, -4))""")
    assert "EPERM" in said or "ENOSYS" in said or "EACCES" in said


async def test_only_ordinary_socket_families_exist(prisoner: Prisoner) -> None:
    said = await prisoner.python("""
for family in (38, 40, 31, 29, 44, 21, 15):  # alg, vsock, bluetooth, can, xdp, rds, key
    try: socket.socket(family, socket.SOCK_RAW if family != 38 else socket.SOCK_SEQPACKET); print("OPEN", family)
    except OSError: pass
print("tried")""")
    assert said == "tried\n"


async def test_the_machines_network_cannot_be_rearranged_from_inside(prisoner: Prisoner) -> None:
    said = await prisoner.sh("""
        ip addr add 10.9.9.9/24 dev eth0 && echo CHANGED; ip link set eth0 address 02:00:00:00:00:99 && echo CHANGED
        ip link set eth0 down && echo CHANGED; ip route add 10.8.0.0/16 dev eth0 && echo CHANGED; echo tried""")
    assert "CHANGED" not in said
    assert said.endswith("tried\n")


async def test_abstract_sockets_of_the_host_are_not_in_reach(prisoner: Prisoner) -> None:
    name = f"\0sandlot-{prisoner.word}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(name)
        listener.listen()
        said = await prisoner.python(f"""
s = socket.socket(socket.AF_UNIX)
try: s.connect({name!r}); print("CONNECTED")
except OSError as error: print(type(error).__name__)""")
    assert "CONNECTED" not in said


async def test_processes_of_the_host_can_be_neither_seen_nor_signalled(prisoner: Prisoner) -> None:
    child = await asyncio.create_subprocess_exec("sleep", "1234.5678")
    try:
        said = await prisoner.sh(f"cat /proc/[0-9]*/cmdline; echo; kill -9 {child.pid}; echo tried")
        assert "1234.5678" not in said
        assert child.returncode is None
        os.kill(child.pid, 0)
    finally:
        os.kill(child.pid, 9)
        await child.wait()


async def test_the_runtimes_program_cannot_be_overwritten_through_proc(prisoner: Prisoner) -> None:
    programs = [Path(found) for name in ("crun", "runc", "runsc") if (found := shutil.which(name))]
    before = [hashlib.sha256(path.read_bytes()).digest() for path in programs]
    await prisoner.python("""
for pid in [name for name in os.listdir("/proc") if name.isdigit()] + ["self"]:
    for flags in (os.O_WRONLY, os.O_WRONLY | os.O_TRUNC, os.O_RDWR):
        try:
            fd = os.open(f"/proc/{pid}/exe", flags); os.write(fd, b"#!/bin/evil"); os.close(fd)
        except OSError: pass""")
    assert [hashlib.sha256(path.read_bytes()).digest() for path in programs] == before
    assert await prisoner.bench.runtime.alive(prisoner.instance)


async def test_the_guest_runtime_cannot_be_changed_in_any_way(prisoner: Prisoner) -> None:
    target = prisoner.bench.guest / "bin" / "python3"
    before = hashlib.sha256(target.read_bytes()).digest(), target.stat()
    await prisoner.python("""
p = "/.sandlot/bin/python3"
for act in (
    lambda: os.open(p, os.O_WRONLY | os.O_TRUNC), lambda: os.open(p, os.O_RDWR | os.O_CREAT | os.O_TRUNC), lambda: os.open(p, os.O_RDWR),
    lambda: os.truncate(p, 0), lambda: os.unlink(p), lambda: os.rename(p, p + "2"), lambda: os.chmod(p, 0o777),
    lambda: os.chown(p, 1, 1), lambda: os.utime(p, (0, 0)), lambda: os.setxattr(p, "user.x", b"1"),
    lambda: os.link(p, "/tmp/linked"), lambda: os.mkdir("/.sandlot/new"), lambda: os.symlink("/", "/.sandlot/new"),
    lambda: os.open("/.sandlot/new", os.O_CREAT | os.O_WRONLY), lambda: os.open("/proc/self/fd/%d" % os.open(p, os.O_RDONLY), os.O_RDWR | os.O_TRUNC),
):
    try: act()
    except OSError: pass""")
    after = target.stat()
    assert hashlib.sha256(target.read_bytes()).digest() == before[0]
    kept = ("st_size", "st_mode", "st_uid", "st_gid", "st_nlink", "st_mtime_ns")
    assert [getattr(after, name) for name in kept] == [getattr(before[1], name) for name in kept]
    assert not (prisoner.bench.guest / "new").exists()


async def test_root_inside_is_nobody_outside(prisoner: Prisoner) -> None:
    driver = prisoner.bench.runtime
    group = driver._cgroup(prisoner.instance.machine_id)
    status = {pid: Path(f"/proc/{pid}/status").read_text() for pid in group.pids()}
    assert status
    for pid, text in status.items():
        fields = dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)
        ids = {*fields["Uid"].split(), *fields["Gid"].split()}
        assert min(map(int, ids)) >= 0x1000_0000, f"process {pid} is somebody on the host: {ids}"
        assert fields["Seccomp"].strip() == "2"
        own, theirs = Path("/proc/self/ns/user").readlink(), Path(f"/proc/{pid}/ns/user").readlink()
        assert theirs != own, f"process {pid} has the host's user namespace: {text}"


async def test_no_process_inside_has_a_right_that_root_there_could_borrow(prisoner: Prisoner) -> None:
    """Root traces any process of its machine, and so acts with that one's capabilities."""
    said = await prisoner.sh("cat /proc/[0-9]*/status | grep -E 'CapPrm|CapEff|CapBnd'")
    held = {int(line.split()[1], 16) for line in said.splitlines()}
    allowed = 1 << 21 if prisoner.runtime == "gvisor" else 0  # admin in runsc's own kernel, which root has in any case
    assert held and not any(each & (1 << 21 | 1 << 12 | 1 << 39) & ~allowed for each in held)


async def test_programs_with_a_set_user_id_bit_gain_nothing_outside(prisoner: Prisoner) -> None:
    program = f"--library-path {GUEST_MOUNT}/lib {GUEST_MOUNT}/bin/python3 -I -S -B"
    said = await prisoner.sh(f"""
        cp {GUEST_MOUNT}/lib/{loader().name} /tmp/ld; chmod 4755 /tmp/ld
        su user -c '/tmp/ld {program} -c "import os; print(os.getuid(), os.geteuid())"'; grep CapBnd /proc/self/status""")
    # This gVisor ignores the bit, so what may become root there is root from the start.
    assert said.startswith("1000 0\n" if prisoner.runtime == "container" else "1000 1000\n")
    held = int(said.rpartition("CapBnd:")[2], 16)
    allowed = {21} if prisoner.runtime == "gvisor" else set()  # admin, which is asked for in runsc's own kernel alone
    for forbidden in {
        12,
        16,
        17,
        21,
        22,
        25,
        27,
        39,
    } - allowed:  # net_admin, module, rawio, admin, boot, time, mknod, bpf
        assert not held & 1 << forbidden


def _numbers() -> dict[str, int]:
    """Numbers of system calls, from the C library's own table."""
    names = """bpf perf_event_open io_uring_setup userfaultfd open_by_handle_at kexec_load init_module finit_module delete_module
        swapon acct reboot fanotify_init open_tree fsopen mount_setattr settimeofday quotactl setns pivot_root add_key request_key iopl"""
    x86 = (
        321,
        298,
        425,
        323,
        304,
        246,
        175,
        313,
        176,
        167,
        163,
        169,
        300,
        428,
        430,
        442,
        164,
        179,
        308,
        155,
        248,
        249,
        172,
    )
    arm = (280, 241, 425, 282, 265, 104, 105, 273, 106, 224, 89, 142, 262, 428, 430, 442, 170, 60, 268, 41, 217, 218)
    return dict(zip(names.split(), arm if ARM else x86, strict=False))
