"""Services: a model served by a job of its own is found, balanced, waited for and looked after."""

import asyncio
import json
import os
import re
import signal
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
from proofmill.calls.exchange import Question, Questions
from proofmill.calls.journal import Journal
from proofmill.engines.opening import open_api
from proofmill.engines.servers import Server
from proofmill.engines.services import balancing, serving
from proofmill.engines.services.balancing import Balance
from proofmill.engines.services.directory import Replica, Service
from proofmill.recipes.entry_values import entry_from
from proofmill.runtime import locks
from proofmill.schema.errors import ServiceError, SettingError

REFEREE = {"id": "referee-1", "program": "referee", "price": {"input": 0, "output": 0}, "temperature": 0}
SERVE = """
import sys
from pathlib import Path
from proofmill.engines.services import serving
from proofmill.engines.services.directory import Service

service = Service("api/referee", Path(sys.argv[1]))
serving.serve(service, int(sys.argv[2]), serving.referee(), Path(sys.argv[1], f"service-{sys.argv[2]}.log"))
"""


@contextmanager
def served(results: Path, replica: int = 0, **environment: str):
    """The job of one replica; it is killed at the end."""
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
    """Wait for a condition that must come true."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "it did not come true"
        time.sleep(0.05)
    return found


def ask(results: Path, count: int, name: str = "x") -> list[str]:
    """The answers of `api/referee` to some questions, as a job has them."""
    made = [(str(n), Question("referee-1", (("user", f"question {n}"),))) for n in range(count)]
    api = entry_from("api", REFEREE)
    with open_api("api/referee", api, None, results) as engine, Journal(results / "calls/test" / name) as journal:
        answers = Asker(f"test/{name}", engine, journal, Budget(None, results / "calls", journal))
        return [answer.reason for answer in answers(Questions(count, lambda: made))]


@pytest.fixture
def by_service(monkeypatch):
    monkeypatch.setenv("PROOFMILL_REFEREE_URL", "service")


def test_service_is_found_and_ends_when_nobody_needs_it(tmp_path, by_service):
    """A job finds the address and the key by itself; some seconds after the last one the service ends in good order."""
    service = Service("api/referee", tmp_path)
    with served(tmp_path, PROOFMILL_SERVICE_IDLE="2") as job:
        (replica,) = until(service.replicas)
        with service.needed():
            assert service.is_needed()
            time.sleep(3.5)
            assert job.poll() is None
        assert ask(tmp_path, 20) == ["ok"] * 20
        assert replica.process == job.pid and not service.is_needed()
        assert job.wait(30) == 0
    assert not service.replicas() and not list(service.folder.glob("*.json"))


def test_replicas_that_look_at_once_need_no_service_themselves(tmp_path):
    """Two that look without a pause see a job that asks while there is one, and never each other."""
    service = Service("api/x", tmp_path)
    with service.needed():
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


def test_jobs_that_come_first_wait_for_the_service(tmp_path, by_service):
    """Nothing fails because a service is still in the queue."""
    answers: list[str] = []
    asking = threading.Thread(target=lambda: answers.extend(ask(tmp_path, 8)))
    asking.start()
    until(Service("api/referee", tmp_path).is_needed)
    with served(tmp_path):
        asking.join(60)
        assert answers == ["ok"] * 8


def test_service_that_never_comes_is_named(tmp_path, by_service, monkeypatch):
    """After PROOFMILL_PATIENCE the stage stops, parks nothing, and says what would start the service."""
    monkeypatch.setenv("PROOFMILL_PATIENCE", "1")
    monkeypatch.setenv("PROOFMILL_TIMEOUT", "1")
    with pytest.raises(SystemExit, match=r"its service is not up; start it: proofmill serve api/referee"):
        ask(tmp_path, 3)
    assert not (tmp_path / "calls/test/x/00001.parquet").exists()


def test_key_is_for_the_owner_and_wanted(tmp_path, by_service):
    """The file is readable by its owner alone, one key is for all replicas, and without it nobody is answered."""
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
    """Its job announces the new address; the jobs that ask notice nothing but the time."""
    service = Service("api/referee", tmp_path)
    with served(tmp_path) as job:
        (before,) = until(service.replicas)
        for process in psutil.Process(job.pid).children(recursive=True):
            if (
                "proofmill.arithmetic.referee" in process.cmdline()
                and "proofmill.engines.servers" not in process.cmdline()
            ):
                process.kill()
        after = until(lambda: [replica for replica in service.replicas() if replica != before])
        assert after[0].url != before.url and ask(tmp_path, 8) == ["ok"] * 8


def test_killed_replica_leaves_its_calls_to_the_others(tmp_path, by_service, monkeypatch):
    """Of two replicas one is killed with its calls in flight; all are answered, and no call is parked or asked in vain."""
    monkeypatch.setenv("PROOFMILL_CONCURRENCY", "4")
    service, slow = Service("api/referee", tmp_path), json.dumps({"delay": 0.05})
    with served(tmp_path, 0, PROOFMILL_REFEREE_FAULTS=slow) as one, served(tmp_path, 1, PROOFMILL_REFEREE_FAULTS=slow):
        until(lambda: len(service.replicas()) == 2)
        answers: list[str] = []
        asking = threading.Thread(target=lambda: answers.extend(ask(tmp_path, 200)))
        asking.start()
        tail = tmp_path / "calls/test/x/answers.jsonl"
        until(lambda: tail.exists() and len(tail.read_bytes().splitlines()) > 40)
        one.send_signal(signal.SIGKILL)
        asking.join(120)
        assert answers == ["ok"] * 200
        assert len(service.replicas()) == 1


def test_key_is_one_for_all_that_come_together(tmp_path):
    """Threads of one process, too: who comes first makes it, and nothing is left of the others' tries."""
    begin = threading.Barrier(32, timeout=30)
    for number in range(10):
        service = Service(f"api/judge-{number}", tmp_path)
        with ThreadPoolExecutor(32) as threads:
            keys = set(threads.map(lambda service: (begin.wait(), service.key())[1], [service] * 32))
        assert len(keys) == 1 and [path.name for path in service.folder.iterdir()] == ["key"]


def test_service_is_started_by_the_first_job_that_needs_it_and_again_when_it_was_killed(
    tmp_path, by_service, monkeypatch
):
    """Of two jobs that come together one runs the place's command; after kill -9 the next job does."""
    script = tmp_path / "serve.py"
    script.write_text(SERVE)
    command = f"echo submitted >>{tmp_path}/submitted; {sys.executable} {script} {tmp_path} 0 & echo job 7 of {{name}}"
    monkeypatch.setenv("PROOFMILL_SERVICE_START", command)
    monkeypatch.setenv("PROOFMILL_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("PROOFMILL_SERVICE_IDLE", "5")
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
    """A question may be what kills its server: a job has it started three times in an hour, and then loses patience."""
    monkeypatch.setattr(balancing, "AVOIDED", 0.1)
    monkeypatch.setattr(balancing, "PATIENT", 0.5)
    monkeypatch.setenv("PROOFMILL_PATIENCE", "6")
    monkeypatch.setenv("PROOFMILL_TIMEOUT", "6")
    summoned = Service("api/referee", tmp_path).summoned  # it began, and died at once
    monkeypatch.setenv("PROOFMILL_SERVICE_START", f"echo >>{tmp_path}/submitted; (sleep 0.2; rm -f {summoned}) &")
    with pytest.raises(SystemExit, match="its service is not up"):
        ask(tmp_path, 3)
    assert len((tmp_path / "submitted").read_text().splitlines()) == 3


def test_command_that_cannot_start_a_service_is_named_with_what_it_said(tmp_path, by_service, monkeypatch):
    """The stage stops at once, and the next run tries it again."""
    monkeypatch.setenv("PROOFMILL_SERVICE_START", "echo no such partition; exit 3")
    for _ in range(2):
        with pytest.raises(SettingError, match=r"PROOFMILL_SERVICE_START: .* ended with 3 \(no such partition\)"):
            ask(tmp_path, 3)


def test_service_that_fails_before_it_serves_can_be_summoned_at_once(tmp_path, monkeypatch):
    """Its job takes its word back, whatever it died of; a dry run is no such job."""
    service, folder = Service("base/tiny", tmp_path / "results"), tmp_path / "project"
    folder.mkdir()
    (folder / "config.yaml").write_text("recipes: []\n")
    monkeypatch.chdir(folder)
    service.folder.mkdir(parents=True)
    service.summoned.write_text(f"{time.time():.0f}")
    command = [sys.executable, "-m", "proofmill", "serve", "base/tiny", "--results", str(tmp_path / "results")]
    for options, there in ((["--dry-run"], True), ([], False)):
        done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
        assert done.returncode == 1 and "serve base/tiny: is no model" in done.stderr
        assert service.summoned.exists() is there


def test_service_that_was_asked_for_and_does_not_begin_is_named_with_its_hour(tmp_path, by_service, monkeypatch):
    """Its job may have been cancelled in the queue: the stage stops with where to look and what has it started again."""
    monkeypatch.setenv("PROOFMILL_PATIENCE", "1")
    monkeypatch.setenv("PROOFMILL_TIMEOUT", "1")
    monkeypatch.setenv("PROOFMILL_SERVICE_START", "echo job 7")
    folder = tmp_path / "services/api/referee"
    with pytest.raises(SystemExit) as stopped:
        ask(tmp_path, 3)
    said = re.escape(
        f"has not begun (what was said then: {folder}/start.log); where its job is gone, remove {folder}/summoned to"
    )
    assert re.search(rf"its service was asked for at \d\d:\d\d and {said} have it started again", str(stopped.value))


def test_call_goes_to_the_replica_with_the_fewest(tmp_path):
    """Calls in flight are shared out evenly; a replica that did not answer is left alone for a while."""
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


def test_address_of_a_killed_job_is_nobodys(tmp_path):
    """A file that is left behind counts for nothing: the lock went with its holder."""
    service = Service("api/x", tmp_path)
    with locks.alone(service.lock(0)):
        service.announce(0, Replica("a", "node", 1))
        assert [replica.url for replica in service.replicas()] == ["a"] and service.starting() == 0
    assert service.replicas() == [] and (service.folder / "0.json").exists()


def test_replica_has_one_job(tmp_path, monkeypatch):
    """A second one for the same number says that another serves it."""
    monkeypatch.setenv("PROOFMILL_LOCK_SECONDS", "0.3")
    monkeypatch.setenv("PROOFMILL_SERVICE_HOST", "127.0.0.1")
    service = Service("api/referee", tmp_path)
    with locks.alone(service.lock(0)), pytest.raises(ServiceError, match="another process serves it"):
        serving.serve(service, 0, serving.referee(), tmp_path / "log")


def test_machine_is_announced_as_others_reach_it(monkeypatch):
    """By the name that is said; one without an address is refused; without one, by no loopback address if there is another."""
    monkeypatch.setenv("PROOFMILL_SERVICE_HOST", "localhost")
    assert serving.host() == "127.0.0.1"
    monkeypatch.setenv("PROOFMILL_SERVICE_HOST", "no-such-machine.invalid")
    with pytest.raises(SettingError, match=r"^PROOFMILL_SERVICE_HOST: no-such-machine.invalid has no address"):
        serving.host()
    monkeypatch.delenv("PROOFMILL_SERVICE_HOST")
    others = [a.address for of in psutil.net_if_addrs().values() for a in of if a.family.name == "AF_INET"]
    assert serving.host() in {*others, "127.0.0.1", "127.0.1.1"}


def test_further_node_lives_as_long_as_the_first(tmp_path):
    """It begins with the first one's job and ends with it; where it dies before, its job says so."""
    service, mark = Service("api/x", tmp_path), tmp_path / "began"
    program = serving.Program(
        lambda *_: [sys.executable, "-c", f"open({str(mark)!r}, 'w').close(); import time; time.sleep(600)"],
        30.0,
        "KEY",
    )
    node = threading.Thread(target=serving.follow, args=(service, 0, program))
    service.folder.mkdir(parents=True)
    with locks.alone(service.lock(0)):
        node.start()
        until(mark.exists)
        assert node.is_alive()
        with pytest.raises(ServiceError, match=r"a further node died \(exit 3: no memory\)"):
            serving.follow(service, 0, replace(program, command=lambda *_: ["sh", "-c", "echo no memory; exit 3"]))
    node.join(30)
    assert not node.is_alive()


def test_nodes_of_one_server_are_told_who_they_are():
    """What each node would run has flags that vLLM's own parser takes; only the first one listens."""
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    flags = ["--tensor-parallel-size", "8", "--data-parallel-size", "2", "--enable-expert-parallel"]
    program = serving.vllm_server("some/model", "some/model", lambda: flags)
    parser = make_arg_parser(FlexibleArgumentParser())
    for node in (0, 1):
        said = serving.on_nodes(program, node, 2, "10.0.0.1").command("10.0.0.1", 8000)
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


def test_server_that_answers_without_the_key_is_not_taken_for_ours():
    """Another program on the port, which answers everybody, is none that a job asks; ours refuses calls without its key."""
    stranger = Server("x", lambda port: [sys.executable, "-c", OPEN, str(port)], 3.0, key="ours")
    with stranger, pytest.raises(ServiceError, match="x: its server did not come up"):
        stranger.start()
    with serving.server_of("api/referee", serving.referee()) as server:
        server.start()
        assert server.healthy() and server.wants_key() and len(server.key) > 30
