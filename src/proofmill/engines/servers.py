"""A server of a job's own: started on a free port, restarted a bounded number of times, and stopped.

However the job ends, its server ends too. Between the two runs a small process (`python -m proofmill.engines.servers --
command`): its standard input is a pipe from the job, and when that pipe is closed it kills the server's process group.
"""

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from proofmill.runtime.progress import Pace, clock, say
from proofmill.schema.errors import ServiceError

RESTARTS = 3
REFEREE_SECONDS = 60.0
VLLM_SECONDS = 1800.0  # a model of hundreds of gigabytes loads slowly


class Server:
    """A context manager that ends the server. Between `start` and that it is up at `url` (its `/v1`)."""

    def __init__(
        self,
        name: str,
        command: Callable[[int], Sequence[str]],
        seconds: float,
        environment: Mapping[str, str] = {},
        log: Path | None = None,
        reason: Callable[[str], str] | None = None,
        host: str = "127.0.0.1",
        key: str | None = None,
    ):
        """`command(port)` starts the server on `host`, which must answer GET /v1/models within `seconds`, to its key.

        If it does not, what it said is kept in the file `log`, and `reason` finds in it why.
        """
        self.kept, self.reason = log, reason
        self.name, self.command, self.seconds, self.environment = name, command, seconds, dict(environment)
        self.restarts_left = RESTARTS
        self._process: subprocess.Popen | None = None
        self._log: Any = None
        self.host, self.key, self.url = host, key, f"http://{host}/v1"

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: Any) -> None:
        self._stop()

    @property
    def started(self) -> bool:
        return self._process is not None

    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start_again(self) -> None:
        """Start the server once more, on a new port; ServiceError when it does not come up."""
        self.restarts_left -= 1
        said = "died" if not self.alive() else "no longer answers"
        say(self.name, f"the server {said} ({self.last_words()}); starting it again, {self.restarts_left} times left")
        self._stop()
        self.start()

    def last_words(self) -> str:
        """The exit code of the server and the last line of its output."""
        code = self._process.poll() if self._process else None
        self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, self._log.tell() - 600))
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        return f"exit {code}{': ' + lines[-1].strip() if lines else ''}"

    def start(self) -> None:
        """Start the server and wait until it answers; ServiceError when it does not come up."""
        with socket.socket() as free:
            free.bind((self.host, 0))
            port = free.getsockname()[1]
        self.url = f"http://{self.host}:{port}/v1"
        self.launch(port)
        pace = Pace()
        while not (self.healthy() and self.wants_key()):  # another program may have taken the port
            waited = pace.seconds
            if not self.alive() or waited > self.seconds:
                words, where = self._why()
                self._stop()
                raise ServiceError(
                    f"{self.name}: its server did not come up in {clock(waited)} ({words}); expected an answer at {self.url}. "
                    f"{where}By hand: {' '.join(self.command(port))}"
                )
            if pace.due():
                say(self.name, f"waiting for its server, {clock(waited)}")
            time.sleep(0.05)

    def launch(self, port: int) -> None:
        """Begin to run the command, and wait for nothing."""
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (open as long as the server is)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "proofmill.engines.servers", "--", *self.command(port)],
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,  # signals to the job's group do not reach it: it has to end the server
            env={**os.environ, **self.environment},
        )

    def _why(self) -> tuple[str, str]:
        """Why the server did not come up, and a sentence about where all that it said is."""
        if self.kept is None or self.reason is None:
            return self.last_words(), ""
        self._log.seek(0)
        said = self._log.read()
        self.kept.parent.mkdir(parents=True, exist_ok=True)
        self.kept.write_bytes(said)
        return self.reason(said.decode(errors="replace")), f"All that it said is in {self.kept}. "

    def healthy(self) -> bool:
        """Return whether it answers now, within five seconds."""
        return self._status(self.key) == 200

    def wants_key(self) -> bool:
        """Return whether it refuses calls without its key: a server that answers all of them is another one."""
        return self.key is None or self._status(None) in (401, 403)

    def _status(self, key: str | None) -> int:
        """Return the status of its list of models; 0 without an answer."""
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a node's proxy cannot reach loopback
        known = {"Authorization": f"Bearer {key}"} if key else {}
        try:
            with direct.open(urllib.request.Request(f"{self.url}/models", headers=known), timeout=5) as reply:
                return reply.status
        except urllib.error.HTTPError as error:
            return error.code
        except (urllib.error.URLError, http.client.HTTPException, OSError):
            return 0

    def _stop(self) -> None:
        if self._process:
            assert self._process.stdin is not None, "it was started with a pipe"
            self._process.stdin.close()
            try:
                self._process.wait(timeout=15)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
            self._log.close()


def main() -> None:
    """Run a command until standard input is closed, then end it and every process it started."""
    for number in (signal.SIGINT, signal.SIGTERM):  # meant for the job, which still uses the server for a while
        signal.signal(number, signal.SIG_IGN)
    command = sys.argv[sys.argv.index("--") + 1 :]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=_hear_signals)
    threading.Thread(target=_end_with_job, args=(process,), daemon=True).start()
    code = process.wait()
    _kill_group(process, signal.SIGKILL)  # a server that was killed leaves its workers behind
    os._exit(code & 0xFF)  # the thread may be reading: a normal exit would wait for it


def _hear_signals() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


def _end_with_job(process: subprocess.Popen) -> None:
    os.read(0, 1)
    _kill_group(process, signal.SIGTERM)
    time.sleep(5)
    _kill_group(process, signal.SIGKILL)


def _kill_group(process: subprocess.Popen, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


if __name__ == "__main__":
    main()
