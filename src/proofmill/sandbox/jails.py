"""CPython in a jail: isolated processes for untrusted programs, one jail per worker.

    jail = Jail(plan(), Limits(seconds=10, bytes=2**29, longest=10_000))
    jail.ask(program, call, stdin)  # Reply(data, ended, seconds)

In every jail seccomp allows only the system calls of a computation (seccomp.py), and the kernel limits CPU time, memory,
output and open files. Of the file system a program sees Python's own library. The kind of jail decides how:
    bubblewrap  only that library, the libraries it is linked to and a private folder for temporary files exist
    landlock    the library's folder is the root of all paths, and is read-only
`plan` takes the first kind that works on this machine, tested with programs that try to escape. Requests to a jail
contain nothing derived from expected results, and all requests of a jail have the same limits.
"""

import contextlib
import json
import os
import platform
import select
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib import util
from pathlib import Path
from struct import Struct
from typing import Literal

from proofmill.sandbox import seccomp
from proofmill.schema.errors import SandboxError

Kind = Literal["bubblewrap", "landlock"]
KINDS: tuple[Kind, ...] = ("bubblewrap", "landlock")  # the better one first
# The wall-clock limit is PATIENCE times a program's seconds plus GRACE seconds: threads wait, and machines can be busy.
PATIENCE, GRACE = 5, 10.0
STARTING = 60.0  # seconds within which a jail must start
OUTPUT = 1 << 24  # bytes that a program may print, or write into one file
TEMPORARY = 1 << 26  # bytes of all temporary files
MOST = OUTPUT + 1000  # bytes of a reply
AHEAD = 8  # programs sent to a jail before the first is done
MODULES = (  # imported before the programs run, to save them the time
    "abc", "bisect", "collections", "collections.abc", "contextlib", "copy", "dataclasses", "datetime", "decimal", "enum",
    "fractions", "functools", "heapq", "io", "itertools", "json", "math", "operator", "os", "random", "re", "statistics",
    "string", "threading", "time", "typing",
)  # fmt: skip
PACKAGES = ("numpy",)  # allowed in addition to the standard library, if installed
LINKED = ("_bz2", "_hashlib", "_lzma", "_sqlite3", "_uuid", "zlib")  # modules that need other shared libraries
_HEAD, _ENDED = Struct("<III"), Struct("<iQI")  # as in zygote.py
_ZYGOTE, _LITERALS = (Path(__file__).with_name(name) for name in ("zygote.py", "literals.py"))


@dataclass(frozen=True)
class Limits:
    """Limits of one program: CPU seconds, bytes of memory in addition to the interpreter's, characters of its value."""

    seconds: float
    bytes: int
    longest: int = 1000


@dataclass(frozen=True)
class ProcessResult:
    """The bytes that a program's process wrote before it ended, its wait status and its CPU seconds."""

    data: bytes
    ended: int
    seconds: float


class Died(Exception):
    """The jail itself has ended."""


# ---------------------------------------------------------------------------------------------------------- the process


class Jail:
    """A process in a jail that runs programs sequentially, each in a child process."""

    def __init__(
        self, kind: Kind, limits: Limits, modules: Sequence[str] = (), fresh: bool = False, shared: bool = False
    ):
        """Start the jail. Raises Died if it does not start.

        `modules` are imported before the programs run. With `fresh`, the jail has its own hash seed and random numbers.
        A `shared` jail is for tame programs (plain.py), many of which run in one process.
        """
        self.limits, self.shared = limits, shared
        self.is_spent = False  # it is about to exit, because a program changed the folder for temporary files
        requests, self._requests = os.pipe()
        self._reports, reports = os.pipe()
        pipes = [os.pipe() for _ in range(0 if shared else AHEAD)]
        self._replies, replies = deque(pipe[0] for pipe in pipes), [pipe[1] for pipe in pipes]
        self._reported = bytearray()
        temporary = TEMPORARY if kind == "bubblewrap" and not shared else 0
        config = {
            "requests": requests,
            "replies": replies,
            "reports": reports,
            "literals": _LITERALS.read_text("utf-8"),
            "filters": [seccomp.parent_filter().hex(), seccomp.child_filter(shared, bool(temporary)).hex()],
            "modules": [*MODULES, *modules],
            "linked": LINKED,
            "packages": {name: str(path.parent) for name, path in _packages().items()},
            "readable": _readable() if kind == "landlock" else {},
            "root": str(_library()),
            "temporary": temporary,
            **asdict(limits),
            "output": OUTPUT,
            "fresh": fresh,
            "shared": shared,
        }
        python = [_python(), "-s", "-S", "-P", "-c", _ZYGOTE.read_text("utf-8"), json.dumps(config)]
        seed = 1 + int.from_bytes(os.urandom(4)) % (2**32 - 1) if fresh else 0
        try:
            self._process = subprocess.Popen(
                [*(_bubblewrap() if kind == "bubblewrap" else ()), *python],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env={
                    "PYTHONHASHSEED": str(seed),
                    "LC_ALL": "C.UTF-8",
                    "OPENBLAS_NUM_THREADS": "1",
                    "MALLOC_ARENA_MAX": "1",
                },
                cwd="/",
                pass_fds=(requests, reports, *replies),
                start_new_session=True,
            )
        except OSError as error:
            for stream in (self._requests, self._reports, *self._replies):
                os.close(stream)
            raise Died(str(error)) from None
        finally:
            for stream in (requests, reports, *replies):
                os.close(stream)
        for stream in (self._requests, self._reports, *self._replies):
            os.set_blocking(stream, False)
        try:
            self._report(len(b"ready"), time.monotonic() + STARTING)
        except (Died, TimeoutError):
            self.kill()
            stderr = self._last_error()
            self.close()
            raise Died(stderr or "it does not start") from None

    def send(self, *requests: tuple[str, str, str]) -> None:
        """Queue runs (program, call, stdin) after those already queued; at most AHEAD may be in flight.

        Raises Died or TimeoutError, as `reply` does.
        """
        data = b"".join(map(_request, requests))
        deadline = self._deadline()
        while data:
            try:
                data = data[os.write(self._requests, data) :]
            except BlockingIOError:
                _wait([], [self._requests], deadline)
            except BrokenPipeError:
                raise Died("its process has ended") from None

    def _deadline(self) -> float:
        return time.monotonic() + PATIENCE * self.limits.seconds + GRACE

    def reply(self) -> ProcessResult:
        """Return the reply of the oldest program without one.

        Raises Died if the jail has ended and TimeoutError if it does not reply. The caller must then close it.
        """
        deadline = self._deadline()
        if self.shared:
            ended, spent, length = _ENDED.unpack(self._report(_ENDED.size, deadline))
            return ProcessResult(self._report(length, deadline), ended, spent / 1e6)
        own, data = self._replies[0], bytearray()
        while len(self._reported) < _ENDED.size:
            if not _take(own, data) and not _take(self._reports, self._reported):
                _wait([own, self._reports], [], deadline)
        ended, spent, last = _ENDED.unpack(self._report(_ENDED.size, deadline))
        while _take(own, data):
            pass
        self._replies.rotate(-1)
        self.is_spent = bool(last)
        return ProcessResult(bytes(data), ended, spent / 1e6)

    def ask(self, program: str, call: str, stdin: str) -> ProcessResult:
        """Send one program and wait for its reply."""
        self.send((program, call, stdin))
        return self.reply()

    def _report(self, length: int, deadline: float) -> bytes:
        """Read the next `length` bytes written by the jail itself, or by the process of tame programs."""
        while len(self._reported) < length:
            if not _take(self._reports, self._reported):
                _wait([self._reports], [], deadline)
        data = bytes(self._reported[:length])
        del self._reported[:length]
        return data

    def _last_error(self) -> str:
        assert self._process.stderr is not None, "it is a pipe"
        return self._process.stderr.read(4096).decode("utf-8", "replace").strip().rpartition("\n")[2]

    def kill(self) -> None:
        """Kill all processes of the jail; a thread that waits for a reply gets Died."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """End the jail and release its pipes. An idle jail exits when its request pipe closes; others are killed."""
        for stream in (self._requests, self._reports, *self._replies):
            os.close(stream)
        try:
            self._process.wait(0.5)
        except subprocess.TimeoutExpired:
            self.kill()
            self._process.wait()
        if self._process.stderr is not None:
            self._process.stderr.close()


def _request(texts: tuple[str, str, str]) -> bytes:
    parts = [text.encode("utf-8", "surrogatepass") for text in texts]
    return b"".join([_HEAD.pack(*map(len, parts)), *parts])


def _take(stream: int, data: bytearray) -> bool:
    """Read available bytes into `data`, discarding those beyond MOST. Return whether any were available.

    Raises Died at the end of the stream.
    """
    try:
        part = os.read(stream, 1 << 20)
    except BlockingIOError:
        return False
    if not part:
        raise Died("its process has ended")
    if len(data) <= MOST:
        data += part
    return True


def _wait(reading: list[int], writing: list[int], deadline: float) -> None:
    poll = select.poll()
    for stream in reading:
        poll.register(stream, select.POLLIN)
    for stream in writing:
        poll.register(stream, select.POLLOUT)
    if not poll.poll(max(0.0, 1000 * (deadline - time.monotonic()))):
        raise TimeoutError


# ------------------------------------------------------------------------------------------- files visible in a jail


def _python() -> str:
    return os.path.realpath(getattr(sys, "_base_executable", sys.executable))


def _library() -> Path:
    return Path(sysconfig.get_path("stdlib")).resolve()


def _find_linked() -> list[Path]:
    """Return the folders and files of the shared libraries that Python's own library needs."""
    own = Path(sysconfig.get_config_var("LIBDIR") or "/", sysconfig.get_config_var("INSTSONAME") or "")
    folders = map(Path, ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/etc/ld.so.cache"))
    return [path for path in (*folders, *([own] if own.is_file() else [])) if path.exists()]


@cache
def _packages() -> dict[str, Path]:
    """Return the folders, by name, of the packages that programs may import and of their bundled libraries."""
    folders = {}
    for name in PACKAGES:
        spec = util.find_spec(name)
        if spec is not None and spec.origin:
            folder = Path(spec.origin).resolve().parent
            folders[name] = folder
            if (libraries := folder.with_name(f"{name}.libs")).is_dir():
                folders[libraries.name] = libraries
    return folders


def package_of(source: str) -> str:
    """Return the first installed package whose name occurs in a program or its call; empty if none does."""
    return next((name for name in PACKAGES if name in source and name in _packages()), "")


@cache
def _readable() -> dict[str, bool]:
    """Return the paths visible under landlock: True for readable ones, False for folders that can only be listed."""
    others = ("site-packages", "dist-packages")
    names = [_library(), *(path.parent for path in _packages().values())]
    files = [
        *_find_linked(),
        *(path for path in _library().iterdir() if path.name not in others),
        *_packages().values(),
    ]
    return {**{str(path): False for path in names}, **{str(path): True for path in files}}


@cache
def _bubblewrap() -> tuple[str, ...]:
    """Return the bubblewrap command that precedes Python's."""
    command = ["bwrap", "--unshare-all", "--unshare-user", "--uid", "65534", "--gid", "65534", "--cap-drop", "ALL"]
    for path in _find_linked():
        if path.is_symlink() and path.is_dir():
            command += ["--symlink", os.readlink(path), str(path)]
        else:
            command += ["--ro-bind", str(path), str(path)]
    command += ["--ro-bind", _python(), _python(), "--ro-bind", str(_library()), str(_library())]
    for name in ("site-packages", "dist-packages"):
        if (folder := _library() / name).is_dir():
            command += ["--tmpfs", str(folder)]
    for path in _packages().values():
        command += ["--ro-bind", str(path), str(path)]
    # CAP_SYS_ADMIN is for mounting a private /tmp. zygote.py drops it before it runs a program.
    return (*command, "--dir", "/tmp", "--remount-ro", "/", "--chdir", "/", "--cap-add", "CAP_SYS_ADMIN", "--")


# ---------------------------------------------------------------------------------------------------------- known answers

_ESCAPES = {  # actions that a jail must refuse, each as an expression
    "read a file": "open({path!r}).read()",
    "list a folder": "__import__('os').listdir({folder!r})",
    "learn whether a path exists": "__import__('os').stat({folder!r})",
    "write a file": "open('/proofmill-canary', 'w').write('x')",
    "see another process": "open('/proc/{process}/status').read()",
    "send a signal": "__import__('os').kill(__import__('os').getppid(), 0)",
    "start a process": "__import__('os').fork()",
    "run a command": "__import__('os').execv('/bin/true', ['true'])",
    "open a connection": "__import__('socket').socket()",
    "raise its limits": "__import__('resource').setrlimit(4, (1, 1))",
    "see the environment": "__import__('os').environ['PATH']",
}
_KNOWN = (  # program, call, expected reply
    ("def f(x): yield from {x: x}", "list(f(7))", b"v[7]"),
    ("import heapq", "heapq.nsmallest(2, [3, 1, 2])", b"v[1, 2]"),
    ("print(int(input()) + 1)", "", b"p8\n"),
    ("while True: pass", "", b""),
    ("x = bytearray(2**40)", "", b"m1 MemoryError"),
)


@cache
def plan() -> Kind:
    """Return the first kind of jail that works here. Raises SandboxError, with the fault of each kind, if none does."""
    faults = {}
    for kind in KINDS:
        if not (fault := _fault(kind)):
            return kind
        faults[kind] = fault
    reasons = "; ".join(f"{kind}: {fault}" for kind, fault in faults.items())
    raise SandboxError(
        f"sandbox: programs cannot be isolated on this machine ({reasons}); expected bubblewrap, or Linux 5.13 or later "
        "with landlock, on x86-64. Install bubblewrap (`apt install bubblewrap`), or ask your administrator for either."
    )


def _fault(kind: Kind) -> str:
    """Return the fault of a kind of jail; empty if it works."""
    if platform.machine() != "x86_64":
        return f"the filter of system calls is for x86-64, this is {platform.machine()}"
    if kind == "bubblewrap" and not shutil.which("bwrap"):
        return "`bwrap` is not installed"
    try:
        jail = Jail(kind, Limits(0.25, 1 << 28))
    except Died as died:
        return str(died)
    try:
        return _escape(jail)
    except (Died, TimeoutError) as error:
        return f"it ended ({error})"
    finally:
        jail.close()


def _escape(jail: Jail) -> str:
    """Return the first wrong reply or successful escape; empty without one."""
    for program, call, expected in _KNOWN:
        reply = jail.ask(program, call, "7\n")
        if reply.data != expected:
            return f"`{program}` gives {reply.data!r}; expected {expected!r}"
    for action, call in _ESCAPES.items():
        call = call.format(path=str(_ZYGOTE), folder=str(_ZYGOTE.parent), process=os.getpid())
        if jail.ask("", f"[{call}, 'out'][1]", "").data[:1] != b"e":
            return f"a program can {action}"
    return ""
