"""The job of a service: it runs one replica's server as long as jobs need it.

    PROOFMILL_SERVICE_HOST    name or address under which other machines reach this one; default: its own name
    PROOFMILL_SERVICE_IDLE_SECONDS    seconds without any job that makes calls, after which a service ends (600)

The server accepts calls from this machine's network, with the key of the service only. A server that died, or failed
LOOKS health checks in a row, is restarted a limited number of times.
"""

import os
import secrets
import shlex
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path

from proofmill.artifacts.tables import Table
from proofmill.calls import sampling
from proofmill.engines import servers, vllm_memory
from proofmill.engines.servers import Server
from proofmill.engines.services.directory import Replica, Service
from proofmill.runtime import environment, locks
from proofmill.runtime.progress import clock, log
from proofmill.schema.errors import ServiceError, SettingError
from proofmill.synthetic.referee import KEY

TICK = 1.0  # seconds between two checks whether it is needed
LOOK = 5.0  # seconds between two health checks of its server
LOOKS = 6


@dataclass(frozen=True)
class ServerProcess:
    """The program of a service: `command(host, port)`, seconds to come up, the environment variable of the key."""

    command: Callable[[str, int], Sequence[str]]
    seconds: float
    key: str
    environment: Mapping[str, str] = field(default_factory=dict)
    reason: Callable[[str], str] | None = None  # extracts from its output why it did not come up
    spreads: bool = False  # it can run on several nodes
    restarts: int = servers.RESTARTS


def referee() -> ServerProcess:
    """Return the program of the built-in referee."""

    def command(host: str, port: int) -> list[str]:
        return [sys.executable, "-m", "proofmill.synthetic.referee", "--host", host, "--port", str(port)]

    return ServerProcess(command, servers.REFEREE_SECONDS, KEY)


def weights_of(table: Table, arguments: str = "", threads: int = 1) -> ServerProcess:
    """Return vLLM's server of an artifact's weights. It is named by their digest, so calls for others are refused."""
    folder = str(table.weights())

    @cache
    def flags() -> list[str]:
        """Compute the flags at the start of the server, from the memory that is free then."""
        import torch

        from proofmill.engines import vllm

        asked = vllm.vllm_options(arguments)
        fit = vllm_memory.fit(table.name, Path(folder), asked, threads, torch.cuda.is_available())
        vllm_memory.check_length(fit, table.name, fit.model_context)  # the server would report rows as too long
        if fit.notice:
            log(table.name, fit.notice)
        chosen = vllm.flags({name: value for name, value in fit.options.items() if name not in asked})
        return [*chosen, *shlex.split(arguments)]

    return vllm_server(folder, table.model, flags)


def vllm_server(model: str, name: str, flags: Callable[[], Sequence[str]]) -> ServerProcess:
    """Return vLLM's server of a model, which is a folder or an id of the hub, served as `name`."""
    from proofmill.engines import vllm

    def command(host: str, port: int) -> list[str]:
        served = ["--model", model, "--served-model-name", name, "--host", host, "--port", str(port)]
        return [
            sys.executable,
            "-m",
            "vllm.entrypoints.openai.api_server",
            *served,
            *flags(),
            *sampling.FLAGS,
            *at_a_time(),
        ]

    @cache
    def at_a_time() -> list[str]:
        import torch

        return [] if torch.cuda.is_available() else vllm.flags(vllm_memory.AT_A_TIME)

    quiet = {"VLLM_LOGGING_LEVEL": os.environ.get("VLLM_LOGGING_LEVEL", "WARNING"), "OMP_NUM_THREADS": "1"}
    return ServerProcess(command, servers.VLLM_SECONDS, "VLLM_API_KEY", quiet, vllm.reason_in, spreads=True)


def server_of(
    name: str, program: ServerProcess, log_file: Path | None = None, host: str = "127.0.0.1", key: str | None = None
) -> Server:
    """Return the server of a program. Without a `key` it gets a random one, which identifies this server."""
    key = key or secrets.token_urlsafe(32)
    variables = {**program.environment, program.key: key}
    return Server(name, partial(program.command, host), program.seconds, variables, log_file, program.reason, host, key)


def on_nodes(program: ServerProcess, node: int, nodes: int, head: str) -> ServerProcess:
    """Return the program of one of several nodes that form one vLLM server, which listens on the first node.

    The processes connect at the address `head`. If one of them dies, all have to be restarted, for example by a cluster
    that requeues the job.
    """

    def command(host: str, port: int) -> list[str]:
        *_, flag, model = program.command(host, port)[:5]  # Python, -m, the server of one node, --model, which
        flags = program.command(host, port)[5:]
        assert flag == "--model", "a command of vllm_server begins with its model"
        together = ["--nnodes", str(nodes), "--node-rank", str(node), "--master-addr", head]
        begin = [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve"]
        return [*begin, model, *flags, *together, *(["--headless"] if node else [])]

    return replace(program, command=command, restarts=0)


def host() -> str:
    """Return the address under which other machines reach this one. Raises SettingError for a name without one."""
    name = os.environ.get("PROOFMILL_SERVICE_HOST")
    try:
        address = socket.gethostbyname(name or os.uname().nodename)
    except OSError as error:
        if name is None:
            return _outgoing_address() or "127.0.0.1"
        raise SettingError(
            f"PROOFMILL_SERVICE_HOST: {name} has no address ({error.strerror}); expected the name or address under which "
            "other machines reach this one. Fix or unset it."
        ) from error
    # Many machines resolve their own name to a loopback address.
    return (_outgoing_address() or address) if name is None and address.startswith("127.") else address


def _outgoing_address() -> str | None:
    """Return the address from which this machine reaches others; None without a network. Sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # an address reserved for documentation (RFC 5737)
        except OSError:
            return None
        return probe.getsockname()[0]


def serve(service: Service, replica: int, program: ServerProcess, log_file: Path) -> None:
    """Serve one replica while it is needed. Raises ServiceError if its server keeps dying or another job has it."""
    idle = environment.seconds("PROOFMILL_SERVICE_IDLE_SECONDS", 600.0)
    name, here = f"{service.name}.{replica}", host()
    with locks.alone(service.lock(replica), f"{name} (service)") as alone:
        if not alone:
            raise ServiceError(
                f"{name}: another process serves this replica; expected one process per replica. Set another --replica, or stop that one."
            )
        service.requested.unlink(missing_ok=True)
        server = server_of(name, program, log_file, here, service.key())
        server.restarts_left = program.restarts
        try:
            with server:
                server.start()
                _supervise(server, service, replica, idle)
        finally:
            service.withdraw(replica)
    log(name, f"no job has needed the service for {clock(idle)}; it has ended")


def _supervise(server: Server, service: Service, replica: int, idle: float) -> None:
    """Keep the server up and its address announced, until no job has needed it for `idle` seconds."""

    def announce() -> None:
        service.announce(replica, Replica(server.url, os.uname().nodename, os.getpid()))
        log(server.name, f"is up at {server.url}")

    announce()
    last_needed = last_look = time.monotonic()
    failed = 0
    while time.monotonic() - last_needed < idle:
        time.sleep(TICK)
        if service.is_needed():
            last_needed = time.monotonic()
        if server.alive() and time.monotonic() - last_look < LOOK:
            continue
        last_look = time.monotonic()
        failed = 0 if server.healthy() else failed + 1
        if server.alive() and failed < LOOKS:
            continue
        service.withdraw(replica)
        if not server.restarts_left:
            raise ServiceError(
                f"{server.name}: its server failed after each restart ({server.last_words()}); expected one that stays up. Check its "
                "log and its memory."
            )
        server.restart()
        announce()
        last_needed, failed = time.monotonic(), 0


def follow(service: Service, replica: int, program: ServerProcess) -> None:
    """Run a further node of a replica, as long as the job of its first node. Raises ServiceError if it dies earlier."""
    name, start = f"{service.name}.{replica}", time.monotonic()
    while not locks.is_held(service.lock(replica)):
        if time.monotonic() - start > program.seconds:
            raise ServiceError(
                f"{name}: its first node has not started in {clock(program.seconds)}; expected both to start together. Start it."
            )
        time.sleep(TICK)
    with Server(name, lambda port: program.command("127.0.0.1", port), program.seconds, program.environment) as worker:
        worker.launch(0)
        while locks.is_held(service.lock(replica)):
            if not worker.alive():
                raise ServiceError(
                    f"{name}: a further node died ({worker.last_words()}); expected all nodes to run. Restart all nodes of this replica."
                )
            time.sleep(TICK)
