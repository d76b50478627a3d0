"""The system calls that a jailed program may make, as a filter for the kernel (seccomp, in classic BPF).

What a computation needs is allowed: its memory, its clock, reading files that the jail lets it see. All else fails with
"Operation not permitted": processes, threads, signals, sockets, writing, waiting, changing limits. There is but one
thread, so that to wait for a lock is to wait for ever; it fails, too.
"""

import errno
import struct

ARCHITECTURE = 0xC000003E  # AUDIT_ARCH_X86_64
ALLOWS, ENDS = 0x7FFF0000, 0x80000000  # SECCOMP_RET_ALLOW, SECCOMP_RET_KILL_PROCESS
DENIES, LACKS = (0x00050000 | number for number in (errno.EPERM, errno.ENOSYS))  # SECCOMP_RET_ERRNO
# Numbers of x86-64, from the kernel's arch/x86/entry/syscalls/syscall_64.tbl.
ALLOWED = {
    "read": 0, "write": 1, "close": 3, "stat": 4, "fstat": 5, "lstat": 6, "lseek": 8, "mmap": 9, "mprotect": 10,
    "munmap": 11, "brk": 12, "rt_sigprocmask": 14, "rt_sigreturn": 15, "pread64": 17, "readv": 19, "writev": 20,
    "access": 21, "sched_yield": 24, "mremap": 25, "madvise": 28, "dup": 32, "getpid": 39, "exit": 60, "uname": 63,
    "getcwd": 79, "readlink": 89, "getrlimit": 97, "getrusage": 98, "sysinfo": 99, "times": 100, "getuid": 102,
    "getgid": 104, "geteuid": 107, "getegid": 108, "sigaltstack": 131, "arch_prctl": 158, "gettid": 186,
    "sched_getaffinity": 204, "getdents64": 217, "set_tid_address": 218, "restart_syscall": 219, "clock_gettime": 228,
    "clock_getres": 229, "exit_group": 231, "newfstatat": 262, "readlinkat": 267, "faccessat": 269,
    "set_robust_list": 273, "getrandom": 318, "membarrier": 324, "statx": 332, "rseq": 334, "faccessat2": 439,
}  # fmt: skip
# Allowed where (the low half of an argument & mask) is one of the values.
SOME: dict[tuple[str, int], tuple[int, int, tuple[int, ...]]] = {  # name, number: argument, mask, values
    ("ioctl", 16): (1, 0xFFFFFFFF, (0x5401, 0x5450, 0x5451)),  # TCGETS, FIONCLEX, FIOCLEX
    ("fcntl", 72): (1, 0xFFFFFFFF, (0, 1, 2, 3, 1030)),  # F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_DUPFD_CLOEXEC
    ("futex", 202): (1, 0x7F, (1,)),  # FUTEX_WAKE
    ("openat", 257): (2, 0o20001103, (0,)),  # neither O_WRONLY, O_RDWR, O_CREAT, O_TRUNC nor O_TMPFILE
}
NONE = {("prlimit64", 302): 2}  # allowed where the argument, a pointer, is null: limits are read and not set
NOT_FOUND = {"clone3": 435}  # the C library then tries `clone`


# What the parent of the programs does, to make a child, lock it in and see it end; no child may.
PARENTS = {
    "dup2": 33, "setitimer": 38, "clone": 56, "fork": 57, "wait4": 61, "kill": 62, "prctl": 157, "dup3": 292, "pipe2": 293,
    "memfd_create": 319,
}  # fmt: skip


def parents() -> bytes:
    """The filter of a jail, for PR_SET_SECCOMP: whatever is in it has no other calls than these."""
    code = [_load(4), _if(ARCHITECTURE, 1, 0), _return(ENDS), _load(0)]
    for number in sorted({*ALLOWED.values(), *PARENTS.values(), *(number for _, number in NONE)}):
        code += [_if(number, 0, 1), _return(ALLOWS)]
    for (_, number), (argument, mask, values) in SOME.items():
        checks = [_load(16 + 8 * argument), _and(mask)]
        checks += [_if(value, len(values) - n, 0) for n, value in enumerate(values)]
        code += [_if(number, 0, len(checks) + 2), *checks, _return(DENIES), _return(ALLOWS)]
    for number in NOT_FOUND.values():
        code += [_if(number, 0, 1), _return(LACKS)]
    return b"".join([*code, _return(DENIES)])


def childrens(shared: bool = False) -> bytes:
    """The filter that a child adds to it: it may no more do what its parent does, nor set limits.

    One that tame programs share sets the timer for each of them.
    """
    code = [_load(0)]
    for number in sorted(number for name, number in PARENTS.items() if not (shared and name == "setitimer")):
        code += [_if(number, 0, 1), _return(DENIES)]
    for (_, number), argument in NONE.items():
        checks = [_load(16 + 8 * argument), _if(0, 0, 3), _load(20 + 8 * argument), _if(0, 0, 1)]
        code += [_if(number, 0, len(checks) + 2), *checks, _return(ALLOWS), _return(DENIES)]
    return b"".join([*code, _return(ALLOWS)])


def _instruction(code: int, yes: int, no: int, value: int) -> bytes:
    return struct.pack("<HBBI", code, yes, no, value)


def _load(offset: int) -> bytes:
    return _instruction(0x20, 0, 0, offset)


def _and(mask: int) -> bytes:
    return _instruction(0x54, 0, 0, mask)


def _if(value: int, yes: int, no: int) -> bytes:
    """Skip `yes` instructions where what was loaded is the value, and `no` where not."""
    return _instruction(0x15, yes, no, value)


def _return(action: int) -> bytes:
    return _instruction(0x06, 0, 0, action)
