"""A teacher behind a service: equal to a loaded one up to rounding, and checked reply by reply."""

import json
import os
import shutil
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import polars as pl
import pytest
import torch

from mill import SMALL, Mill
from proofmill import grpo
from proofmill.engines.rollout_servers.served_teacher import ServedTeacher
from proofmill.engines.services.directory import Replica, Service
from proofmill.runtime import locks
from proofmill.schema.errors import ServiceError, SettingError
from trained import TAUGHT

TRAINING = {
    "model": "sft/cold", "problems": "problems/train", "grader": "arithmetic", "unscored": "drop", "teacher": "sft/taught",
    "steps": 2, "group-size": 2, "problems-per-step": 6, "learning-rate": 0.003, "max-tokens": 24, "log-every": 1,
}  # fmt: skip
SERVE = """
import json, sys
from pathlib import Path
from mill import SMALL, Mill
from proofmill.engines.services import server_job
from proofmill.engines.services.directory import Service
from trained import TAUGHT

folder = Path(sys.argv[1])
table = Mill(folder, **SMALL, **{"sft/taught": TAUGHT}).table("sft/taught")
program = server_job.weights_of(table, "--kv-cache-memory-bytes 100000000")
server_job.serve(Service(table.name, folder), 0, program, folder / "service.log")
"""


def value(table, metric: str) -> float:
    """Return a metric of the first step."""
    return next(row["value"] for row in table.rows() if row["metric"] == metric)


@pytest.mark.vllm
def test_service_teaches_as_loaded_weights_do(taught, tmp_path, monkeypatch):
    """vLLM serves the teacher; divergence and gradient of the first step are those with the teacher in this process."""
    tables = {}
    for way in ("loaded", "served"):
        shutil.copytree(taught.results, tmp_path / way)
        mill = Mill(tmp_path / way, **SMALL, **{"sft/taught": TAUGHT, "grpo/x": TRAINING})
        if way == "served":
            monkeypatch.setenv("PROOFMILL_TAUGHT_URL", "service")
            environment = {"PROOFMILL_SERVICE_HOST": "127.0.0.1", "PYTHONPATH": os.pathsep.join(sys.path)}
            served = subprocess.Popen(
                [sys.executable, "-c", SERVE, str(tmp_path / way)], env={**os.environ, **environment}
            )
        tables[way] = mill.make("grpo/x")
    served.terminate()
    served.wait()
    loaded, served = tables["loaded"], tables["served"]
    rollouts = [pl.read_parquet(table.folder / "rollouts.parquet").filter(step=1) for table in (loaded, served)]
    assert rollouts[0].equals(rollouts[1])
    assert value(served, "teacher/kl") == pytest.approx(value(loaded, "teacher/kl"), rel=1e-3)
    assert value(served, "grad_norm") == pytest.approx(value(loaded, "grad_norm"), rel=1e-2)


class Replies:
    """A server that answers with `replies` in turn, then as vLLM would; `asked` has the requests."""

    def __init__(self, results, name: str, logprob=lambda place: -0.5 * place):
        self.replies: list[tuple[int, object]] = []
        self.asked: list[dict] = []
        outer, self.service = self, Service(name, results)

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.asked.append({**body, "key": self.headers["Authorization"], "path": self.path})
                scored = [
                    None,
                    *({str(t): {"logprob": logprob(n), "rank": 1}} for n, t in enumerate(body["prompt"]) if n),
                ]
                code, reply = (
                    outer.replies.pop(0) if outer.replies else (200, {"choices": [{"prompt_logprobs": scored}]})
                )
                data = reply if isinstance(reply, bytes) else json.dumps(reply).encode()
                self.send_response(code)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self._lock = locks.alone(self.service.lock(0), "tests")
        self._lock.__enter__()
        self.service.announce(0, Replica(f"http://127.0.0.1:{self.server.server_port}/v1", "here", os.getpid()))

    def close(self):
        self._lock.__exit__(None, None, None)
        self.server.shutdown()


OUTPUTS = {
    "prompt_ids": torch.tensor([[0, 5, 6], [7, 8, 9]]), "prompt_mask": torch.tensor([[0, 1, 1], [1, 1, 1]]),
    "completion_ids": torch.tensor([[1, 2, 3], [4, 0, 0]]), "completion_mask": torch.tensor([[1, 1, 1], [1, 0, 0]]),
}  # fmt: skip


@pytest.fixture
def teaching(small, tmp_path, monkeypatch):
    """Return a teacher of `grpo/x` and the server that answers for it."""
    monkeypatch.setenv("PROOFMILL_COLD_URL", "service")
    monkeypatch.setenv("PROOFMILL_CONCURRENCY", "1")
    shutil.copytree(small.results, tmp_path / "results")
    mill = Mill(tmp_path / "results", **SMALL, **{"grpo/x": {**TRAINING, "teacher": "sft/cold"}})
    replies = Replies(mill.results, "sft/cold")
    job = type("Job", (), {"name": "grpo/x", "table": mill.table("grpo/x"), "parent": staticmethod(mill.table)})
    yield ServedTeacher(mill.config.entries["grpo/x"], job), replies
    replies.close()


@pytest.mark.slow
def test_tokens_of_each_rollout_are_scored_after_their_prompt(teaching):
    """Padding is not sent and has 0; the request names the weights by their digest, with the key of the service."""
    teacher, replies = teaching
    assert teacher.score_rollouts(OUTPUTS).tolist() == [[-1.0, -1.5, -2.0], [-1.5, 0.0, 0.0]]
    assert [one["prompt"] for one in replies.asked] == [[5, 6, 1, 2, 3], [7, 8, 9, 4]]
    assert {(one["model"], one["prompt_logprobs"], one["key"]) for one in replies.asked} == {
        (teacher.model, 0, f"Bearer {replies.service.key()}")
    }
    empty = {**OUTPUTS, "completion_mask": torch.tensor([[0, 0, 0], [1, 0, 0]])}
    assert teacher.score_rollouts(empty).tolist() == [[0.0, 0.0, 0.0], [-1.5, 0.0, 0.0]]


@pytest.mark.slow
def test_service_that_is_away_is_waited_for(teaching):
    """An overloaded replica is called once more; one that stays so ends the training after the patience, by name."""
    teacher, replies = teaching
    replies.replies = [(503, "busy")]
    teacher._patience = 30.0
    assert teacher.score_rollouts(OUTPUTS)[1, 0] == -1.5
    assert [one["prompt"][0] for one in replies.asked] == [5, 5, 7]
    replies.replies, teacher._patience = [(503, "busy")] * 100, 1.0
    with pytest.raises(ServiceError, match=r"service of sft/cold, answered: .*; expected an answer within 1 s"):
        teacher.score_rollouts(OUTPUTS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "reply", "words"),
    [
        (404, {"error": "The model `x` does not exist."}, "404 .*does not exist.*expected a vLLM server of these weights"),
        (200, {"choices": [{"text": ""}]}, "without the log-probabilities of 2 \\+ 3 tokens \\(KeyError"),
        (200, {"choices": [{"prompt_logprobs": [None] * 4}]}, "ValueError: 4 tokens"),
        (200, {"choices": [{"prompt_logprobs": [None, *[{"9": {"logprob": -1.0}}] * 4]}]}, "KeyError: '1'"),
        (200, {"choices": [{"prompt_logprobs": [None, None, *[{str(t): {"logprob": float("nan")}} for t in (1, 2, 3)]]}]}, "a value that is no number"),
        (200, [], "TypeError"),
        (200, b"<html>a proxy</html>", "JSONDecodeError"),
        (200, b"\xff", "UnicodeDecodeError"),
    ],
)  # fmt: skip
def test_other_replies_end_the_training(teaching, code, reply, words):
    """Each is named with what was expected; no number is made up."""
    teacher, replies = teaching
    replies.replies = [(code, reply)]
    with pytest.raises(ServiceError, match=words):
        teacher.score_rollouts(OUTPUTS)


@pytest.mark.slow
def test_served_teacher_needs_no_memory_and_temperature_1(monkeypatch):
    """A service has no log-probabilities at other temperatures; its weights are not in the memory plan."""
    monkeypatch.setenv("PROOFMILL_COLD_URL", "service")
    entry = Mill(None, **SMALL, **{"grpo/x": {**TRAINING, "teacher": "sft/cold", "temperature": 0.8}}).config.entries[
        "grpo/x"
    ]
    assert grpo.find_loaded_teacher(entry) is None
    with pytest.raises(
        SettingError, match=r"`temperature` is 0.8 and PROOFMILL_COLD_URL=service; expected a temperature of 1"
    ):
        ServedTeacher(entry, type("Job", (), {"name": "grpo/x"}))
    monkeypatch.delenv("PROOFMILL_COLD_URL")
    assert grpo.find_loaded_teacher(entry) == "sft/cold"
