"""The system calls that a jailed program may make, as a filter for the kernel (seccomp, in classic BPF).

What a computation needs is allowed: its memory, its clock, reading files that the jail lets it see. All else fails with
"Operation not permitted": processes, threads, signals, sockets, writing, waiting, changing limits. There is but one
thread, so that to wait for a lock is to wait for ever; it fails, too.
"""

import errno
import struct

ARCHITECTURE = 0xC000003E  # AUDIT_ARCH_X86_64
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


def program() -> bytes:
    """The filter, for PR_SET_SECCOMP."""
    deny = _RETURN(0x00050000 | errno.EPERM)
    allow = _RETURN(0x7FFF0000)
    code = [_load(4), _if(ARCHITECTURE, 1, 0), _RETURN(0x80000000), _load(0)]  # another architecture ends the process
    for number in sorted(ALLOWED.values()):
        code += [_if(number, 0, 1), allow]
    for (_, number), (argument, mask, values) in SOME.items():
        checks = [_load(16 + 8 * argument), _and(mask)]
        for n, value in enumerate(values):
            checks.append(_if(value, len(values) - n, 0))
        code += [_if(number, 0, len(checks) + 2), *checks, deny, allow]
    for (_, number), argument in NONE.items():
        checks = [_load(16 + 8 * argument), _if(0, 0, 3), _load(20 + 8 * argument), _if(0, 0, 1), allow, deny]
        code += [_if(number, 0, len(checks)), *checks]
    for number in NOT_FOUND.values():
        code += [_if(number, 0, 1), _RETURN(0x00050000 | errno.ENOSYS)]
    return b"".join([*code, deny])


def _instruction(code: int, yes: int, no: int, value: int) -> bytes:
    return struct.pack("<HBBI", code, yes, no, value)


def _load(offset: int) -> bytes:
    return _instruction(0x20, 0, 0, offset)


def _and(mask: int) -> bytes:
    return _instruction(0x54, 0, 0, mask)


def _if(value: int, yes: int, no: int) -> bytes:
    """Skip `yes` instructions where what was loaded is the value, and `no` where not."""
    return _instruction(0x15, yes, no, value)


def _RETURN(action: int) -> bytes:
    return _instruction(0x06, 0, 0, action)
