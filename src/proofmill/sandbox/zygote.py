"""Fork a child for each program, inside the jail. jails.py starts this file as `python -c SOURCE CONFIG`.

It is self-contained, because none of proofmill's modules can be imported inside. This process never reads a request or a
reply. A child locks itself in, reads the one request that it runs, and writes its reply into a pipe that the host reads.
So no program sees the memory or the results of another. This process reports only how each child ended. Anything that
a program writes into its reply pipe counts as its own value only. Tame programs (plain.py) run in one child,
sequentially.
"""

import builtins
import contextlib
import ctypes
import gc
import importlib
import importlib.machinery
import io
import itertools
import json
import mmap
import os
import random
import resource
import select
import signal
import struct
import sys
import threading
import time
import types

CONFIG = json.loads(sys.argv[1])
REQUESTS, REPLIES, REPORTS = CONFIG["requests"], CONFIG["replies"], CONFIG["reports"]
HEAD = struct.Struct("<III")  # head of a request: bytes of the program, the call, the input
# Report of a program: wait status, microseconds of CPU time. Third, in a shared jail, the bytes of the reply that
# follows; else whether this jail ends.
ENDED = struct.Struct("<iQI")
TEMPORARY = "/tmp"
LIBC = ctypes.CDLL(None, use_errno=True)
LITERALS = types.ModuleType("literals")
exec(CONFIG["literals"], LITERALS.__dict__)
_type = type  # a program can rebind names of `builtins`

# ---------------------------------------------------------------------------------------------------------- locking in

PR_SET_PDEATHSIG, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 1, 22, 38
LANDLOCK_CREATE, LANDLOCK_ADD, LANDLOCK_RESTRICT = 444, 445, 446
READ_FILE, READ_DIR = 1 << 2, 1 << 3


def check(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def landlock(paths, between):
    """Allow opening files below these paths only, for reading; a path with False can only be listed.

    Calls `between` after opening the paths, before the rules take effect.
    """
    abi = check(LIBC.syscall(LANDLOCK_CREATE, None, 0, 1))
    rights = {1: 13, 2: 14, 3: 15, 4: 15}.get(abi, 16)
    rules = struct.pack("<QQQ", (1 << rights) - 1, 3, 3)[: 8 if abi < 4 else 16 if abi < 6 else 24]
    ruleset = check(LIBC.syscall(LANDLOCK_CREATE, rules, ctypes.c_size_t(len(rules)), 0))
    for path, files in paths.items():
        place = os.open(path, os.O_PATH)
        allowed = READ_FILE * files | READ_DIR * os.path.isdir(path)
        check(LIBC.syscall(LANDLOCK_ADD, ruleset, 1, struct.pack("<Qi", allowed, place), 0))
        os.close(place)
    between()
    check(LIBC.syscall(LANDLOCK_RESTRICT, ruleset, 0))
    os.close(ruleset)


CLONE_NEWUSER, MS_NOSUID_NODEV = 1 << 28, 2 | 4


def enter(root):
    """Make Python's library the root of all paths, in a new user namespace if chroot is not permitted otherwise."""
    for name in CONFIG["linked"]:  # their shared libraries are outside of the new root
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    if LIBC.chroot(os.fsencode(root)) < 0:
        check(LIBC.unshare(CLONE_NEWUSER))
        check(LIBC.chroot(os.fsencode(root)))
    os.chdir("/")
    sys.path[:] = [path.removeprefix(root) or "/" for path in sys.path if path.startswith(root)]
    for module in list(sys.modules.values()):
        if paths := getattr(module, "__path__", None):
            module.__path__ = [path.removeprefix(root) for path in paths]


def mount_temporary():
    """Mount the only folder in which programs can write. A program that changes it is the last one of this jail."""
    options = f"size={CONFIG['temporary']},nr_inodes=1000,mode=0777".encode()
    check(LIBC.mount(b"tmpfs", TEMPORARY.encode(), b"tmpfs", MS_NOSUID_NODEV, options))
    os.utime(TEMPORARY, (0, 0))


def has_changed():
    """Return whether a program created or removed anything in the folder for temporary files."""
    return bool(CONFIG["temporary"]) and os.stat(TEMPORARY).st_mtime_ns != 0


def drop_capabilities():
    """Drop all capabilities of root. They are not needed, and dropping them never fails."""
    LIBC.capset(struct.pack("<Ii", 0x20080522, 0), bytes(24))


class Filter(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_char_p)]


def build_filter(code):
    """Return a filter of system calls in the kernel's format. Children inherit the filters of this process."""
    code = bytes.fromhex(code)
    return ctypes.byref(Filter(len(code) // 8, code))


OUTER, INNER = map(build_filter, CONFIG["filters"])  # for this process; in addition, for its children


def address_space():
    """Return the bytes of this process's mappings, by bisecting the limit at which another page is refused."""
    low, high = 0, 1 << 46
    while high - low > 1 << 20:
        middle = (low + high) // 2
        resource.setrlimit(resource.RLIMIT_AS, (middle, -1))
        try:
            mmap.mmap(-1, 4096).close()
            high = middle
        except (OSError, MemoryError):
            low = middle
    resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
    return high


def limits():
    """Return the resource limits of a child: pairs of a resource, and its soft and hard limit."""
    seconds = int(CONFIG["seconds"]) + 1
    return [
        *([] if CONFIG["shared"] else [(resource.RLIMIT_CPU, (seconds, seconds))]),
        (resource.RLIMIT_AS, (address_space() + CONFIG["bytes"],) * 2),
        (resource.RLIMIT_FSIZE, (CONFIG["output"],) * 2),
        (resource.RLIMIT_NOFILE, (32, 32)),
        (resource.RLIMIT_CORE, (0, 0)),
    ]


def lock(all_limits):
    """Apply the limits and the inner filter to this process. They cannot be lifted again."""
    check(LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0))
    signal.setitimer(signal.ITIMER_PROF, CONFIG["seconds"])
    for limit, most in all_limits:
        resource.setrlimit(limit, most)
    check(LIBC.prctl(PR_SET_SECCOMP, 2, INNER, 0, 0))


# ------------------------------------------------------------------------------------------------------------- a child


def describe(error):
    """Return an exception's line in the program, class and text. Its `__str__` may fail: then there is no text."""
    line, trace = 0, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "<program>":
            line = trace.tb_lineno
        trace = trace.tb_next
    text = _type(error).__name__
    with contextlib.suppress(BaseException):
        text = f"{text}: {error}".removesuffix(": ")
    return f"{line} {text[:2000]}"


def value_of(program, call):
    """Run a program. Return the reply as bytes: one letter for the status, then the value, output or error."""
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    try:
        try:
            exec(compile(program, "<program>", "exec", dont_inherit=True), module.__dict__)
            if call:
                value = eval(compile(call.strip(), "<call>", "eval", dont_inherit=True), module.__dict__)
            else:
                vars(threading)["_shutdown"]()  # wait for its threads, as Python does before it exits
        except SystemExit as ended:
            if call or ended.code not in (None, 0):
                raise
        return read_output() if not call else b"v" + encode(LITERALS.literal(value, CONFIG["longest"])[0])
    except LITERALS.NoPlainData as error:
        return b"r" + encode(str(error))
    except MemoryError as error:
        return b"m" + encode(describe(error))
    except OSError as error:
        return b"o" if error.errno == 27 else b"e" + encode(describe(error))  # EFBIG: the output limit was reached
    except BaseException as error:
        return b"e" + encode(describe(error))


def encode(text):
    return text.encode("utf-8", "surrogatepass")


def read_output():
    sys.stdout.flush()
    return b"p" + os.pread(1, os.lseek(1, 0, os.SEEK_END), 0)


def read(length):
    parts = []
    while length and (part := os.read(REQUESTS, min(length, 1 << 20))):
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


def read_request():
    """Read the next program, call and input. Exits at the end of the requests."""
    head = read(HEAD.size)
    if len(head) < HEAD.size:
        os._exit(0)
    return [read(length).decode("utf-8", "surrogatepass") for length in HEAD.unpack(head)]


def send(stream, data):
    while data:
        data = data[os.write(stream, data) :]


def run_child(reply, all_limits):
    """Lock in, read a request, run it, reply. Does not return."""
    os.close(REPORTS)
    for other in REPLIES:
        if other != reply:
            os.close(other)
    lock(all_limits)
    program, call, stdin = read_request()
    os.close(REQUESTS)
    send(0, encode(stdin))
    os.lseek(0, 0, os.SEEK_SET)
    if not CONFIG["fresh"]:  # a fresh child keeps its random seed
        random.seed(0)
    try:
        data = value_of(program, call)
    except BaseException as error:  # raised by this code, for lack of memory or stack
        data = b"m0 " + _type(error).__name__.encode() + b" after the program"
    send(reply, data)
    os._exit(0)


# ----------------------------------------------------------------------------------------- a child for tame programs

MANY = 200  # programs of one process: its memory fragments
ANOTHER = 3  # the exit code that requests another child


def run_shared(all_limits):
    """Lock in, and run tame programs sequentially, each in a module of its own. Does not return.

    A program's objects are freed before its reply is sent, so the time counts as the program's.
    """
    lock(all_limits)
    for _ in range(MANY):
        program, call, _ = read_request()
        begun = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, CONFIG["seconds"])
        data = value_of(program, call)
        sys.modules.pop("__main__").__dict__.clear()
        signal.setitimer(signal.ITIMER_PROF, 0)
        send(REPORTS, ENDED.pack(0, int(1e6 * (time.process_time() - begun)), len(data)) + data)
        if data[:1] == b"m":
            break
    os._exit(ANOTHER)


def main_shared(all_limits):
    """Fork children for tame programs, each for many, until the requests end."""
    while True:
        reset_streams()
        process = os.fork()
        if not process:
            try:
                run_shared(all_limits)
            finally:
                os._exit(70)
        _, ended, usage = os.wait4(process, 0)
        if not ended:
            return
        if os.waitstatus_to_exitcode(ended) != ANOTHER:
            os.write(REPORTS, ENDED.pack(ended, int((usage.ru_utime + usage.ru_stime) * 1e6), 0))


# ---------------------------------------------------------------------------------------------------------- the parent


def reset_streams():
    """Replace a child's standard input, output and error by files in memory."""
    for stream in (0, 1, 2):
        memory = os.memfd_create("")
        os.dup2(memory, stream)
        os.close(memory)


def main_alone(all_limits):
    """Fork a child for each program, until the requests end."""
    requests = select.poll()
    requests.register(REQUESTS, select.POLLIN)
    for reply in itertools.cycle(REPLIES):
        reset_streams()
        process = os.fork()
        if not process:
            try:
                run_child(reply, all_limits)
            finally:
                os._exit(70)
        _, ended, usage = os.wait4(process, 0)
        last = has_changed()
        os.write(REPORTS, ENDED.pack(ended, int((usage.ru_utime + usage.ru_stime) * 1e6), last))
        if last or requests.poll(0) == [(REQUESTS, select.POLLHUP)]:
            return


STACK = 1 << 27  # maximal bytes of a thread's stack: they count as memory, and programs request far more than they use


def stack_size(size=0, of_python=threading.stack_size):
    return of_python(min(size, STACK))


# Runs once, so that Python's one-time initialization of compiling and running a program is done before the fork.
WARMING = """
import re
class A:
    def __init__(self, x):
        self.x = x
def f(values, *rest, **named):
    found = {}
    for n, value in enumerate(sorted(values)):
        try:
            found[f'{value}'] = [value / 2 + 0.5 if value > 1 else -1, A(value).x if value in {7} else None]
        except (TypeError, ZeroDivisionError) as error:
            raise ValueError from error
    while n > 5 and not (lambda x: x)(n):
        n -= 1
    return {key: [x for x in value] for key, value in found.items()}
"""


class Packages:
    """A finder of the allowed packages, which are not on sys.path."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        folder = CONFIG["packages"].get(name)
        return importlib.machinery.PathFinder.find_spec(name, [folder]) if folder else None


def main():
    sys.meta_path.append(Packages)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for name in CONFIG["modules"]:
        try:
            importlib.import_module(name)
        except ImportError:
            continue
    time.sleep = lambda seconds: None
    threading.stack_size = stack_size
    for name in ("exit", "quit"):  # as the module `site` defines them
        setattr(builtins, name, sys.exit)
    sys.argv[1:] = []
    for stream in (sys.stdin, sys.stdout):
        assert isinstance(stream, io.TextIOWrapper)
        stream.reconfigure(encoding="utf-8", errors="strict")
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # else asyncio sets another handler, which the filter denies
    check(LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    if CONFIG["temporary"]:
        mount_temporary()
    if CONFIG["readable"]:
        landlock(CONFIG["readable"], lambda: enter(CONFIG["root"]))
    drop_capabilities()
    all_limits = limits()
    check(LIBC.prctl(PR_SET_SECCOMP, 2, OUTER, 0, 0))
    assert value_of(WARMING, "f([2, 3])") == b"v{'2': [1.5, None], '3': [2.0, None]}"
    gc.collect()
    gc.freeze()
    os.write(REPORTS, b"ready")
    return main_shared(all_limits) if CONFIG["shared"] else main_alone(all_limits)


main()
