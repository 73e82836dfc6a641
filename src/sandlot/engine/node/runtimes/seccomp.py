"""The system call filter of `container` machines: what is not listed here does not exist for the guest."""

from __future__ import annotations

import platform
from typing import Any

EPERM, ENOSYS = 1, 38
ARCHITECTURES = {"x86_64": "SCMP_ARCH_X86_64", "aarch64": "SCMP_ARCH_AARCH64"}

FILES = """
access chdir chmod chown chroot close close_range copy_file_range creat dup dup2 dup3 faccessat faccessat2 fadvise64
fallocate fchdir fchmod fchmodat fchmodat2 fchown fchownat fcntl fdatasync fgetxattr flistxattr flock fremovexattr fsetxattr
fstat fstatfs fsync ftruncate futimesat getcwd getdents getdents64 getxattr getxattrat inotify_add_watch inotify_init
inotify_init1 inotify_rm_watch ioctl lchown lgetxattr link linkat listxattr listxattrat llistxattr lremovexattr lseek
lsetxattr lstat memfd_create mkdir mkdirat mknod mknodat name_to_handle_at newfstatat open openat openat2 pipe pipe2 pread64
preadv preadv2 pwrite64 pwritev pwritev2 read readahead readlink readlinkat readv removexattr removexattrat rename renameat
renameat2 rmdir sendfile setxattr setxattrat splice stat statfs statx symlink symlinkat sync sync_file_range syncfs tee
truncate umask unlink unlinkat utime utimensat utimes vmsplice write writev cachestat statmount listmount
"""
MEMORY = """
brk get_mempolicy madvise map_shadow_stack mbind membarrier memfd_secret mincore mlock mlock2 mlockall mmap mprotect mremap
mseal msync munlock munlockall munmap pkey_alloc pkey_free pkey_mprotect process_madvise process_mrelease remap_file_pages
set_mempolicy set_mempolicy_home_node
"""
PROCESSES = """
arch_prctl capget capset execve execveat exit exit_group fork get_robust_list get_thread_area getcpu getegid geteuid getgid
getgroups getitimer getpgid getpgrp getpid getppid getpriority getresgid getresuid getrlimit getrusage getsid gettid getuid
ioprio_get ioprio_set kcmp kill landlock_add_rule landlock_create_ruleset landlock_restrict_self modify_ldt pause pidfd_getfd
pidfd_open pidfd_send_signal prctl prlimit64 process_vm_readv process_vm_writev ptrace restart_syscall rseq
rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait rt_tgsigqueueinfo
sched_get_priority_max sched_get_priority_min sched_getaffinity sched_getattr sched_getparam sched_getscheduler
sched_rr_get_interval sched_setaffinity sched_setattr sched_setparam sched_setscheduler sched_yield seccomp set_robust_list
set_thread_area set_tid_address setfsgid setfsuid setgid setgroups setitimer setpgid setpriority setregid setresgid
setresuid setreuid setrlimit setsid setuid sigaltstack tgkill time times tkill uname vfork wait4 waitid sysinfo
"""
WAITING = """
alarm clock_getres clock_gettime clock_nanosleep epoll_create epoll_create1 epoll_ctl epoll_ctl_old epoll_pwait epoll_pwait2
epoll_wait epoll_wait_old eventfd eventfd2 futex futex_requeue futex_wait futex_waitv futex_wake gettimeofday io_cancel
io_destroy io_getevents io_pgetevents io_setup io_submit nanosleep poll ppoll pselect6 select signalfd signalfd4 timer_create
timer_delete timer_getoverrun timer_gettime timer_settime timerfd_create timerfd_gettime timerfd_settime
"""
TALKING = """
accept accept4 bind connect getpeername getrandom getsockname getsockopt listen mq_getsetattr mq_notify mq_open
mq_timedreceive mq_timedsend mq_unlink msgctl msgget msgrcv msgsnd recvfrom recvmmsg recvmsg semctl semget semop semtimedop
sendmmsg sendmsg sendto setsockopt shmat shmctl shmdt shmget shutdown socketpair
"""
# Known and refused: these answer "not permitted", so that programs say something a person understands. They reach
# kernel code that a sandbox has no need for: mounts and new namespaces, keys, BPF, tracing, io_uring, modules, clocks.
REFUSED = """
acct add_key adjtimex bpf clock_adjtime clock_settime delete_module finit_module fanotify_init fsconfig fsmount fsopen fspick
init_module io_uring_enter io_uring_register io_uring_setup ioperm iopl kexec_file_load kexec_load keyctl lookup_dcookie
migrate_pages mount mount_setattr move_mount move_pages nfsservctl open_by_handle_at open_tree perf_event_open pivot_root
quotactl quotactl_fd reboot request_key setdomainname sethostname setns settimeofday stime swapoff swapon syslog umount2
unshare userfaultfd ustat vhangup
"""
FAMILIES = {"unix": 1, "inet": 2, "inet6": 10, "netlink": 16, "packet": 17}  # not: alg, vsock, bluetooth, can, ...
NEW_NAMESPACES = 0x7E02_0000  # CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
PERSONALITIES = (0x0, 0x8, 0x20000, 0x20008, 0xFFFFFFFF, 0x40000)  # the last: no address randomisation, for debuggers


def profile() -> dict[str, Any]:
    """The filter in OCI terms. Only the native architecture: 32-bit entry points would double what the guest can reach."""
    return {
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": ENOSYS,
        "architectures": [ARCHITECTURES[platform.machine()]],
        "syscalls": [
            _allow(*f"{FILES} {MEMORY} {PROCESSES} {WAITING} {TALKING}".split()),
            {"names": REFUSED.split(), "action": "SCMP_ACT_ERRNO", "errnoRet": EPERM},
            # A thread or a process is fine, a namespace is not. clone3 hides its flags in memory: glibc falls back.
            _allow("clone", arg=(0, NEW_NAMESPACES, "SCMP_CMP_MASKED_EQ", 0)),
            *(_allow("socket", arg=(0, family, "SCMP_CMP_EQ", 0)) for family in FAMILIES.values()),
            *(_allow("personality", arg=(0, value, "SCMP_CMP_EQ", 0)) for value in PERSONALITIES),
        ],
    }


def _allow(*names: str, arg: tuple[int, int, str, int] | None = None) -> dict[str, Any]:
    rule: dict[str, Any] = {"names": list(names), "action": "SCMP_ACT_ALLOW"}
    if arg is not None:
        index, value, op, value_two = arg
        rule["args"] = [{"index": index, "value": value, "valueTwo": value_two, "op": op}]
    return rule
