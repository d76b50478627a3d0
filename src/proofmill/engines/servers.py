"""A job's own server: started on a free port, restarted a limited number of times, and stopped.

The server ends with its job, however that ends. A small process runs between the two (`python -m
proofmill.engines.servers -- command`). Its standard input is a pipe from the job; when the pipe closes, it kills the
server's process group.
"""

import contextlib
import errno
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

from proofmill.runtime.progress import ProgressRate, clock, log
from proofmill.schema.errors import ServiceError

RESTARTS = 3
PORTS = 5  # tries of a start: another program may take a free port before the server does
TAKEN = os.strerror(errno.EADDRINUSE).encode()
REFEREE_SECONDS = 60.0
VLLM_SECONDS = 1800.0  # a model of hundreds of gigabytes loads slowly


class Server:
    """A server process. `start` makes it available at `url` (its `/v1`); leaving the context stops it."""

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
        """Configure the server, which `command(port)` starts on `host`.

        It must answer GET /v1/models, with `key`, within `seconds`. Otherwise its output is stored in the file `log`,
        and `reason` extracts the cause from it.
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

    def restart(self) -> None:
        """Restart the server on a new port. Raises ServiceError if it does not come up."""
        self.restarts_left -= 1
        state = "died" if not self.alive() else "no longer answers"
        log(self.name, f"the server {state} ({self.last_words()}); restarting it, {self.restarts_left} restarts left")
        self._stop()
        self.start()

    def last_words(self) -> str:
        """Return the exit code of the server and the last line of its output."""
        code = self._process.poll() if self._process else None
        self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, self._log.tell() - 600))
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        return f"exit {code}{': ' + lines[-1].strip() if lines else ''}"

    def start(self) -> None:
        """Start the server on a free port and wait until it answers. Raises ServiceError if it does not come up."""
        for _ in range(PORTS):
            with socket.socket() as free:
                free.bind((self.host, 0))
                port = free.getsockname()[1]
            self.url = f"http://{self.host}:{port}/v1"
            self.launch(port)
            if self._comes_up(port):
                return
        raise ServiceError(
            f"{self.name}: other programs took {PORTS} ports, each before its server could; expected a free port. Rerun."
        )

    def _comes_up(self, port: int) -> bool:
        """Wait until the server answers; return False if another program took its port before it did."""
        pace = ProgressRate()
        while not (self.healthy() and self.wants_key()):
            waited = pace.seconds
            if not self.alive() or waited > self.seconds:
                taken = not self.alive() and TAKEN in self._output()
                words, where = self._why()
                self._stop()
                if taken:
                    return False
                raise ServiceError(
                    f"{self.name}: its server did not come up in {clock(waited)} ({words}); expected an answer at {self.url}. "
                    f"{where}To run it by hand: {' '.join(self.command(port))}"
                )
            if pace.is_due():
                log(self.name, f"waiting for its server ({clock(waited)})")
            time.sleep(0.05)
        return True

    def launch(self, port: int) -> None:
        """Start the command without waiting for it."""
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (open as long as the server is)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "proofmill.engines.servers", "--", *self.command(port)],
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,  # signals to the job's group must not reach it: it has to stop the server
            env={**os.environ, **self.environment},
        )

    def _why(self) -> tuple[str, str]:
        """Return the reason why the server did not come up, and a sentence that names the file with its full output."""
        if self.kept is None or self.reason is None:
            return self.last_words(), ""
        self.kept.parent.mkdir(parents=True, exist_ok=True)
        self.kept.write_bytes(self._output())
        return self.reason(self._output().decode(errors="replace")), f"Its full output is in {self.kept}. "

    def _output(self) -> bytes:
        self._log.seek(0)
        return self._log.read()

    def healthy(self) -> bool:
        """Return whether the server answers within five seconds."""
        return self._status(self.key) == 200

    def wants_key(self) -> bool:
        """Return whether it refuses calls without its key; a server that answers them is another program."""
        return self.key is None or self._status(None) in (401, 403)

    def _status(self, key: str | None) -> int:
        """Return the HTTP status of its list of models; 0 without an answer."""
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
    for number in (signal.SIGINT, signal.SIGTERM):  # only the job handles them: it still uses the server for a while
        signal.signal(number, signal.SIG_IGN)
    command = sys.argv[sys.argv.index("--") + 1 :]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=_restore_signals)
    threading.Thread(target=_end_with_job, args=(process,), daemon=True).start()
    code = process.wait()
    _kill_group(process, signal.SIGKILL)  # a killed server leaves its workers running
    os._exit(code & 0xFF)  # a normal exit would wait for the reading thread


def _restore_signals() -> None:
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
