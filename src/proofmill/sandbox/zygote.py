"""The process inside the jail, which forks a child for each program. jails.py starts it as `python -c SOURCE CONFIG`.

It stands alone, since nothing of ours can be imported inside. It never reads a request or a reply: a child locks itself
in, reads the one request that it runs, and writes its reply into a pipe that the host reads. So no memory of one program,
and nothing that came of it, is there for the next. This process says only how each child ended. What a program writes
into the pipe of its reply can be taken for its own value only. Tame programs (plain.py) run in one child, one after
another.
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
HEAD = struct.Struct("<III")  # of a request: bytes of the program, the call, the input
# Of a report: wait status, microseconds of processor time; bytes of a tame program's reply, which follows, or of another
# program whether this jail ends.
ENDED = struct.Struct("<iQI")
TEMPORARY = "/tmp"
LIBC = ctypes.CDLL(None, use_errno=True)
LITERALS = types.ModuleType("literals")
exec(CONFIG["literals"], LITERALS.__dict__)
_type = type  # a program may rebind what it finds in `builtins`

# ---------------------------------------------------------------------------------------------------------- locking in

PR_SET_PDEATHSIG, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 1, 22, 38
LANDLOCK_CREATE, LANDLOCK_ADD, LANDLOCK_RESTRICT = 444, 445, 446
READ_FILE, READ_DIR = 1 << 2, 1 << 3


def checked(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def landlock(paths, between):
    """Let only files below these paths be opened, and only to be read; where a path says False only names are.

    `between` is called once the paths are known, before the rules hold.
    """
    abi = checked(LIBC.syscall(LANDLOCK_CREATE, None, 0, 1))
    rights = {1: 13, 2: 14, 3: 15, 4: 15}.get(abi, 16)
    rules = struct.pack("<QQQ", (1 << rights) - 1, 3, 3)[: 8 if abi < 4 else 16 if abi < 6 else 24]
    ruleset = checked(LIBC.syscall(LANDLOCK_CREATE, rules, ctypes.c_size_t(len(rules)), 0))
    for path, files in paths.items():
        place = os.open(path, os.O_PATH)
        allowed = READ_FILE * files | READ_DIR * os.path.isdir(path)
        checked(LIBC.syscall(LANDLOCK_ADD, ruleset, 1, struct.pack("<Qi", allowed, place), 0))
        os.close(place)
    between()
    checked(LIBC.syscall(LANDLOCK_RESTRICT, ruleset, 0))
    os.close(ruleset)


CLONE_NEWUSER, MS_NOSUID_NODEV = 1 << 28, 2 | 4


def enter(root):
    """Make Python's library the root of all paths. Where that is not allowed, a user namespace of its own allows it."""
    for name in CONFIG["linked"]:  # their shared libraries are not below the library
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    if LIBC.chroot(os.fsencode(root)) < 0:
        checked(LIBC.unshare(CLONE_NEWUSER))
        checked(LIBC.chroot(os.fsencode(root)))
    os.chdir("/")
    sys.path[:] = [path.removeprefix(root) or "/" for path in sys.path if path.startswith(root)]
    for module in list(sys.modules.values()):
        if paths := getattr(module, "__path__", None):
            module.__path__ = [path.removeprefix(root) for path in paths]


def mount_temporary():
    """Mount the only folder in which programs can write. Whoever changes it is the last program of this jail."""
    options = f"size={CONFIG['temporary']},nr_inodes=1000,mode=0777".encode()
    checked(LIBC.mount(b"tmpfs", TEMPORARY.encode(), b"tmpfs", MS_NOSUID_NODEV, options))
    os.utime(TEMPORARY, (0, 0))


def has_changed():
    """Return whether a program made or removed anything in the folder for temporary files."""
    return bool(CONFIG["temporary"]) and os.stat(TEMPORARY).st_mtime_ns != 0


def drop_capabilities():
    """Give up what else root may do; it is not needed, and this fails nowhere."""
    LIBC.capset(struct.pack("<Ii", 0x20080522, 0), bytes(24))


class Filter(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_char_p)]


def filtering(code):
    """A filter of system calls as the kernel reads it; those of this process are those of its children, too."""
    code = bytes.fromhex(code)
    return ctypes.byref(Filter(len(code) // 8, code))


OUTER, INNER = map(filtering, CONFIG["filters"])  # of this process; and, besides, of its children


def address_space():
    """Bytes of this process's mappings, found by lowering the limit until no page more is given."""
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
    whole = int(CONFIG["seconds"]) + 1
    return [
        *([] if CONFIG["shared"] else [(resource.RLIMIT_CPU, (whole, whole))]),
        (resource.RLIMIT_AS, (address_space() + CONFIG["bytes"],) * 2),
        (resource.RLIMIT_FSIZE, (CONFIG["output"],) * 2),
        (resource.RLIMIT_NOFILE, (32, 32)),
        (resource.RLIMIT_CORE, (0, 0)),
    ]


def lock(all_limits):
    """Nothing that is given up here can be had back."""
    checked(LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0))
    signal.setitimer(signal.ITIMER_PROF, CONFIG["seconds"])
    for limit, most in all_limits:
        resource.setrlimit(limit, most)
    checked(LIBC.prctl(PR_SET_SECCOMP, 2, INNER, 0, 0))


# ------------------------------------------------------------------------------------------------------------- a child


def told(error):
    """An exception's class, text and line, on the first line of the text where it is; what it says of itself may fail."""
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
    """Run a program. Return what this process says of it: the status, and what goes with it as bytes."""
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    try:
        try:
            exec(compile(program, "<program>", "exec", dont_inherit=True), module.__dict__)
            if call:
                value = eval(compile(call.strip(), "<call>", "eval", dont_inherit=True), module.__dict__)
            else:
                vars(threading)["_shutdown"]()  # wait for its threads, as Python does before it ends
        except SystemExit as ended:
            if call or ended.code not in (None, 0):
                raise
        return printed() if not call else b"v" + encoded(LITERALS.literal(value, CONFIG["longest"])[0])
    except LITERALS.NoPlainData as error:
        return b"r" + encoded(str(error))
    except MemoryError as error:
        return b"m" + encoded(told(error))
    except OSError as error:
        return b"o" if error.errno == 27 else b"e" + encoded(told(error))  # EFBIG: as much was printed as is allowed
    except BaseException as error:
        return b"e" + encoded(told(error))


def encoded(text):
    return text.encode("utf-8", "surrogatepass")


def printed():
    sys.stdout.flush()
    return b"p" + os.pread(1, os.lseek(1, 0, os.SEEK_END), 0)


def read(length):
    parts = []
    while length and (part := os.read(REQUESTS, min(length, 1 << 20))):
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


def request():
    """Read the next program, call and input. Where nothing more is asked this process ends."""
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
    program, call, given = request()
    os.close(REQUESTS)
    send(0, encoded(given))
    os.lseek(0, 0, os.SEEK_SET)
    if not CONFIG["fresh"]:  # else each child has a seed of its own
        random.seed(0)
    try:
        data = value_of(program, call)
    except BaseException as error:  # of ours, for want of memory or stack
        data = b"m0 " + _type(error).__name__.encode() + b" after the program"
    send(reply, data)
    os._exit(0)


# ----------------------------------------------------------------------------------------- a child for tame programs

MANY = 200  # programs of one process, whose memory may come into disorder
ANOTHER = 3  # the exit code that asks for another child


def run_shared(all_limits):
    """Lock in, and run one tame program after another, each in a module of its own. Does not return.

    What a program leaves is freed in its own time, before its reply is sent.
    """
    lock(all_limits)
    for _ in range(MANY):
        program, call, _ = request()
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
    while True:
        streams()
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


def streams():
    """Make input, output and errors of a child files in memory."""
    for stream in (0, 1, 2):
        memory = os.memfd_create("")
        os.dup2(memory, stream)
        os.close(memory)


def main_alone(all_limits):
    """Fork a child for each program, until nothing more can be asked."""
    asked = select.poll()
    asked.register(REQUESTS, select.POLLIN)
    for reply in itertools.cycle(REPLIES):
        streams()
        process = os.fork()
        if not process:
            try:
                run_child(reply, all_limits)
            finally:
                os._exit(70)
        _, ended, usage = os.wait4(process, 0)
        last = has_changed()
        os.write(REPORTS, ENDED.pack(ended, int((usage.ru_utime + usage.ru_stime) * 1e6), last))
        if last or asked.poll(0) == [(REQUESTS, select.POLLHUP)]:
            return


STACK = 1 << 27  # bytes of a thread's stack at most: they count as memory, and programs ask for far more than they use


def stack_size(size=0, of_python=threading.stack_size):
    return of_python(min(size, STACK))


# What Python makes ready when it first reads and runs a program is made ready here, once.
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
    """Finds the packages that are allowed beside the standard library, which is all there is on sys.path."""

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
    for name in ("exit", "quit"):  # as the module site has them
        setattr(builtins, name, sys.exit)
    sys.argv[1:] = []
    for stream in (sys.stdin, sys.stdout):
        assert isinstance(stream, io.TextIOWrapper)
        stream.reconfigure(encoding="utf-8", errors="strict")
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # asyncio would set another handler, which no program can
    checked(LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    if CONFIG["temporary"]:
        mount_temporary()
    if CONFIG["readable"]:
        landlock(CONFIG["readable"], lambda: enter(CONFIG["root"]))
    drop_capabilities()
    all_limits = limits()
    checked(LIBC.prctl(PR_SET_SECCOMP, 2, OUTER, 0, 0))
    assert value_of(WARMING, "f([2, 3])") == b"v{'2': [1.5, None], '3': [2.0, None]}"
    gc.collect()
    gc.freeze()
    os.write(REPORTS, b"ready")
    return main_shared(all_limits) if CONFIG["shared"] else main_alone(all_limits)


main()
