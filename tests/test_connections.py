"""Connections: no stage reaches beyond this machine unless its recipe names something there."""

import os
import subprocess
import sys

import pytest

from mill import SMALL, Mill
from proofmill.config.identity import identity_of
from reached import alone, reached

TRAININGS = {
    "sft/alone": {**SMALL["sft/cold"], "steps": 1},
    "grpo/alone": {
        "model": "sft/cold", "problems": "problems/train", "schemes": "schemes/train", "grader": "api/referee",
        "rewards": {"grade": 1}, "unscored": "drop", "group-size": 2, "problems-per-step": 2, "steps": 1, "max-tokens": 8,
    },
}  # fmt: skip


def run(folder, *command: str) -> subprocess.CompletedProcess:
    """Run Python in a process that can reach nothing beyond this machine."""
    command = [sys.executable, *command]
    environment = {**os.environ, **alone(folder)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.sampled(0, "sft/")
@pytest.mark.parametrize("name", TRAININGS)
def test_training_reports_nothing(small, tmp_path, name):
    """Without any variable set, a training ends well and has looked up no name and opened no connection elsewhere."""
    config = Mill(small.results, **SMALL, **TRAININGS).config
    identity = identity_of(config.entries[name], config.declared)
    done = run(
        tmp_path, "-m", f"proofmill.{name.partition('/')[0]}", name, "--entry", identity, "--results", small.results
    )
    assert done.returncode == 0, done.stderr
    assert reached(tmp_path) == []


@pytest.mark.parametrize(
    ("code", "tried"),
    [
        ("import socket; socket.create_connection(('example.org', 80))", "socket.getaddrinfo example.org"),
        ("import socket; socket.socket().connect(('192.0.2.1', 80))", "socket.connect 192.0.2.1"),
        (
            "import socket; socket.socket(type=socket.SOCK_DGRAM).sendto(b'', ('192.0.2.1', 80))",
            "socket.sendto 192.0.2.1",
        ),
        ("import socket; socket.gethostbyname(b'example.org')", "socket.gethostbyname example.org"),
    ],
)
def test_process_that_reaches_elsewhere_is_found(tmp_path, code, tried):
    """Traffic that would leave this machine is refused and recorded, whatever the program makes of the refusal."""
    assert "is not this machine" in run(tmp_path, "-c", code).stderr
    assert [line.partition(": ")[0] for line in reached(tmp_path)] == [tried]


def test_library_that_would_report_is_found(tmp_path):
    """Without our package in between, the hub's client reports, swallows the refusal, and is found."""
    code = "from huggingface_hub.utils import _telemetry as t; t.send_telemetry('x'); t._TELEMETRY_QUEUE.join()"
    assert run(tmp_path, "-c", code).returncode == 0 and reached(tmp_path)
    (tmp_path / "reached").unlink()
    assert run(tmp_path, "-c", f"import proofmill; {code}").returncode == 0 and not reached(tmp_path)


def test_process_reaches_this_machine(tmp_path):
    """Servers on this machine are reached as ever."""
    code = (
        "import socket; s = socket.create_server(('127.0.0.1', 0)); socket.create_connection(s.getsockname()).close();"
        "socket.getaddrinfo('localhost', 80)"
    )
    done = run(tmp_path, "-c", code)
    assert (done.returncode, reached(tmp_path)) == (0, []), done.stderr
