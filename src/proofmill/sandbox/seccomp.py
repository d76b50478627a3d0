"""Filter the system calls that a jailed program may make (seccomp, in classic BPF).

A computation's calls are allowed: memory, clock, threads and waiting for them, and reading the files visible in the jail.
A jail with a folder for temporary files also allows creating them. All other calls fail with "Operation not permitted":
processes, signals, connections, changing limits. Yielding the CPU does nothing, so a loop of it uses up its CPU time.
"""

import errno
import struct

ARCHITECTURE = 0xC000003E  # AUDIT_ARCH_X86_64
ALLOWS, ENDS = 0x7FFF0000, 0x80000000  # SECCOMP_RET_ALLOW, SECCOMP_RET_KILL_PROCESS
DENIES, LACKS, SKIPS = (0x00050000 | number for number in (errno.EPERM, errno.ENOSYS, 0))  # SECCOMP_RET_ERRNO
# Numbers of x86-64, from the kernel's arch/x86/entry/syscalls/syscall_64.tbl.
ALLOWED = {
    "read": 0, "write": 1, "close": 3, "stat": 4, "fstat": 5, "lstat": 6, "poll": 7, "lseek": 8, "mmap": 9, "mprotect": 10,
    "munmap": 11, "brk": 12, "rt_sigprocmask": 14, "rt_sigreturn": 15, "pread64": 17, "readv": 19, "writev": 20,
    "access": 21, "mremap": 25, "madvise": 28, "dup": 32, "getpid": 39, "recvfrom": 45, "exit": 60, "uname": 63,
    "getcwd": 79, "readlink": 89, "getrlimit": 97, "getrusage": 98, "sysinfo": 99, "times": 100, "getuid": 102,
    "getgid": 104, "geteuid": 107, "getegid": 108, "sigaltstack": 131, "arch_prctl": 158, "gettid": 186,
    "sched_getaffinity": 204, "getdents64": 217, "set_tid_address": 218, "restart_syscall": 219, "clock_gettime": 228,
    "clock_getres": 229, "exit_group": 231, "epoll_wait": 232, "epoll_ctl": 233, "newfstatat": 262, "readlinkat": 267, "faccessat": 269,
    "set_robust_list": 273, "epoll_pwait": 281, "epoll_create1": 291, "getrandom": 318, "membarrier": 324, "statx": 332, "rseq": 334, "faccessat2": 439,
}  # fmt: skip
# Allowed in a jail with a folder for temporary files, which is the only folder where files can be created.
FILES = {
    "pwrite64": 18, "sendfile": 40, "fsync": 74, "ftruncate": 77, "rename": 82, "mkdir": 83, "rmdir": 84, "unlink": 87,
    "mkdirat": 258, "unlinkat": 263, "renameat": 264, "renameat2": 316,
}  # fmt: skip
# Allowed if (the low half of an argument & mask) is one of the values.
SOME: dict[tuple[str, int], tuple[int, int, tuple[int, ...]]] = {  # name, number: argument, mask, values
    ("ioctl", 16): (1, 0xFFFFFFFF, (0x5401, 0x5421, 0x5450, 0x5451)),  # TCGETS, FIONBIO, FIONCLEX, FIOCLEX
    ("socketpair", 53): (0, 0xFFFFFFFF, (1,)),  # AF_UNIX: asyncio wakes itself by it
    ("fcntl", 72): (1, 0xFFFFFFFF, (0, 1, 2, 3, 1030)),  # F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_DUPFD_CLOEXEC
    ("futex", 202): (1, 0x7F, (0, 1, 3, 4, 9, 10)),  # waiting and waking, of threads that share memory
}
OPENING = {("openat", 257): (2, 0o20001103, (0,))}  # neither O_WRONLY, O_RDWR, O_CREAT, O_TRUNC nor O_TMPFILE
# Allowed with the flags by which the C library starts a thread, which shares everything with its process.
THREADS = {("clone", 56): (0, 0xFFFFFFFF, (0x3D0F00,))}
# Allowed if the argument, a pointer, is null: data is sent only to the other end of a pair; limits are read, not set.
NONE = {("sendto", 44): 4, ("prlimit64", 302): 2}
NOTHING = {"sched_yield": 24}
NOT_FOUND = {"clone3": 435}  # its flags are in memory, which a filter cannot read; the C library then tries `clone`


# Calls of the programs' parent, which creates, locks in and awaits a child. Denied to children.
PARENTS = {
    "dup2": 33, "setitimer": 38, "fork": 57, "wait4": 61, "kill": 62, "prctl": 157, "dup3": 292, "pipe2": 293,
    "memfd_create": 319,
}  # fmt: skip


def parent_filter() -> bytes:
    """Return the filter of a jail, for PR_SET_SECCOMP. It holds for all processes of the jail."""
    code = [_load(4), _if(ARCHITECTURE, 1, 0), _return(ENDS), _load(0)]
    checked = [number for _, number in (*NONE, *OPENING, *THREADS)]  # by the filter of the children
    for number in sorted({*ALLOWED.values(), *FILES.values(), *PARENTS.values(), *checked}):
        code += [_if(number, 0, 1), _return(ALLOWS)]
    code += _checks(SOME)
    for names, action in ((NOT_FOUND, LACKS), (NOTHING, SKIPS)):
        for number in names.values():
            code += [_if(number, 0, 1), _return(action)]
    return b"".join([*code, _return(DENIES)])


def child_filter(shared: bool = False, files: bool = False) -> bytes:
    """Return the filter that a child adds: it denies the parent's calls, and setting limits.

    `shared` is for tame programs, which start no threads and whose process sets a timer for each. `files` allows creating
    files, in a jail with a folder for temporary files.
    """
    denied = [number for name, number in PARENTS.items() if not (shared and name == "setitimer")]
    denied += [] if files else FILES.values()
    code = [_load(0)]
    for number in sorted([*denied, *([56] if shared else [])]):
        code += [_if(number, 0, 1), _return(DENIES)]
    code += _checks({**({} if shared else THREADS), **({} if files else OPENING)})
    for (_, number), argument in NONE.items():
        checks = [_load(16 + 8 * argument), _if(0, 0, 3), _load(20 + 8 * argument), _if(0, 0, 1)]
        code += [_if(number, 0, len(checks) + 2), *checks, _return(ALLOWS), _return(DENIES)]
    return b"".join([*code, _return(ALLOWS)])


def _checks(some: dict[tuple[str, int], tuple[int, int, tuple[int, ...]]]) -> list[bytes]:
    code = []
    for (_, number), (argument, mask, values) in some.items():
        checks = [_load(16 + 8 * argument), _and(mask)]
        checks += [_if(value, len(values) - n, 0) for n, value in enumerate(values)]
        code += [_if(number, 0, len(checks) + 2), *checks, _return(DENIES), _return(ALLOWS)]
    return code


def _instruction(code: int, yes: int, no: int, value: int) -> bytes:
    return struct.pack("<HBBI", code, yes, no, value)


def _load(offset: int) -> bytes:
    return _instruction(0x20, 0, 0, offset)


def _and(mask: int) -> bytes:
    return _instruction(0x54, 0, 0, mask)


def _if(value: int, yes: int, no: int) -> bytes:
    """Skip `yes` instructions if the loaded word equals the value, else `no` instructions."""
    return _instruction(0x15, yes, no, value)


def _return(action: int) -> bytes:
    return _instruction(0x06, 0, 0, action)
