"""Install exported packages next to the frameworks that they are for, and compare verdicts on stored attempts.

    python benchmarks/exports.py grades/sampled [--results results] [--attempts 1000] [--to inspect verifiers trl nemo-gym]

Each framework gets an environment of its own below build/exports (from the package index, about 1 GB together), in which
the package and its wheel are installed. Its scorer or reward grades the attempts; inspect_ai's own command evaluates a
server that repeats them. NeMo-Gym needs a Python 3.12 (`--python`), and versions that pip does not choose.
"""

import argparse
import json
import os
import subprocess
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from proofmill.artifacts.tables import Table
from proofmill.config import yaml_files
from proofmill.config.config import Config, expand
from proofmill.exports import packages

BUILD = Path("build/exports")
FURTHER = {  # packages that a framework needs, or that pip would take in another version
    "inspect": ["openai"],  # its client for servers
    "nemo-gym": ["setuptools<81", "omegaconf>=2.3,<2.4", "hydra-core>=1.3"],
}
Attempt = dict[str, Any]

DIRECT = {  # programs that read attempts as JSON from standard input and print grades as JSON
    "verifiers": """
import asyncio, json, sys
from types import SimpleNamespace
from verifiers.v1.utils.loaders import load_taskset, taskset_config_type
tasks = {task.data.problem: task for task in load_taskset(taskset_config_type(sys.argv[1])(id=sys.argv[1]))}
async def grade(row):
    try:
        return await tasks[row["problem"]].grade(SimpleNamespace(last_reply=row["text"], is_truncated=row["truncated"]))
    except Exception as error:
        return None if type(error).__name__ == "Unscored" else repr(error)
async def main():
    return [await grade(row) for row in json.load(sys.stdin)]
print(json.dumps(asyncio.run(main())))
""",
    "trl": """
import importlib, json, sys
rows = json.load(sys.stdin)
reward = importlib.import_module(sys.argv[1]).reward
print(json.dumps(reward(completions=[row["text"] for row in rows], problem=[row["problem"] for row in rows])))
""",
    "nemo-gym": """
import importlib, json, pathlib, sys
from fastapi.testclient import TestClient
from nemo_gym.config_types import BaseServerConfig
from nemo_gym.server_utils import ServerClient
from omegaconf import OmegaConf
module = importlib.import_module(sys.argv[1])
config = module.Server.model_fields["config"].annotation(name="x", host="127.0.0.1", port=1, entrypoint="app.py")
head = ServerClient(head_server_config=BaseServerConfig(host="127.0.0.1", port=2), global_config_dict=OmegaConf.create({}))
client = TestClient(module.Server(config=config, server_client=head).setup_webserver())
lines = (pathlib.Path(module.__file__).parent / "data.jsonl").read_text().splitlines()
tasks = {task["problem"]: task for task in map(json.loads, lines)}
def response(text):
    part = {"type": "output_text", "text": text, "annotations": []}
    message = {"id": "m", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
    return {"id": "r", "created_at": 1.0, "model": "m", "object": "response", "output": [message], "status": "completed",
            "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
def grade(row):
    reply = client.post("/verify", json={**tasks[row["problem"]], "response": response(row["text"])})
    return reply.json()["reward"] if reply.status_code == 200 else None
print(json.dumps([grade(row) for row in json.load(sys.stdin)]))
""",
    "inspect": """
import json, math, sys
from collections import defaultdict
from inspect_ai.log import read_eval_log
grades = defaultdict(list)
for sample in read_eval_log(sys.argv[2]).samples:
    value = sample.scores["grade"].value
    grades[sample.id].append(None if math.isnan(value) else value)
print(json.dumps(grades))
""",
}


def read_attempts(grades: str, results: Path, most: int) -> list[Attempt]:
    """Return problem, text, whether it is truncated, and the share of the points of stored attempts."""
    table = Table(grades, results)
    texts = Table(table.stamp["entry"]["responses"], results).rows("response", "text", "stop_reason")
    known = {row["response"]: row for row in texts}
    return [
        {
            "problem": row["problem"],
            "text": known[row["response"]]["text"],
            "truncated": known[row["response"]]["stop_reason"] == "length",
            "share": None if row["grade"] is None else row["grade"] / row["max_points"],
        }
        for row in table.rows("response", "problem", "grade", "max_points")[:most]
    ]


def install(to: str, package: Path, folder: Path, python: str = sys.executable) -> Path:
    """Install a package with its framework into an environment; return its folder of programs."""
    programs = folder / to / "bin"
    if not programs.exists():
        subprocess.run([python, "-m", "venv", folder / to], check=True)
    pip = [programs / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--force-reinstall", "--no-deps", *(package / "wheels").glob("*.whl")], check=True)
    subprocess.run([*pip, "--find-links", package / "wheels", package.resolve(), *FURTHER.get(to, [])], check=True)
    return programs


@contextmanager
def repeating(attempts: list[Attempt], tasks: Path) -> Iterator[str]:
    """Serve the attempts at each problem in turn over the OpenAI protocol, and yield the address."""
    lines = map(json.loads, tasks.read_text(encoding="utf-8").splitlines())
    problem_of = {task["messages"][-1]["content"]: task["problem"] for task in lines}
    stored, turn, lock = defaultdict(list), Counter[str](), threading.Lock()
    for attempt in attempts:
        stored[attempt["problem"]].append(attempt)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["messages"][-1]["content"]
            problem = problem_of[asked if isinstance(asked, str) else asked[0]["text"]]
            with lock:
                attempt = stored[problem][turn[problem] % len(stored[problem])]
                turn[problem] += 1
            message = {"role": "assistant", "content": attempt["text"]}
            choice = {"index": 0, "finish_reason": "length" if attempt["truncated"] else "stop", "message": message}
            usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
            reply = {
                "id": "x",
                "object": "chat.completion",
                "created": 1,
                "model": "m",
                "choices": [choice],
                "usage": usage,
            }
            content = json.dumps(reply).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()


def compare(
    to: str, package: Path, attempts: list[Attempt], folder: Path, python: str = sys.executable
) -> tuple[int, int]:
    """Return how many verdicts were compared in a framework, and how many differ."""
    programs, name = install(to, package, folder, python), next(package.glob("*/tasks.jsonl")).parent.name
    run: list[Any] = [programs / "python", "-c", DIRECT[to], name]
    if to != "inspect":
        done = subprocess.run(run, input=json.dumps(attempts), check=True, capture_output=True, text=True, cwd=folder)
        grades = json.loads(done.stdout.splitlines()[-1])
        return len(attempts), sum(not alike(a["share"], grade) for a, grade in zip(attempts, grades, strict=True))
    by_problem = defaultdict(list)
    for attempt in attempts:
        by_problem[attempt["problem"]].append(attempt["share"])
    times = Counter(map(len, by_problem.values())).most_common(1)[0][0]
    logs = folder / "logs"
    with repeating(attempts, package / name / "tasks.jsonl") as url:
        environment = {**os.environ, "LOCAL_BASE_URL": url, "LOCAL_API_KEY": "none"}
        options = ["--model", "openai-api/local/m", "--epochs", str(times), "--limit", str(len(by_problem))]
        command = [programs / "inspect", "eval", f"{name}/{name}", *options, "--log-dir", logs, "--display", "none"]
        subprocess.run(command, check=True, env=environment, cwd=folder, capture_output=True)
    (log,) = sorted(logs.glob("*.eval"))[-1:]
    done = subprocess.run([*run, log], check=True, capture_output=True, text=True)
    scored = json.loads(done.stdout.splitlines()[-1])
    pairs = [
        pair
        for problem, shares in by_problem.items()
        if problem in scored and len(shares) == times
        for pair in zip(sorted(shares, key=str), sorted(scored[problem], key=str), strict=True)
    ]
    return len(pairs), sum(not alike(*pair) for pair in pairs)


def alike(share: float | None, grade: Any) -> bool:
    """Return whether two shares are equal up to rounding; None equals None alone."""
    if share is None or not isinstance(grade, float | int):
        return share is grade
    return abs(share - grade) < 1e-9


def main() -> None:
    """Print the counts for each framework."""
    parser = argparse.ArgumentParser(description="Compare verdicts of exported packages.")
    parser.add_argument("grades")
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--attempts", type=int, default=1000)
    parser.add_argument("--to", nargs="+", default=["inspect", "verifiers", "trl"], choices=[*packages.FRAMEWORKS])
    parser.add_argument("--python", default=sys.executable, help="interpreter of the environments")
    options = parser.parse_args()
    config: Config = expand(yaml_files.read("config.yaml"))
    attempts = read_attempts(options.grades, options.results, options.attempts)
    for to in options.to:
        package = BUILD / "packages" / to
        if not package.exists():
            packages.export(config, options.grades, to, package, options.results)
        number, differ = compare(to, package, attempts, BUILD.resolve(), options.python)
        print(f"{to}: {number:,} verdicts compared, {differ} differ", flush=True)


if __name__ == "__main__":
    main()
