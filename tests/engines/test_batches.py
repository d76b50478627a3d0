"""Batch APIs: submitted once, merged into the journal, half the price, and nothing lost or paid twice by any kill or fault."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from mill import Mill
from proofmill.artifacts.maintenance.invalidation import invalidate
from proofmill.calls import records
from proofmill.calls.batches.batch_log import Batch, BatchLog
from proofmill.calls.model_requests import ModelRequest
from proofmill.engines.open_engine import open_api
from proofmill.planning.plan import RunPlan
from proofmill.schema.errors import ServiceError, SettingError
from served import good

PRICE = {"input": 100.0, "output": 200.0}
ENTRIES = {
    "problems/p": {"source": "arithmetic", "rows": 12},
    "api/solver": {
        "id": "m",
        "price": PRICE,
        "price-source": "made up, 2026-11-27",
        "max-tokens": 100,
        "max-failed": 1,
    },
    "responses/r": {"problems": "problems/p", "model": "api/solver", "attempts": 2, "prompt": "verbatim"},
}


class BatchServer:
    """A server that speaks files and batches, and single calls. `faults` are popped by the word of a request."""

    def __init__(self, steps=1):
        self.files, self.batches, self.looked = {}, {}, {}
        self.paid, self.single, self.steps = [], 0, steps
        self.faults, self.lock = {}, threading.Lock()
        self.edit = lambda number, lines: (lines, [])  # (output lines, error lines) of the batch
        self.ends = lambda number: "completed"

    def fault(self, word):
        return self.faults.get(word, []) and self.faults[word].pop(0)

    def answer(self, method, path, body, content_type):
        """Return (status, content); None closes the connection without a reply."""
        if path == "/v1/chat/completions":
            self.single += 1
            self.paid.append(json.dumps(json.loads(body)))
            return 200, good("singly")
        if path == "/v1/files":
            boundary = re.search("boundary=(.*)", content_type)[1].strip('"').encode()
            part = next(part for part in body.split(b"--" + boundary) if b'name="file"' in part)
            name = f"file-{len(self.files)}"
            self.files[name] = part.partition(b"\r\n\r\n")[2].rstrip(b"\r\n") + b"\n"
            return self.fault("files") or (200, {"id": name, "object": "file", "bytes": 1, "created_at": 1, "filename": "x",
                                                 "purpose": "batch", "status": "processed"})  # fmt: skip
        if path == "/v1/batches" and method == "POST":
            asked = json.loads(body)
            if (fault := self.fault("create")) and fault != "lost":
                return fault
            name = f"batch-{len(self.batches)}"
            self.batches[name] = asked
            self.looked[name] = 0
            self.paid += [
                json.dumps(json.loads(line)["body"]) for line in self.files[asked["input_file_id"]].splitlines()
            ]
            return None if fault == "lost" else (200, self.record(name))
        if path == "/v1/batches":
            listed = [self.record(name) for name in reversed(self.batches)]
            return self.fault("list") or (200, {"object": "list", "data": listed, "has_more": False})
        if match := re.fullmatch(r"/v1/batches/(batch-\d+)", path):
            self.looked[match[1]] += 1
            return self.fault("look") or (200, self.record(match[1]))
        if match := re.fullmatch(r"/v1/files/(out|err)-batch-(\d+)/content", path):
            return self.fault("content") or (200, self.results(int(match[2]), match[1]))
        return 404, {"error": {"message": "no such path"}}

    def record(self, name):
        number, asked = int(name.partition("-")[2]), self.batches[name]
        ended = self.looked[name] >= self.steps
        status = self.ends(number) if ended else "in_progress"
        return {"id": name, "object": "batch", "endpoint": asked["endpoint"], "input_file_id": asked["input_file_id"],
                "completion_window": "24h", "status": status, "created_at": 1, "metadata": asked["metadata"],
                "output_file_id": f"out-{name}" if ended and status != "failed" else None,
                "error_file_id": f"err-{name}" if ended and self.results(number, "err") else None}  # fmt: skip

    def results(self, number, kind):
        asked = self.files[self.batches[f"batch-{number}"]["input_file_id"]].splitlines()
        lines = []
        for line in map(json.loads, reversed(asked)):  # in another order
            body = good(f"said {line['body']['seed']}")
            usage = {"prompt_tokens": 30, "completion_tokens": 10, "total_tokens": 40}
            reply = {"status_code": 200, "request_id": "r", "body": {**body, "model": "m", "usage": usage}}
            lines.append({"id": "x", "custom_id": line["custom_id"], "response": reply, "error": None})
        out, err = self.edit(number, lines)
        return b"".join(
            x if isinstance(x, bytes) else f"{json.dumps(x)}\n".encode() for x in (out if kind == "out" else err)
        )


@contextmanager
def serving(server):
    """Serve it, and yield the address."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self):
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            with server.lock:
                reply = server.answer(self.command, self.path.partition("?")[0], body, self.headers.get("Content-Type"))
            if reply is None:
                self.close_connection = True
                return
            content = reply[1] if isinstance(reply[1], bytes) else json.dumps(reply[1]).encode()
            try:
                self.send_response(reply[0])
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)
            except OSError:
                self.close_connection = True

        do_GET = do_POST = handle_any

        def log_message(self, *_):
            pass

    running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    running.daemon_threads, running.request_queue_size = True, 128
    threading.Thread(target=running.serve_forever, args=(0.02,), daemon=True).start()
    yield f"http://127.0.0.1:{running.server_port}/v1"
    running.shutdown()
    running.server_close()


@pytest.fixture
def made(tmp_path, monkeypatch):
    """Return a function that makes the responses by a server's batches, with a budget, and returns the mill."""

    def make(server, budget=None, **entries):
        mill = Mill(tmp_path / "results", **{**ENTRIES, **entries})
        mill.config = (
            mill.config if budget is None else mill.config.__class__(**{**vars(mill.config), "budget": budget})
        )
        with serving(server) as url:
            monkeypatch.setenv("PROOFMILL_SOLVER_URL", url)
            monkeypatch.setenv("PROOFMILL_SOLVER_BATCH", "1")
            monkeypatch.setenv("PROOFMILL_BATCH_SECONDS", "0.02")
            mill.make("problems/p", *(entries or ["responses/r"]))
        return mill

    monkeypatch.setattr("proofmill.engines.batches.batch_engine.LOOK", 0.01)
    monkeypatch.setattr("proofmill.engines.batches.batch_engine.backoff", lambda _: 0.02)
    return make


def texts(mill) -> list[str]:
    return [row["text"] for row in mill.table("responses/r").rows()]


def test_batch_answers_all_rows_at_half_the_price(made):
    """One batch, each request once; rows, order and costs are those of single calls at half the price."""
    server = BatchServer(steps=3)
    mill = made(server)
    assert len(server.batches) == 1 and len(server.paid) == len(set(server.paid)) == 24 and server.single == 0
    assert all(text.startswith("said ") for text in texts(mill)) and len(set(texts(mill))) == 24
    assert mill.table("responses/r").stamp["cost"] == pytest.approx(24 * (30 * 100 + 10 * 200) / 1e6 / 2)
    assert BatchLog(mill.table("responses/r").calls, "m").open() == []


@pytest.mark.parametrize(
    ("word", "faults"),
    [
        ("files", [(500, {}), (429, {})]),
        ("create", [(503, {}), (500, {})]),
        ("create", ["lost"]),
        ("create", ["lost", (500, {})]),
        ("list", [(500, {})]),
        ("look", [(500, {}), (502, b"<html>"), (429, {})]),
        ("content", [(500, {}), (500, {})]),
    ],
)
def test_fault_of_the_protocol_is_tried_again(made, word, faults):
    """Nothing is paid twice, also if the server created a batch and its reply was lost."""
    server = BatchServer()
    server.faults[word] = faults
    mill = made(server)
    assert len(server.paid) == 24 and len(texts(mill)) == 24 and server.single == 0


def test_refused_batch_api_says_what_to_do(made):
    """A server without batches stops the stage at once."""
    server = BatchServer()
    server.faults["files"] = [(404, {"error": {"message": "no files here"}})]
    with pytest.raises(ServiceError, match=r"its batch API fails .*or unset PROOFMILL_SOLVER_BATCH"):
        made(server)


def test_what_a_batch_failed_is_called_singly(made):
    """Errors, refused statuses, unreadable bodies and empty texts; torn and foreign lines are ignored."""

    def edit(number, lines):
        failed = [{**line, "response": None, "error": {"code": "x", "message": "y"}} for line in lines[:2]]
        failed.append({**lines[2], "response": {"status_code": 500, "body": {}}})
        odd = [{**lines[3], "response": {"status_code": 200, "body": {"choices": 7}}}]
        odd.append({**lines[4], "response": {"status_code": 200, "body": good("")}})
        foreign = [{**lines[5], "custom_id": "another"}, b'{"custom_id": "torn', b"\n", b"[1]\n"]
        return [*lines[5:], *odd, *foreign], failed

    server = BatchServer()
    server.edit = edit
    mill = made(server)
    assert server.single == 5 and texts(mill).count("singly") == 5 and len(server.batches) == 1
    full, half = (10 * 100 + 2 * 200) / 1e6, 24 * (30 * 100 + 10 * 200) / 1e6 / 2
    assert full * 5 < mill.table("responses/r").stamp["cost"] < half + 1  # single calls at the full price


def test_unusable_reply_of_a_batch_costs_what_it_says(made, monkeypatch):
    """A reply without a text is paid: its usage at half the price is in the row, once also after a kill in the merge."""
    usage = {"prompt_tokens": 30, "completion_tokens": 10, "total_tokens": 40}
    server = BatchServer()
    server.edit = lambda number, lines: (
        [*lines[1:], {**lines[0], "response": {"status_code": 200, "body": {**good(""), "usage": usage}}}],
        [],
    )
    add, killed = BatchLog.add, []

    def kill(log, step, batch):
        if step == "merged" and not killed:
            killed.append(batch)
            raise KeyboardInterrupt
        add(log, step, batch)

    monkeypatch.setattr(BatchLog, "add", kill)
    with pytest.raises(KeyboardInterrupt):
        made(server)
    mill = made(server)
    half, full = (30 * 100 + 10 * 200) / 1e6 / 2, (10 * 100 + 2 * 200) / 1e6
    rows = {row["text"]: row["cost"] for row in mill.table("responses/r").rows()}
    assert rows.pop("singly") == pytest.approx(half + full) and server.single == 1
    assert list(rows.values()) == pytest.approx([half] * 23)
    assert records.cost(mill.table("responses/r").calls) == pytest.approx(24 * half + full)


def test_unreadable_reply_of_a_batch_costs_its_maximum_with_a_budget(made):
    """As for single calls: its price is not known, so that the most it may cost is taken from the budget."""
    server = BatchServer()
    odd = {"status_code": 200, "body": {"choices": 7}}
    server.edit = lambda number, lines: ([*lines[1:], {**lines[0], "response": odd}], [])
    cost = records.cost(made(server, budget=10.0).table("responses/r").calls)
    half, full = (30 * 100 + 10 * 200) / 1e6 / 2, (10 * 100 + 2 * 200) / 1e6
    assert server.single == 1 and cost > 23 * half + full + 100 * 200 / 1e6 / 2


def test_overlong_reply_of_a_batch_without_usage_costs_what_it_has(made):
    """With a budget, a reply that is clearly longer than allowed costs a token for every two bytes, as for single calls."""
    server, text = BatchServer(), "word salad " * 500
    body = {**good(text), "usage": None}
    server.edit = lambda number, lines: (
        [{**line, "response": {"status_code": 200, "body": body}} for line in lines],
        [],
    )
    cost = records.cost(made(server, budget=10.0).table("responses/r").calls)
    assert cost > 24 * len(text) / 2 * 200 / 1e6 / 2


def test_single_calls_of_what_a_batch_failed_stay_within_the_budget(made, tmp_path):
    """They cost twice as much as in a batch, and so much is reserved for each."""
    server = BatchServer()
    server.edit = lambda number, lines: ([], [{**line, "response": None, "error": {"code": "x"}} for line in lines])
    answer, used = server.answer, {"prompt_tokens": 30, "completion_tokens": 100}
    server.answer = lambda method, path, *more: (
        (200, {**good("word salad " * 8), "usage": used}) if "completions" in path else answer(method, path, *more)
    )
    with pytest.raises(SystemExit, match="the budget of"):
        made(server, budget=0.015)
    assert records.cost(tmp_path / "results/calls/responses/r") <= 0.015


def test_trial_call_has_the_full_price(tmp_path, monkeypatch):
    """`proofmill check` calls the model outside of a batch."""
    api, costs = Mill(tmp_path / "results", **ENTRIES).config.declared["api/solver"], []
    for batched in "01":
        with serving(BatchServer()) as url:
            monkeypatch.setenv("PROOFMILL_SOLVER_URL", url)
            monkeypatch.setenv("PROOFMILL_SOLVER_BATCH", batched)
            with open_api("api/solver", api) as engine:
                costs.append(engine.try_out(ModelRequest("m", (("user", "Say yes."),)), 9.0)[1].cost)
    assert costs[0] == costs[1] > 0


def test_line_of_any_shape_fails_its_row_alone(made):
    """A response that is a text, a status in quotes, an error without content, an item nested without end."""

    def edit(number, lines):
        odd = [{**lines[0], "response": "overloaded"}, {**lines[1], "response": [7]}]
        quoted = {**lines[2], "response": {**lines[2]["response"], "status_code": "200"}}
        empty = {**lines[3], "error": {"code": None, "message": None}}
        return [*lines[4:], *odd, quoted, empty, b'{"custom_id": ' + b"[" * 200_000 + b"\n"], []

    server = BatchServer()
    server.edit = edit
    assert texts(made(server)).count("singly") == 2 and server.single == 2


def test_fields_that_a_server_refuses_are_left_out_of_the_next_batch(made):
    """One neutral field after the other, at half the price; the table says which."""
    server, refused = BatchServer(), ["presence_penalty", "frequency_penalty"]

    def edit(number, lines):
        asked = json.loads(server.files[server.batches[f"batch-{number}"]["input_file_id"]].splitlines()[0])["body"]
        if named := [name for name in refused if name in asked][:1]:
            body = {"error": {"message": f"Unsupported parameter: '{named[0]}' is not supported with this model."}}
            return [], [{**line, "response": {"status_code": 400, "body": body}} for line in lines]
        return lines, []

    server.edit = edit
    mill = made(server)
    assert len(server.batches) == 3 and server.single == 0 and len(texts(mill)) == 24
    assert any("does not accept" in notice for notice in mill.table("responses/r").stamp["notices"])


@pytest.mark.parametrize("status", ["expired", "cancelled", "failed"])
def test_ended_batch_gives_what_it_has(made, status):
    """Rows without an answer are in a second batch, and singly after that."""
    server = BatchServer()
    server.ends = lambda number: status if number == 0 else "completed"
    server.edit = lambda number, lines: (lines[:10] if number == 0 else lines[:-1], [])
    mill = made(server)
    answered = 0 if status == "failed" else 10
    assert len(server.batches) == 2 and server.single == 1 and len(texts(mill)) == 24
    second = server.files[server.batches["batch-1"]["input_file_id"]].splitlines()
    assert len(second) == 24 - answered


def test_answers_to_requests_of_a_later_moment_are_kept(made, monkeypatch):
    """A rerun that reads its requests in smaller parts merges a batch in parts, and pays for none again."""
    server = BatchServer()
    server.ends = lambda number: "in_progress"
    with pytest.raises(ServiceError), monkeypatch.context() as patch:
        server.faults["look"] = [(404, {"error": {"message": "away"}})]
        patch.setattr("proofmill.engines.batches.batch_engine.MOST", 24)
        made(server)
    server.ends = lambda number: "completed"
    monkeypatch.setattr("proofmill.engines.batches.batch_engine.MOST", 7)
    mill = made(server)
    assert len(server.batches) == 1 and len(server.paid) == 24 and server.single == 0
    assert len(set(texts(mill))) == 24 and BatchLog(mill.table("responses/r").calls, "m").open() == []


def test_invalidated_outputs_are_asked_for_again(made):
    """A batch with the same requests as an earlier one is another batch, and costs again."""
    server = BatchServer()
    mill = made(server)
    invalidate(mill.config, mill.table("responses/r"), everything=True)
    mill = made(server)
    assert len(server.batches) == 2 and len(server.paid) == 48
    assert records.cost(mill.table("responses/r").calls) == pytest.approx(48 * (30 * 100 + 10 * 200) / 1e6 / 2)


def test_failed_batches_are_not_merged_again(made):
    """After two batches that failed and a server without credit, a rerun submits a new batch."""
    server = BatchServer()
    server.ends = lambda number: "failed" if number < 2 else "completed"
    answer, broke = server.answer, {"error": {"message": "no credit", "code": "insufficient_quota"}}
    server.answer = lambda method, path, *more: (429, broke) if "completions" in path else answer(method, path, *more)
    with pytest.raises(SystemExit, match="refuses every call"):
        made(server)
    assert len(server.batches) == 2 and len(set(texts(made(server)))) == 24
    assert len(server.batches) == 3 and server.single == 0


EDITED = {**ENTRIES["responses/r"], "prompt": "solve-any"}


@pytest.fixture
def left(made):
    """Return a server with a batch of 24 requests that a stopped job has left in progress."""
    server = BatchServer(steps=10**9)
    server.faults["look"] = [(404, {"error": {"message": "away"}})]
    with pytest.raises(ServiceError):
        made(server, budget=1.0)
    return server


def test_batch_that_no_request_needs_counts(made, left):
    """After an edit, the cost of a batch is in the journal, and its outputs are used again when the edit is reverted."""
    left.steps = 1
    half = (30 * 100 + 10 * 200) / 1e6 / 2
    mill = made(left, budget=1.0, **{"responses/r": EDITED})
    assert len(left.batches) == 2 and records.cost(mill.table("responses/r").calls) == pytest.approx(48 * half)
    mill = made(left, budget=1.0)
    assert len(left.batches) == 2 and len(set(texts(mill))) == 24
    assert mill.table("responses/r").stamp["cost"] == pytest.approx(24 * half)


@pytest.mark.parametrize("name", ["responses/r", "responses/q"])
def test_batch_of_a_stopped_job_keeps_its_part_of_the_budget(made, left, name):
    """As long as no job has merged it, neither its own table's rerun nor another table can spend those dollars."""
    with pytest.raises(SystemExit, match=r"the budget of \$0.25 is spent"):
        made(left, budget=0.25, **{name: EDITED})
    assert len(left.paid) == 24
    left.steps = 1
    made(left, budget=1.0, **{name: EDITED})  # there is room next to them
    assert len(left.paid) == 48


def test_budget_bounds_the_batches(made):
    """Batches are cut to what the budget allows; when it is spent, the stage stops with a valid journal."""
    server = BatchServer()
    with pytest.raises(SystemExit, match="the budget of"):
        made(server, budget=0.05)
    assert 0 < len(server.paid) < 24


def test_plan_has_half_the_price(tmp_path, monkeypatch):
    """Dollars of the plan, with a sentence that says why."""
    monkeypatch.setenv("PROOFMILL_SOLVER_URL", "http://127.0.0.1:1/v1")
    entries = {**ENTRIES, "api/solver": {**ENTRIES["api/solver"], "expected-tokens": {"input": 100, "output": 50}}}
    mill = Mill(tmp_path / "results", **entries)
    mill.make("problems/p")
    dollars = []
    for value in ("0", "1"):
        monkeypatch.setenv("PROOFMILL_SOLVER_BATCH", value)
        plan = RunPlan(mill.config, "responses/r", mill.results)
        dollars.append(plan.totals.dollars.value)
    assert dollars[1] == dollars[0] / 2 > 0
    assert "api/solver is called by batches, at half the price and within a day" in "\n".join(plan.lines())
    monkeypatch.setenv("PROOFMILL_SOLVER_BATCH", "yes")
    with pytest.raises(SettingError, match="expected 1 to call the model by batches"):
        RunPlan(mill.config, "responses/r", mill.results).totals  # noqa: B018


def test_log_of_batches_survives_a_torn_line(tmp_path):
    """An unfinished step counts as not taken."""
    log = BatchLog(tmp_path, "m")
    log.add("intended", Batch("d1", frozenset({"k1", "k2"})))
    with open(log.path, "ab") as file:
        file.write(b'{"model": "m", "step": "crea')
    assert [(batch.digest, batch.id, batch.keys) for batch in log.open()] == [("d1", None, frozenset({"k1", "k2"}))]
    log.add("created", Batch("d1", frozenset(), "b-7"))
    log.add("intended", Batch("d2", frozenset({"k3"})))
    assert [(batch.digest, batch.id) for batch in log.open()] == [("d1", "b-7"), ("d2", None)]
    log.add("merged", Batch("d1", frozenset(), "b-7"))
    assert [batch.digest for batch in log.open()] == ["d2"] and BatchLog(tmp_path, "other").open() == []


@pytest.mark.long
@pytest.mark.parametrize("seed", range(8))
def test_kills_lose_nothing_and_pay_nothing_twice(tmp_path, seed):
    """Five kills at any moment between submission and merge, next to faults of the server: every request is paid once."""
    (tmp_path / "config.yaml").write_text(json.dumps({"results": "results", "r": ENTRIES}))
    server, chance = BatchServer(steps=10**9), random.Random(seed)
    job = [sys.executable, "-m", "proofmill.responses", "responses/r"]
    with serving(server) as url:
        variables = {
            **os.environ,
            "PROOFMILL_SOLVER_URL": url,
            "PROOFMILL_SOLVER_BATCH": "1",
            "PROOFMILL_BATCH_SECONDS": "0.05",
        }
        problems = [sys.executable, "-m", "proofmill.problems", "problems/p"]
        subprocess.run(problems, cwd=tmp_path, check=True, env=variables, capture_output=True)
        for kill in range(5):
            with server.lock:
                lost = ["lost"] * (chance.random() < 0.5)
                server.faults = {"create": lost, "look": [(500, {})] * chance.randint(0, 2)}
                server.steps = 2 if kill == 4 else 10**9  # the last kill is around the merge
                sent = len(server.files), sum(server.looked.values())
            running = subprocess.Popen(
                job, cwd=tmp_path, env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            deadline = time.monotonic() + 60
            while running.poll() is None and sent == (len(server.files), sum(server.looked.values())):
                assert time.monotonic() < deadline
                time.sleep(0.002)
            time.sleep(chance.random() * 0.3)
            running.send_signal(signal.SIGKILL)
            running.wait()
        with server.lock:
            server.steps, server.faults = 1, {}
        done = subprocess.run(job, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(server.paid) == len(set(server.paid)) == 24 and server.single == 0
    frame = records.frame(tmp_path / "results/calls/responses/r")
    assert frame.height == 24 and set(frame["reason"]) == {"ok"}
