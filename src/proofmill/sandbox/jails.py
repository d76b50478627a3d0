"""CPython in a jail: processes in which an untrusted program reaches nothing, one jail for each worker.

    jail = Jail(plan(), Limits(seconds=10, bytes=2**29))
    jail.ask(program, call, stdin, longest)  # Reply(status, text, seconds)

What each program meets, whichever jail it is in: seccomp allows the system calls of a computation and no others
(seccomp.py), and the kernel limits its processor time, memory, output and open files. Of the file system it sees Python's
own library and what that is linked to, by one of
    bubblewrap  there is nothing else: namespaces of its own for files, processes, network, users
    landlock    nothing else can be opened, though a program can learn whether a path exists
`plan` takes the first that works here, proved by programs that try to get out.
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
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import util
from pathlib import Path
from struct import Struct
from typing import Literal

from proofmill.sandbox import seccomp
from proofmill.schema.errors import SandboxError

Kind = Literal["bubblewrap", "landlock"]
KINDS: tuple[Kind, ...] = ("bubblewrap", "landlock")  # the better one first
PATIENCE = 60  # wall-clock limit as a multiple of a program's seconds: no program can wait, but a machine may be busy
STARTING = 60.0  # seconds in which a jail must be there
OUTPUT = 1 << 24  # bytes that a program may print
MODULES = (  # read before the programs, so that they need not wait for them
    "abc", "bisect", "collections", "collections.abc", "contextlib", "copy", "dataclasses", "datetime", "decimal", "enum",
    "fractions", "functools", "heapq", "io", "itertools", "json", "math", "operator", "os", "random", "re", "statistics",
    "string", "time", "typing",
)  # fmt: skip
PACKAGES = ("numpy",)  # beside the standard library, where they are installed
_HEAD, _ENDED = Struct("<IIII"), Struct("<iQI")  # as in zygote.py
_ZYGOTE = Path(__file__).with_name("zygote.py")


@dataclass(frozen=True)
class Limits:
    """Of one program: processor time, bytes of memory beyond what Python itself takes."""

    seconds: float
    bytes: int


@dataclass(frozen=True)
class Reply:
    """What a program's process said before it ended (its status and a text, empty if nothing), and how (wait status)."""

    status: str
    text: str
    ended: int
    seconds: float


class Died(Exception):
    """The jail itself is gone."""


# ---------------------------------------------------------------------------------------------------------- the process


class Jail:
    """A process in a jail, in which programs run one after another, each in a process of its own."""

    def __init__(
        self, kind: Kind, limits: Limits, modules: Sequence[str] = (), fresh: bool = False, shared: bool = False
    ):
        """`modules` are imported beforehand. `fresh`: with a hash seed and random numbers that no other jail has.

        `shared`: for tame programs (plain.py), many of which run in one process, until one gives no value.

        Raises Died where the jail does not start.
        """
        self.limits = limits
        requests, self._requests = os.pipe()
        self._replies, replies = os.pipe()
        config = {
            "requests": requests,
            "replies": replies,
            "filters": [seccomp.parents().hex(), seccomp.childrens(shared).hex()],
            "modules": [*MODULES, *modules],
            "packages": {name: str(path.parent) for name, path in _packages().items()},
            "readable": _readable() if kind == "landlock" else {},
            "seconds": limits.seconds,
            "bytes": limits.bytes,
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
                env={"PYTHONHASHSEED": str(seed), "LC_ALL": "C.UTF-8", "OPENBLAS_NUM_THREADS": "1"},
                cwd="/",
                pass_fds=(requests, replies),
                start_new_session=True,
            )
        except OSError as error:
            os.close(self._requests)
            os.close(self._replies)
            raise Died(str(error)) from None
        finally:
            os.close(requests)
            os.close(replies)
        os.set_blocking(self._requests, False)
        try:
            self._read(len(b"ready"), time.monotonic() + STARTING)
        except (Died, TimeoutError):
            self.kill()
            said = self._last_words()
            self.close()
            raise Died(said or "it does not start") from None

    def send(self, program: str, call: str, stdin: str, longest: int) -> None:
        """Ask for a run of a program, after those already asked for. Raises Died or TimeoutError, as `reply` does."""
        parts = [text.encode("utf-8", "surrogatepass") for text in (program, call, stdin)]
        data = b"".join([_HEAD.pack(*map(len, parts), longest), *parts])
        self._write(data, self._deadline())

    def _deadline(self) -> float:
        return time.monotonic() + PATIENCE * self.limits.seconds + 1

    def reply(self) -> Reply:
        """What came of the first program not yet replied to.

        Raises Died where the jail is gone, TimeoutError where it does not answer; then it is to be closed.
        """
        deadline = self._deadline()
        ended, spent, length = _ENDED.unpack(self._read(_ENDED.size, deadline))
        text = self._read(length, deadline).decode("utf-8", "surrogatepass") if length else ""
        return Reply(text[:1], text[1:], ended, spent / 1e6)

    def ask(self, program: str, call: str, stdin: str, longest: int) -> Reply:
        """Send one program and wait for its reply."""
        self.send(program, call, stdin, longest)
        return self.reply()

    def _write(self, data: bytes, deadline: float) -> None:
        while data:
            try:
                data = data[os.write(self._requests, data) :]
            except BlockingIOError:
                _wait([], [self._requests], deadline)
            except BrokenPipeError:
                raise Died("its process has ended") from None

    def _read(self, length: int, deadline: float) -> bytes:
        parts = []
        while length:
            _wait([self._replies], [], deadline)
            part = os.read(self._replies, length)
            if not part:
                raise Died("its process has ended")
            parts.append(part)
            length -= len(part)
        return b"".join(parts)

    def _last_words(self) -> str:
        assert self._process.stderr is not None, "it is a pipe"
        return self._process.stderr.read(4096).decode("utf-8", "replace").strip().rpartition("\n")[2]

    def kill(self) -> None:
        """End all that is in the jail; who waits for a reply finds that it has died."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """End the jail, and forget it. One that runs nothing ends by itself when nothing more can be asked."""
        os.close(self._requests)
        try:
            self._process.wait(0.5)
        except subprocess.TimeoutExpired:
            self.kill()
            self._process.wait()
        os.close(self._replies)
        if self._process.stderr is not None:
            self._process.stderr.close()


def _wait(reading: list[int], writing: list[int], deadline: float) -> None:
    poll = select.poll()
    for stream in reading:
        poll.register(stream, select.POLLIN)
    for stream in writing:
        poll.register(stream, select.POLLOUT)
    if not poll.poll(max(0.0, 1000 * (deadline - time.monotonic()))):
        raise TimeoutError


# ------------------------------------------------------------------------------------------------ what a jail lets one see


def _python() -> str:
    return os.path.realpath(getattr(sys, "_base_executable", sys.executable))


def _library() -> Path:
    return Path(sysconfig.get_path("stdlib")).resolve()


def _linked() -> list[Path]:
    """Where the shared libraries are that Python's own library needs."""
    own = Path(sysconfig.get_config_var("LIBDIR") or "/", sysconfig.get_config_var("INSTSONAME") or "")
    folders = map(Path, ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/etc/ld.so.cache"))
    return [path for path in (*folders, *([own] if own.is_file() else [])) if path.exists()]


@cache
def _packages() -> dict[str, Path]:
    """Folders of the packages that programs may import, and of the libraries they bring."""
    found = {}
    for name in PACKAGES:
        spec = util.find_spec(name)
        if spec is not None and spec.origin:
            folder = Path(spec.origin).resolve().parent
            found[name] = folder
            if (libraries := folder.with_name(f"{name}.libs")).is_dir():
                found[libraries.name] = libraries
    return found


def package_of(program: str) -> str:
    """The installed package that a program names; empty where it names none."""
    return next((name for name in PACKAGES if name in program and name in _packages()), "")


@cache
def _readable() -> dict[str, bool]:
    """What can be read under landlock: files and folders; of the second kind (False) only the names in it."""
    others = ("site-packages", "dist-packages")
    names = [_library(), *(path.parent for path in _packages().values())]
    files = [*_linked(), *(path for path in _library().iterdir() if path.name not in others), *_packages().values()]
    return {**{str(path): False for path in names}, **{str(path): True for path in files}}


@cache
def _bubblewrap() -> tuple[str, ...]:
    """The command before Python's."""
    command = ["bwrap", "--unshare-all", "--unshare-user", "--uid", "65534", "--gid", "65534", "--cap-drop", "ALL"]
    for path in _linked():
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
    return (*command, "--remount-ro", "/", "--chdir", "/", "--")


# ---------------------------------------------------------------------------------------------------------- known answers

_GETS_OUT = {  # what a program must not be able to do; each is an expression
    "read a file": "open({path!r}).read()",
    "list a folder": "__import__('os').listdir({folder!r})",
    "write a file": "open('/tmp/proofmill-canary', 'w').write('x')",
    "see another process": "open('/proc/{process}/status').read()",
    "send a signal": "__import__('os').kill(__import__('os').getppid(), 0)",
    "start a process": "__import__('os').fork()",
    "run a command": "__import__('os').execv('/bin/true', ['true'])",
    "start a thread": "__import__('threading').Thread(target=print).start()",
    "open a connection": "__import__('socket').socket()",
    "raise its limits": "__import__('resource').setrlimit(4, (1, 1))",
    "see the environment": "__import__('os').environ['PATH']",
}
_KNOWN = (  # program, call, status, text
    ("def f(x): yield from {x: x}", "list(f(7))", "v", "[7]"),
    ("import heapq", "heapq.nsmallest(2, [3, 1, 2])", "v", "[1, 2]"),
    ("print(int(input()) + 1)", "", "v", "'8\\n'"),
    ("while True: pass", "", "", ""),
    ("x = bytearray(2**40)", "", "m", "1 MemoryError"),
)


@cache
def plan() -> Kind:
    """The jail that works here. Raises SandboxError where none does, with what fails in each."""
    faults = {}
    for kind in KINDS:
        if not (fault := _fault(kind)):
            return kind
        faults[kind] = fault
    said = "; ".join(f"{kind}: {fault}" for kind, fault in faults.items())
    raise SandboxError(
        f"sandbox: programs cannot be locked in here ({said}); expected bubblewrap, or a kernel from 5.13 on with landlock, "
        "on x86-64. Install bubblewrap (`apt install bubblewrap`), or ask whoever keeps the machine for either."
    )


def _fault(kind: Kind) -> str:
    """What is wrong with a kind of jail; empty where it holds."""
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
    for program, call, status, text in _KNOWN:
        reply = jail.ask(program, call, "7\n", 1000)
        if (reply.status, reply.text) != (status, text):
            return f"`{program}` gives {reply.text!r}; expected {text!r}"
    for what, call in _GETS_OUT.items():
        call = call.format(path=str(_ZYGOTE), folder=str(_ZYGOTE.parent), process=os.getpid())
        reply = jail.ask("", f"[{call}, 'out'][1]", "", 1000)
        if reply.status != "e":
            return f"a program can {what}"
    return ""
