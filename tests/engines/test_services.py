"""Services: a model served by a separate job is found, balanced, waited for and supervised."""

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from proofmill.calls.budget import Budget
from proofmill.calls.calls import Asker
from proofmill.calls.journal import Journal
from proofmill.calls.model_requests import ModelRequest, Requests
from proofmill.config.entry_values import entry_from
from proofmill.engines.open_engine import open_api
from proofmill.engines.servers import Server
from proofmill.engines.services import balancing, server_job, start_on_demand
from proofmill.engines.services.balancing import Balance
from proofmill.engines.services.directory import Replica, Service
from proofmill.runtime import locks
from proofmill.schema.errors import ServiceError, SettingError

pytestmark = pytest.mark.slow

REFEREE = {"id": "referee-1", "program": "referee", "price": {"input": 0, "output": 0}, "temperature": 0}
SERVE = """
import sys
from pathlib import Path
from proofmill.engines.services import server_job
from proofmill.engines.services.directory import Service

service = Service("api/referee", Path(sys.argv[1]))
server_job.serve(service, int(sys.argv[2]), server_job.referee(), Path(sys.argv[1], f"service-{sys.argv[2]}.log"))
"""


@contextmanager
def served(results: Path, replica: int = 0, **environment: str):
    """Run the job of one replica, and kill it at the end."""
    process = subprocess.Popen(
        [sys.executable, "-c", SERVE, str(results), str(replica)],
        env={**os.environ, "PROOFMILL_SERVICE_HOST": "127.0.0.1", **environment},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def until(condition, seconds: float = 60.0):
    """Wait for a condition that must come true, and return its value."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "it did not come true"
        time.sleep(0.05)
    return found


def ask(results: Path, count: int, name: str = "x") -> list[str]:
    """Return the reasons of `api/referee`'s answers to `count` requests, as a job gets them."""
    made = [(str(n), ModelRequest("referee-1", (("user", f"question {n}"),))) for n in range(count)]
    api = entry_from("api", REFEREE)
    with open_api("api/referee", api, None, results) as engine, Journal(results / "calls/test" / name) as journal:
        answers = Asker(f"test/{name}", engine, journal, Budget(None, results / "calls", journal))
        return [answer.reason for answer in answers(Requests(count, lambda: made))]


@pytest.fixture
def by_service(monkeypatch):
    monkeypatch.setenv("PROOFMILL_REFEREE_URL", "service")


def test_service_is_found_and_ends_when_no_job_needs_it(tmp_path, by_service):
    """A job finds the address and the key automatically. Some seconds after the last job the service ends cleanly."""
    service = Service("api/referee", tmp_path)
    with served(tmp_path, PROOFMILL_SERVICE_IDLE_SECONDS="2") as job:
        (replica,) = until(service.replicas)
        with service.keep_alive():
            assert service.is_needed()
            time.sleep(3.5)
            assert job.poll() is None
        assert ask(tmp_path, 20) == ["ok"] * 20
        assert replica.process == job.pid and not service.is_needed()
        assert job.wait(30) == 0
    assert not service.replicas() and not list(service.folder.glob("*.json"))


def test_replicas_that_check_at_once_do_not_need_the_service_themselves(tmp_path):
    """Two replicas that check without a pause see a job that makes calls, and never each other."""
    service = Service("api/x", tmp_path)
    with service.keep_alive():
        assert service.is_needed()
    looks: list[bool] = []
    replicas = [
        threading.Thread(target=lambda: looks.extend([service.is_needed() for _ in range(3000)])) for _ in range(2)
    ]
    for replica in replicas:
        replica.start()
    for replica in replicas:
        replica.join()
    assert len(looks) == 6000 and not any(looks)


@pytest.mark.long
def test_jobs_that_come_first_wait_for_the_service(tmp_path, by_service):
    """No call fails because a service is still in the queue."""
    answers: list[str] = []
    asking = threading.Thread(target=lambda: answers.extend(ask(tmp_path, 8)))
    asking.start()
    until(Service("api/referee", tmp_path).is_needed)
    with served(tmp_path):
        asking.join(60)
        assert answers == ["ok"] * 8


@pytest.mark.long
def test_service_that_never_comes_is_named(tmp_path, by_service, monkeypatch):
    """After PROOFMILL_CALL_STALL_SECONDS the stage stops, fails no rows, and names the command that starts the service."""
    monkeypatch.setenv("PROOFMILL_CALL_STALL_SECONDS", "1")
    monkeypatch.setenv("PROOFMILL_CALL_TIMEOUT", "1")
    with pytest.raises(SystemExit, match=r"its service is not up; start it: proofmill serve api/referee"):
        ask(tmp_path, 3)
    assert not (tmp_path / "calls/test/x/00001.parquet").exists()


def test_key_is_readable_by_its_owner_only_and_required(tmp_path, by_service):
    """Only the owner can read the file, all replicas have one key, and calls without it are refused."""
    service = Service("api/referee", tmp_path)
    key = service.key()
    assert service.key() == key and len(key) == 64 and (service.folder / "key").stat().st_mode & 0o777 == 0o600
    with served(tmp_path):
        (replica,) = until(service.replicas)
        (service.folder / "key").write_text("another")
        with pytest.raises(SystemExit, match="wrong key") as refused:
            ask(tmp_path, 3)
        assert key not in str(refused.value) and replica.url


def test_server_that_dies_is_started_again_by_its_service(tmp_path, by_service):
    """Its job announces the new address; calling jobs only notice a delay."""
    service = Service("api/referee", tmp_path)
    with served(tmp_path) as job:
        (before,) = until(service.replicas)
        for process in psutil.Process(job.pid).children(recursive=True):
            if (
                "proofmill.synthetic.referee" in process.cmdline()
                and "proofmill.engines.servers" not in process.cmdline()
            ):
                process.kill()
        after = until(lambda: [replica for replica in service.replicas() if replica != before])
        assert after[0].url != before.url and ask(tmp_path, 8) == ["ok"] * 8


def test_killed_replica_leaves_its_calls_to_the_others(tmp_path, by_service, monkeypatch):
    """One of two replicas is killed with calls in flight; all are answered, and none fails."""
    monkeypatch.setenv("PROOFMILL_CONCURRENCY", "4")
    service, slow = Service("api/referee", tmp_path), json.dumps({"delay": 0.05})
    with served(tmp_path, 0, PROOFMILL_REFEREE_FAULTS=slow) as one, served(tmp_path, 1, PROOFMILL_REFEREE_FAULTS=slow):
        until(lambda: len(service.replicas()) == 2)
        answers: list[str] = []
        asking = threading.Thread(target=lambda: answers.extend(ask(tmp_path, 200)))
        asking.start()
        tail = tmp_path / "calls/test/x/calls.jsonl"
        until(lambda: tail.exists() and len(tail.read_bytes().splitlines()) > 40)
        one.send_signal(signal.SIGKILL)
        asking.join(120)
        assert answers == ["ok"] * 200
        assert len(service.replicas()) == 1


def test_concurrent_callers_get_one_key(tmp_path):
    """Also among threads of one process, one creates it, and no temporary files remain."""
    begin = threading.Barrier(32, timeout=30)
    for number in range(10):
        service = Service(f"api/judge-{number}", tmp_path)
        with ThreadPoolExecutor(32) as threads:
            keys = set(threads.map(lambda service: (begin.wait(), service.key())[1], [service] * 32))
        assert len(keys) == 1 and [path.name for path in service.folder.iterdir()] == ["key"]


def test_service_is_started_by_the_first_job_that_needs_it_and_again_when_it_was_killed(
    tmp_path, by_service, monkeypatch
):
    """One of two concurrent jobs runs the site's command; after kill -9 the next job does."""
    script = tmp_path / "serve.py"
    script.write_text(SERVE)
    command = f"echo submitted >>{tmp_path}/submitted; {sys.executable} {script} {tmp_path} 0 & echo job 7 of {{name}}"
    monkeypatch.setenv("PROOFMILL_SERVICE_COMMAND", command)
    monkeypatch.setenv("PROOFMILL_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("PROOFMILL_SERVICE_IDLE_SECONDS", "5")
    service = Service("api/referee", tmp_path)
    answers: list[str] = []
    asking = [threading.Thread(target=lambda name=name: answers.extend(ask(tmp_path, 8, name))) for name in "ab"]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join(60)
    assert answers == ["ok"] * 16 and (tmp_path / "submitted").read_text() == "submitted\n"
    assert "job 7 of api/referee" in (service.folder / "start.log").read_text()
    (replica,) = service.replicas()
    os.kill(replica.process, signal.SIGKILL)
    until(lambda: not service.has_job())
    assert ask(tmp_path, 8, "c") == ["ok"] * 8
    assert (tmp_path / "submitted").read_text() == "submitted\n" * 2
    until(lambda: not service.has_job())


def test_service_that_does_not_last_is_not_started_for_ever(tmp_path, by_service, monkeypatch):
    """A request may crash its server, so a job starts the service three times an hour, and then gives up."""
    monkeypatch.setattr(balancing, "AVOIDED", 0.1)
    monkeypatch.setattr(balancing, "PATIENT", 0.5)
    monkeypatch.setenv("PROOFMILL_CALL_STALL_SECONDS", "6")
    monkeypatch.setenv("PROOFMILL_CALL_TIMEOUT", "6")
    requested = Service("api/referee", tmp_path).requested  # it started and died at once
    monkeypatch.setenv("PROOFMILL_SERVICE_COMMAND", f"echo >>{tmp_path}/submitted; (sleep 0.2; rm -f {requested}) &")
    with pytest.raises(SystemExit, match="its service is not up"):
        ask(tmp_path, 3)
    assert len((tmp_path / "submitted").read_text().splitlines()) == 3


def test_command_that_cannot_start_a_service_is_named_with_its_output(tmp_path, by_service, monkeypatch):
    """The stage stops at once, and the next run tries again."""
    monkeypatch.setenv("PROOFMILL_SERVICE_COMMAND", "echo no such partition; exit 3")
    for _ in range(2):
        with pytest.raises(SettingError, match=r"PROOFMILL_SERVICE_COMMAND: .* ended with 3 \(no such partition\)"):
            ask(tmp_path, 3)


def test_second_request_for_a_service_within_the_hour_runs_nothing(tmp_path, monkeypatch):
    """A job that was submitted and has not started is waited for; after an hour it counts as lost."""
    service = Service("api/referee", tmp_path)
    service.folder.mkdir(parents=True)
    monkeypatch.setenv("PROOFMILL_SERVICE_COMMAND", f"echo >>{tmp_path}/submitted")
    assert [start_on_demand.request_start(service) for _ in range(2)] == [True, False]
    assert (tmp_path / "submitted").read_text() == "\n"
    for age, started in ((start_on_demand.AGAIN - 60, False), (start_on_demand.AGAIN + 60, True)):
        service.requested.write_text(f"{time.time() - age:.0f}")
        assert start_on_demand.request_start(service) is started
    assert (tmp_path / "submitted").read_text() == "\n\n"


def test_service_that_fails_before_it_serves_can_be_started_at_once(tmp_path, monkeypatch):
    """A failing job removes its request; a dry run does not."""
    service, folder = Service("base/tiny", tmp_path / "results"), tmp_path / "project"
    folder.mkdir()
    (folder / "config.yaml").write_text("recipes: []\n")
    monkeypatch.chdir(folder)
    service.folder.mkdir(parents=True)
    service.requested.write_text(f"{time.time():.0f}")
    command = [sys.executable, "-m", "proofmill", "serve", "base/tiny", "--results", str(tmp_path / "results")]
    for options, there in ((["--dry-run"], True), ([], False)):
        done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
        assert done.returncode == 1 and "serve base/tiny: is not a model" in done.stderr
        assert service.requested.exists() is there


def test_requested_service_that_does_not_start_is_named_with_the_time(tmp_path, by_service, monkeypatch):
    """Its job may have been canceled in the queue: the message names the log and how to start the service again."""
    monkeypatch.setenv("PROOFMILL_CALL_STALL_SECONDS", "1")
    monkeypatch.setenv("PROOFMILL_CALL_TIMEOUT", "1")
    monkeypatch.setenv("PROOFMILL_SERVICE_COMMAND", "echo job 7")
    folder = tmp_path / "services/api/referee"
    with pytest.raises(SystemExit) as stopped:
        ask(tmp_path, 3)
    advice = re.escape(
        f"has not started (log: {folder}/start.log). If its job is gone, remove {folder}/requested and rerun"
    )
    assert re.search(rf"its service was requested at \d\d:\d\d and {advice}", str(stopped.value))


def test_call_goes_to_the_replica_with_the_fewest(tmp_path):
    """Calls in flight are distributed evenly; a replica that did not respond gets none for a while."""
    service = Service("api/x", tmp_path)
    service.folder.mkdir(parents=True)

    async def chosen() -> list[str]:
        balance, found = Balance(service), []
        with ExitStack() as in_flight:
            for _ in range(6):
                replica = await balance.choose()
                in_flight.enter_context(balance.asking(replica))
                found.append(replica.url)
            balance.avoid(Replica("a", "node", 1))
            return [*found, (await balance.choose()).url, (await balance.choose()).url]

    with locks.alone(service.lock(0)), locks.alone(service.lock(1)):
        service.announce(0, Replica("a", "node", 1))
        service.announce(1, Replica("b", "node", 2))
        found = asyncio.run(chosen())
    assert sorted(found[:6]) == ["a"] * 3 + ["b"] * 3 and found[6:] == ["b", "b"]


def test_address_of_a_killed_job_is_ignored(tmp_path):
    """A remaining file is ignored, because the lock ended with its holder."""
    service = Service("api/x", tmp_path)
    with locks.alone(service.lock(0)):
        service.announce(0, Replica("a", "node", 1))
        assert [replica.url for replica in service.replicas()] == ["a"] and service.starting() == 0
    assert service.replicas() == [] and (service.folder / "0.json").exists()


def test_replica_has_one_job(tmp_path, monkeypatch):
    """A second job with the same number reports that another process serves this replica."""
    monkeypatch.setenv("PROOFMILL_LOCK_SECONDS", "0.3")
    monkeypatch.setenv("PROOFMILL_SERVICE_HOST", "127.0.0.1")
    service = Service("api/referee", tmp_path)
    with locks.alone(service.lock(0)), pytest.raises(ServiceError, match="another process serves this replica"):
        server_job.serve(service, 0, server_job.referee(), tmp_path / "log")


def test_machine_is_announced_as_others_reach_it(monkeypatch):
    """The set name is used, and refused without an address. By default loopback addresses are avoided."""
    monkeypatch.setenv("PROOFMILL_SERVICE_HOST", "localhost")
    assert server_job.host() == "127.0.0.1"
    monkeypatch.setenv("PROOFMILL_SERVICE_HOST", "no-such-machine.invalid")
    with pytest.raises(SettingError, match=r"^PROOFMILL_SERVICE_HOST: no-such-machine.invalid has no address"):
        server_job.host()
    monkeypatch.delenv("PROOFMILL_SERVICE_HOST")
    others = [a.address for of in psutil.net_if_addrs().values() for a in of if a.family.name == "AF_INET"]
    assert server_job.host() in {*others, "127.0.0.1", "127.0.1.1"}


def test_further_node_lives_as_long_as_the_first(tmp_path):
    """It starts and ends with the first node's job; if it dies earlier, its job reports that."""
    service, started = Service("api/x", tmp_path), tmp_path / "started"
    program = server_job.ServerProcess(
        lambda *_: [sys.executable, "-c", f"open({str(started)!r}, 'w').close(); import time; time.sleep(600)"],
        30.0,
        "KEY",
    )
    node = threading.Thread(target=server_job.follow, args=(service, 0, program))
    service.folder.mkdir(parents=True)
    with locks.alone(service.lock(0)):
        node.start()
        until(started.exists)
        assert node.is_alive()
        with pytest.raises(ServiceError, match=r"a further node died \(exit 3: no memory\)"):
            server_job.follow(service, 0, replace(program, command=lambda *_: ["sh", "-c", "echo no memory; exit 3"]))
    node.join(30)
    assert not node.is_alive()


def test_nodes_of_one_server_get_their_rank():
    """vLLM's own parser accepts the flags of each node; only the first one listens."""
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    flags = ["--tensor-parallel-size", "8", "--data-parallel-size", "2", "--enable-expert-parallel"]
    program = server_job.vllm_server("some/model", "some/model", lambda: flags)
    parser = make_arg_parser(FlexibleArgumentParser())
    for node in (0, 1):
        said = server_job.on_nodes(program, node, 2, "10.0.0.1").command("10.0.0.1", 8000)
        assert said[1:4] == ["-m", "vllm.entrypoints.cli.main", "serve"]
        read = parser.parse_args(said[4:])
        assert (read.model_tag, read.nnodes, read.node_rank, read.master_addr) == ("some/model", 2, node, "10.0.0.1")
        assert read.headless == bool(node) and read.enable_expert_parallel and read.tensor_parallel_size == 8
    read = parser.parse_args(program.command("10.0.0.1", 8000)[3:])
    assert (read.model, read.served_model_name, read.port) == ("some/model", ["some/model"], 8000)


OPEN = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b"{}")
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def test_server_that_answers_without_the_key_is_rejected():
    """Another program on the port that answers every call gets none; our server refuses calls without its key."""
    stranger = Server("x", lambda port: [sys.executable, "-c", OPEN, str(port)], 3.0, key="ours")
    with stranger, pytest.raises(ServiceError, match="x: its server did not come up"):
        stranger.start()
    with server_job.server_of("api/referee", server_job.referee()) as server:
        server.start()
        assert server.healthy() and server.wants_key() and len(server.key) > 30


def test_server_whose_port_is_taken_meanwhile_starts_on_another():
    """A program that takes the free port before the server does costs one try, and several in turn an error."""
    program, taken = server_job.referee(), []

    def take(port: int) -> None:
        taken.append(socket.socket())
        taken[-1].bind(("127.0.0.1", port))

    def command(port: int) -> list[str]:
        if len(taken) < times:
            take(port)
        return program.command("127.0.0.1", port)

    times = 1
    with Server("x", command, 20.0, {program.key: "ours"}, key="ours") as server:
        server.start()
        assert server.healthy() and taken[0].getsockname()[1] != int(server.url.split(":")[2].split("/")[0])
    times = 9
    with pytest.raises(ServiceError, match="x: other programs took 5 ports, each before"), server:
        server.start()
    for one in taken:
        one.close()
