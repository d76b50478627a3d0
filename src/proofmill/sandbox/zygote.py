"""The process inside the jail, which forks a child for each program. jails.py starts it as `python -c SOURCE CONFIG`.

It stands alone, for nothing of ours can be imported inside, and never reads a program itself: a child locks itself in and
then reads the one request that it runs, so that no memory of one program is there for the next. While one runs the next
is forked, and may begin. A child's own reply is a pipe to this process, which says whose it is and how it ended: what a
program writes there can be taken for its own value only. Tame programs (plain.py) run in one child, one after another.
"""

import builtins
import contextlib
import ctypes
import gc
import importlib
import importlib.machinery
import io
import json
import mmap
import os
import random
import resource
import signal
import struct
import sys
import time
import types

CONFIG = json.loads(sys.argv[1])
REQUESTS, REPLIES = CONFIG["requests"], CONFIG["replies"]
HEAD = struct.Struct("<IIII")  # of a request: bytes of the program, the call, the input; longest value in characters
ENDED = struct.Struct("<iQI")  # of a reply: wait status, microseconds of processor time, bytes that follow
LIBC = ctypes.CDLL(None, use_errno=True)

# ---------------------------------------------------------------------------------------------------------- locking in

PR_SET_PDEATHSIG, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 1, 22, 38
LANDLOCK_CREATE, LANDLOCK_ADD, LANDLOCK_RESTRICT = 444, 445, 446
READ_FILE, READ_DIR = 1 << 2, 1 << 3


def checked(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def landlock(paths):
    """Only files below these paths can be opened, and only to be read; where a path says False only names are."""
    abi = checked(LIBC.syscall(LANDLOCK_CREATE, None, 0, 1))
    rights = {1: 13, 2: 14, 3: 15, 4: 15}.get(abi, 16)
    rules = struct.pack("<QQQ", (1 << rights) - 1, 3, 3)[: 8 if abi < 4 else 16 if abi < 6 else 24]
    ruleset = checked(LIBC.syscall(LANDLOCK_CREATE, rules, ctypes.c_size_t(len(rules)), 0))
    for path, files in paths.items():
        place = os.open(path, os.O_PATH)
        allowed = READ_FILE * files | READ_DIR * os.path.isdir(path)
        checked(LIBC.syscall(LANDLOCK_ADD, ruleset, 1, struct.pack("<Qi", allowed, place), 0))
        os.close(place)
    checked(LIBC.syscall(LANDLOCK_RESTRICT, ruleset, 0))
    os.close(ruleset)


def without_capabilities():
    """What root may do besides is given up; it is not needed, and this fails nowhere."""
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
        (resource.RLIMIT_NPROC, (0, 0)),
    ]


def lock(all_limits):
    """Nothing that is given up here can be had back."""
    checked(LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0))
    signal.setitimer(signal.ITIMER_PROF, CONFIG["seconds"])
    for limit, most in all_limits:
        resource.setrlimit(limit, most)
    checked(LIBC.prctl(PR_SET_SECCOMP, 2, INNER, 0, 0))


# ------------------------------------------------------------------------------------------------------------- a value

# A program may rebind what it finds in `builtins`: these names are taken before it runs.
_bool, _dict, _float, _frozenset, _int, _len, _list, _none, _set, _str, _tuple, _type, _bytes, _complex, _subclass = (
    bool, dict, float, frozenset, int, len, list, type(None), set, str, tuple, type, bytes, complex, issubclass,
)  # fmt: skip
ATOMS = (
    *((kind, vars(kind)["__repr__"]) for kind in (bool, int, str, float, bytes, type(None))),
    (complex, lambda value: f"complex({value.real!r}, {value.imag!r})"),
)


class NoPlainData(Exception):
    pass


def literal(value, room, deep=100):
    """A value as text and the characters left. An object of a derived class counts as what it is derived from."""
    kind = _type(value)
    if "numpy" in sys.modules and _subclass(kind, sys.modules["numpy"].generic):
        value = value.item()
        kind = _type(value)
    if deep < 0:
        raise NoPlainData("a value over 100 levels deep")
    for atom, written in ATOMS:
        if kind is atom or _subclass(kind, atom):
            if kind is _str or kind is _bytes:
                room -= _len(value)
            text = written(value) if room >= 0 else ""
            room -= 2 if kind is _str or kind is _bytes else _len(text)
            if room < 0:
                raise NoPlainData("a value over the greatest length")
            return text, room
    for parent, start, end, items in (
        (_list, "[", "]", _list.__iter__),
        (_tuple, "(", ",)", _tuple.__iter__),
        (_set, "set((", ",))", _set.__iter__),
        (_frozenset, "frozenset((", ",))", _frozenset.__iter__),
        (_dict, "{", "}", _dict.items),
    ):
        if _subclass(kind, parent):
            texts = []
            for item in items(value):
                if parent is _dict:
                    key, room = literal(item[0], room - 2, deep - 1)
                    text, room = literal(item[1], room, deep - 1)
                    text = f"{key}: {text}"
                else:
                    text, room = literal(item, room, deep - 1)
                texts.append(text)
                if (room := room - 2) < 0:
                    raise NoPlainData("a value over the greatest length")
            if not texts:
                end = end.replace(",", "")
            return start + ", ".join(texts) + end, room
    raise NoPlainData(f"a value of the type {kind.__name__}, which is no plain data")


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


def value_of(program, call, longest):
    """The status and its text: what this process says of a program, which it runs here."""
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    try:
        try:
            exec(compile(program, "<program>", "exec", dont_inherit=True), module.__dict__)
            if call:
                value = eval(compile(call.strip(), "<call>", "eval", dont_inherit=True), module.__dict__)
        except SystemExit as ended:
            if call or ended.code not in (None, 0):
                raise
        if not call:
            return printed(longest)
        return "v", literal(value, longest)[0]
    except NoPlainData as error:
        return "r", str(error)
    except MemoryError as error:
        return "m", told(error)
    except OSError as error:
        return "o" if error.errno == 27 else "e", told(error)  # EFBIG: as much was printed as is allowed
    except BaseException as error:
        return "e", told(error)


def printed(longest):
    sys.stdout.flush()
    length = os.lseek(1, 0, os.SEEK_END)
    text = os.pread(1, length, 0).decode("utf-8", "surrogateescape") if length <= 4 * longest else None
    return ("o", "") if text is None or len(text) > longest else ("v", repr(text))


def read(length):
    parts = []
    while length and (part := os.read(REQUESTS, min(length, 1 << 20))):
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


def request():
    """The next program, call, input and longest value; where nobody asks any more this process ends."""
    head = read(HEAD.size)
    if len(head) < HEAD.size:
        os._exit(0)
    *lengths, longest = HEAD.unpack(head)
    return *(read(length).decode("utf-8", "surrogatepass") for length in lengths), longest


def send(stream, data):
    while data:
        data = data[os.write(stream, data) :]


def run_child(reply, all_limits):
    """Lock in, read a request, run it, reply. Does not return."""
    os.close(REPLIES)
    lock(all_limits)
    program, call, given, longest = request()
    os.write(reply, b"g")
    os.close(REQUESTS)
    send(0, given.encode("utf-8", "surrogatepass"))
    os.lseek(0, 0, os.SEEK_SET)
    if not CONFIG["fresh"]:  # else each child has a seed of its own
        random.seed(0)
    try:
        data = "".join(value_of(program, call, longest)).encode("utf-8", "surrogatepass")
    except BaseException as error:  # of ours, for want of memory or stack
        data = f"m0 {_type(error).__name__} after the program".encode()
    send(reply, data)
    os._exit(0)


# ----------------------------------------------------------------------------------------- a child for tame programs

MANY = 200  # programs of one process, whose memory may come into disorder
BRIEF = min(0.25, CONFIG["seconds"])  # what takes longer is done again in a process of its own
ANOTHER = 3  # the exit code that asks for another child


def run_shared(all_limits):
    """Lock in, and run one request after another, each in a module of its own, until one gives no value. Does not return."""
    lock(all_limits)
    for _ in range(MANY):
        program, call, _, longest = request()
        begun = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, BRIEF)
        status, said = value_of(program, call, longest)
        signal.setitimer(signal.ITIMER_PROF, 0)
        data = (status + said).encode("utf-8", "surrogatepass")
        send(REPLIES, ENDED.pack(0, int(1e6 * (time.process_time() - begun)), len(data)) + data)
        if status != "v":
            break
    os._exit(ANOTHER)


def main_shared(all_limits):
    while True:
        streams()
        process = os.fork()
        if not process:
            run_shared(all_limits)
        _, ended, usage = os.wait4(process, 0)
        if not ended:
            return
        if os.waitstatus_to_exitcode(ended) != ANOTHER:
            os.write(REPLIES, ENDED.pack(ended, int((usage.ru_utime + usage.ru_stime) * 1e6), 0))


# ---------------------------------------------------------------------------------------------------------- the parent


def streams():
    """Input, output and errors of a child are files in memory."""
    for stream in (0, 1, 2):
        memory = os.memfd_create("")
        os.dup2(memory, stream)
        os.close(memory)


def fork(all_limits):
    """A child that waits for its request, and the pipe from which its reply is read."""
    source, reply = os.pipe()
    streams()
    process = os.fork()
    if not process:
        os.close(source)
        try:
            run_child(reply, all_limits)
        finally:
            os._exit(70)
    os.close(reply)
    return process, source


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
    for name in ("exit", "quit"):  # as the module site has them
        setattr(builtins, name, sys.exit)
    sys.argv[1:] = []
    for stream in (sys.stdin, sys.stdout):
        assert isinstance(stream, io.TextIOWrapper)
        stream.reconfigure(encoding="utf-8", errors="strict")
    checked(LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    if CONFIG["readable"]:
        landlock(CONFIG["readable"])
    without_capabilities()
    all_limits = limits()
    checked(LIBC.prctl(PR_SET_SECCOMP, 2, OUTER, 0, 0))
    most = 2 * CONFIG["output"]
    assert value_of(WARMING, "f([2, 3])", 1000) == ("v", "{'2': [1.5, None], '3': [2.0, None]}")
    gc.collect()
    gc.freeze()
    os.write(REPLIES, b"ready")
    if CONFIG["shared"]:
        return main_shared(all_limits)
    process, source = fork(all_limits)
    while True:
        if not os.read(source, 1):
            os.wait4(process, 0)
            break
        following = fork(all_limits)
        parts, length = [], 0
        while length <= most and (part := os.read(source, 1 << 16)):
            parts.append(part)
            length += len(part)
        if length > most:
            os.kill(process, signal.SIGKILL)
        os.close(source)
        _, ended, usage = os.wait4(process, 0)
        data = b"".join(parts) if length <= most else b"o"
        send(REPLIES, ENDED.pack(ended, int((usage.ru_utime + usage.ru_stime) * 1e6), len(data)) + data)
        process, source = following


main()
