"""The job of a service: one replica's server, looked after until nobody needs it.

    PROOFMILL_SERVICE_HOST    the name or address of this machine by which others reach it; its own name without it
    PROOFMILL_SERVICE_IDLE    seconds without any job that asks, after which a service ends (600)

The server takes calls from this machine's network, with the key of the service alone. A server that died, or has not
answered LOOKS looks in a row, is started again, a bounded number of times.
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

from proofmill.arithmetic.referee import KEY
from proofmill.artifacts.tables import Table
from proofmill.calls import sampling
from proofmill.engines import fitting, servers
from proofmill.engines.servers import Server
from proofmill.engines.services.directory import Replica, Service
from proofmill.runtime import environment, locks
from proofmill.runtime.progress import clock, say
from proofmill.schema.errors import ServiceError, SettingError

TICK = 1.0  # seconds between two looks at whether somebody needs it
LOOK = 5.0  # seconds between two looks at its server
LOOKS = 6


@dataclass(frozen=True)
class Program:
    """What a service runs: `command(host, port)`, how long it may take to come up, the variable in which it finds the key."""

    command: Callable[[str, int], Sequence[str]]
    seconds: float
    key: str
    environment: Mapping[str, str] = field(default_factory=dict)
    reason: Callable[[str], str] | None = None  # finds in what it said why it did not come up
    spreads: bool = False  # whether several nodes may run it together
    restarts: int = servers.RESTARTS


def referee() -> Program:
    def command(host: str, port: int) -> list[str]:
        return [sys.executable, "-m", "proofmill.arithmetic.referee", "--host", host, "--port", str(port)]

    return Program(command, servers.REFEREE_SECONDS, KEY)


def weights_of(table: Table, arguments: str = "", threads: int = 1) -> Program:
    """vLLM's server of an artifact's weights, under the digest of the weights: calls for others are refused."""
    folder = str(table.weights())

    @cache
    def flags() -> list[str]:
        """Found out when the server is started: the memory there is then counts."""
        import torch

        from proofmill.engines import vllm

        asked = vllm.vllm_options(arguments)
        fit = fitting.fit(table.name, Path(folder), asked, threads, torch.cuda.is_available())
        fitting.check_length(fit, table.name, fit.whole)  # the server would call the row too long
        if fit.said:
            say(table.name, fit.said)
        chosen = vllm.flags({name: value for name, value in fit.options.items() if name not in asked})
        return [*chosen, *shlex.split(arguments)]

    return vllm_server(folder, table.model, flags)


def vllm_server(model: str, name: str, flags: Callable[[], Sequence[str]]) -> Program:
    """vLLM's server of the weights in a folder, or with an id of the hub, under a name."""
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

        return [] if torch.cuda.is_available() else vllm.flags(fitting.AT_A_TIME)

    quiet = {"VLLM_LOGGING_LEVEL": os.environ.get("VLLM_LOGGING_LEVEL", "WARNING"), "OMP_NUM_THREADS": "1"}
    return Program(command, servers.VLLM_SECONDS, "VLLM_API_KEY", quiet, vllm.reason_in, spreads=True)


def server_of(
    name: str, program: Program, log: Path | None = None, host: str = "127.0.0.1", key: str | None = None
) -> Server:
    """Return the server of a program; without a `key` it has one of its own, which proves that it is this server."""
    key = key or secrets.token_urlsafe(32)
    variables = {**program.environment, program.key: key}
    return Server(name, partial(program.command, host), program.seconds, variables, log, program.reason, host, key)


def on_nodes(program: Program, node: int, nodes: int, head: str) -> Program:
    """What one of several nodes runs, so that together they are one server of vLLM's, which listens on the first.

    Its processes find each other at the address `head`. Where one of them dies all have to be started again, as a
    cluster does that requeues the job.
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
    """The address of this machine by which others reach it. SettingError for a name without one."""
    name = os.environ.get("PROOFMILL_SERVICE_HOST")
    try:
        address = socket.gethostbyname(name or os.uname().nodename)
    except OSError as error:
        if name is None:
            return _outward() or "127.0.0.1"
        raise SettingError(
            f"PROOFMILL_SERVICE_HOST: {name} has no address ({error.strerror}); expected this machine's name or address, as "
            "other machines reach it. Mend or unset it."
        ) from error
    # Many machines know their own name as one of the loopback addresses.
    return (_outward() or address) if name is None and address.startswith("127.") else address


def _outward() -> str | None:
    """The address from which this machine reaches others; None without a network. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # an address that nobody has (RFC 5737)
        except OSError:
            return None
        return probe.getsockname()[0]


def serve(service: Service, replica: int, program: Program, log: Path) -> None:
    """Serve one replica until nobody needs it. ServiceError when its server dies again and again, or another serves it."""
    idle = environment.seconds("PROOFMILL_SERVICE_IDLE", 600.0)
    name, here = f"{service.name}.{replica}", host()
    with locks.alone(service.lock(replica), f"{name} (service)") as alone:
        if not alone:
            raise ServiceError(
                f"{name}: another process serves it; expected one for each replica. Give another --replica, or end that job."
            )
        service.summoned.unlink(missing_ok=True)
        server = server_of(name, program, log, here, service.key())
        server.restarts_left = program.restarts
        try:
            with server:
                server.start()
                _look_after(server, service, replica, idle)
        finally:
            service.withdraw(replica)
    say(name, f"nobody has needed it for {clock(idle)}; ended")


def _look_after(server: Server, service: Service, replica: int, idle: float) -> None:
    """Keep the address announced and the server up, until nobody has needed it for `idle` seconds."""

    def announce() -> None:
        service.announce(replica, Replica(server.url, os.uname().nodename, os.getpid()))
        say(server.name, f"is up at {server.url}")

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
                f"{server.name}: its server died again and again ({server.last_words()}); expected one that stays up. See to its "
                "log and its memory."
            )
        server.start_again()
        announce()
        last_needed, failed = time.monotonic(), 0


def follow(service: Service, replica: int, program: Program) -> None:
    """Run one of the further nodes of a replica, while the job of its first node lives. ServiceError when it dies before."""
    name, start = f"{service.name}.{replica}", time.monotonic()
    while not locks.held(service.lock(replica)):
        if time.monotonic() - start > program.seconds:
            raise ServiceError(
                f"{name}: its first node has not begun in {clock(program.seconds)}; expected it beside this one."
            )
        time.sleep(TICK)
    with Server(name, lambda port: program.command("127.0.0.1", port), program.seconds, program.environment) as worker:
        worker.launch(0)
        while locks.held(service.lock(replica)):
            if not worker.alive():
                raise ServiceError(
                    f"{name}: a further node died ({worker.last_words()}); expected all. Start it again."
                )
            time.sleep(TICK)
