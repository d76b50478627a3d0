"""Start the processes that train one model, on the GPUs and nodes of a job. `launch` of a site or profile runs this.

    python -m proofmill.runtime.cluster.launching fsdp2 proofmill.sft sft/cold ...

The first argument is a file of workflow/accelerate, in this folder or next to the project's Snakefile. On one machine
it runs `accelerate launch` with one process per GPU. In a SLURM job of several nodes a step of `srun` runs one
`accelerate launch` per node; they meet at the first node, on a port derived from the job's number. `--dry-run` only
prints the commands and their environments.

`--rollout-gpus N` samples the rollouts of a grpo with `trl vllm-serve` (with a `max-staleness`, `vllm serve`) on the last N GPUs
of the machine, and trains on the others. `--rollout-node` samples on all GPUs of the job's last node. Both need
`engine: vllm-server`, and the server runs as long as the training.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proofmill.runtime.cluster import slurm
from proofmill.runtime.progress import log
from proofmill.runtime.project import project_folder
from proofmill.schema.errors import ProofmillError, ServiceError, SettingError

CONFIGURATIONS = Path("workflow/accelerate")
PORTS, FIRST_PORT = 10_000, 20_000  # below the ephemeral ports (32,768 and higher on Linux)
EACH = 3  # ports of a job: for its processes to meet, its rollout server, and the weights of that server
ADDRESS, WEIGHTS_PORT = "PROOFMILL_ROLLOUT_SERVER_URL", "PROOFMILL_WEIGHT_SYNC_PORT"
# SLURM signals every process of the step before the walltime; only the trainer should handle it.
IGNORE_USR1 = "trap '' USR1; exec "


@dataclass(frozen=True)
class Command:
    """A command, the node of the job that runs it, and its extra environment variables."""

    words: tuple[str, ...]
    node: str | None = None  # None: here
    environment: dict[str, str] = field(default_factory=dict)

    def start_words(self) -> tuple[str, ...]:
        """Return the words of the command, or of the step that runs it on its node."""
        if self.node is None:
            return self.words
        return (*_step([self.node]), "bash", "-c", f'{IGNORE_USR1}"$@"', "launching", *self.words)

    def __str__(self) -> str:
        setting = " ".join(f"{name}={shlex.quote(value)}" for name, value in self.environment.items())
        return f"{self.node or 'here'}: {setting}{' ' * bool(setting)}{shlex.join(self.words)}"


@dataclass(frozen=True)
class LaunchPlan:
    """The processes of a training: one `accelerate launch` per node, and an optional rollout server."""

    launches: tuple[Command, ...]
    server: Command | None = None
    health: str = ""

    def training(self) -> tuple[str, ...]:
        """Return the command that starts all launches: the launch itself, or a step with one task per node."""
        first = self.launches[0]
        if len(self.launches) == 1:
            return first.start_words()
        rank = first.words.index("--machine_rank") + 1
        before, after = first.words[:rank], first.words[rank + 1 :]
        line = f'{IGNORE_USR1}{shlex.join(before)} "$SLURM_NODEID" "$@"'
        return (*_step([command.node or "" for command in self.launches]), "bash", "-c", line, "launching", *after)


def plan(options: argparse.Namespace) -> LaunchPlan:
    """Plan the processes. Raises SettingError for a missing launch file or numbers of GPUs that do not fit."""
    file = _configuration(options.configuration)
    nodes, gpus = slurm.nodes(), _gpus()
    port = FIRST_PORT + int(slurm.job() or os.getpid()) % (PORTS // EACH) * EACH
    serving = _last_node(nodes) if options.rollout_node else None
    training = nodes[:-1] if serving else nodes
    held_back = gpus[len(gpus) - options.rollout_gpus :] if options.rollout_gpus else []
    if options.rollout_gpus and (len(training) > 1 or len(held_back) >= len(gpus)):
        raise SettingError(
            f"launching: --rollout-gpus {options.rollout_gpus} of {len(gpus)} GPUs on {max(len(training), 1)} nodes; expected "
            "fewer than one node has, on one node. Use --rollout-node in a job of several nodes."
        )
    each = options.processes or len(gpus) - len(held_back)
    if each < 1:
        raise SettingError(
            "launching: this job has no GPU (CUDA_VISIBLE_DEVICES); expected at least one. Request GPUs, or set --processes N on a CPU."
        )
    environment = {}
    server, health = None, ""
    if serving or held_back:
        host = slurm.address(serving) if serving else "127.0.0.1"
        environment = {ADDRESS: f"http://{host}:{port + 1}", WEIGHTS_PORT: str(port + 2)}
        health = f"http://{host}:{port + 1}/health/"
        server = _server(options, serving, held_back or gpus, port + 1)
    trained = gpus[: len(gpus) - len(held_back)]
    if held_back or (len(nodes) < 2 and each < len(trained)):  # a process alone must not see several GPUs
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(trained[:each])
    # In a job of several nodes a training on one node is a step as well, because SLURM signals steps.
    launches = _launches(file, training if len(nodes) > 1 else [None], each, port, options, environment)
    return LaunchPlan(tuple(launches), server, health)


def _configuration(name: str) -> Path:
    """Return a file of workflow/accelerate, from this folder or else from the project's."""
    if (own := CONFIGURATIONS / f"{name}.yaml").is_file():
        return own
    folder = project_folder() / CONFIGURATIONS
    if (file := folder / own.name).is_file():
        return file
    known = {path.stem for where in (CONFIGURATIONS, folder) for path in where.glob("*.yaml")}
    raise SettingError(f"launching: there is no {own}; expected one of {', '.join(sorted(known))}.")


def _launches(
    file: Path,
    nodes: Sequence[str | None],
    each: int,
    port: int,
    options: argparse.Namespace,
    environment: dict[str, str],
) -> Iterator[Command]:
    """Yield `accelerate launch` for each node, or for this one (None), with `each` processes per node."""
    for rank, node in enumerate(nodes):
        words = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", str(file)]
        words += ["--num_processes", str(each * len(nodes))]
        if len(nodes) > 1:
            words += ["--num_machines", str(len(nodes)), "--machine_rank", str(rank)]
            words += ["--main_process_ip", slurm.address(nodes[0] or ""), "--main_process_port", str(port)]
            words += ["--same_network"]
            if "DEEPSPEED" in file.read_text(encoding="utf-8"):  # its default needs ssh between the nodes
                words += ["--deepspeed_multinode_launcher", "standard"]
        yield Command((*words, "-m", options.module, *options.arguments), node, environment)


def _server(options: argparse.Namespace, node: str | None, gpus: Sequence[str], port: int) -> Command:
    entry, weights = _training(options.arguments)
    programs, environment = Path(sys.executable).parent, {} if node else {"CUDA_VISIBLE_DEVICES": ",".join(gpus)}
    if entry.get("max_staleness"):  # TRL's asynchronous trainer sends its weights to vLLM's own server
        words = [str(programs / "vllm"), "serve", str(weights), "--weight-transfer-config", '{"backend":"nccl"}']
        # Processed log-probabilities are at the sampling temperature, but not over the tokens that a restriction excludes.
        restricted = entry.get("top_p", 1) < 1 or entry.get("top_k") or entry.get("min_p")
        words += ["--logprobs-mode", "raw_logprobs" if restricted else "processed_logprobs"]
        environment["VLLM_SERVER_DEV_MODE"] = "1"  # required for weight updates
        devices = "--data-parallel-size"
    else:
        words, devices = [str(programs / "trl"), "vllm-serve", "--model", str(weights)], "--data_parallel_size"
    words += ["--host", "0.0.0.0", "--port", str(port)]
    if "parallel" not in options.server_args:
        words += [devices, str(len(gpus))]
    return Command((*words, *shlex.split(options.server_args)), node, environment)


def _training(arguments: Sequence[str]) -> tuple[dict[str, Any], Path]:
    """Return the entry of a training and the folder of its initial weights, from the arguments of its rule."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--entry", nargs="+", required=True)
    parser.add_argument("--results", default="results")
    known, _ = parser.parse_known_args(arguments)
    entry = json.loads("".join(known.entry))["entry"]
    return entry, Path(known.results) / entry["model"]


def _last_node(nodes: Sequence[str]) -> str:
    if len(nodes) < 2:
        raise SettingError(
            f"launching: --rollout-node in a job of {max(len(nodes), 1)} node; expected two or more. Set `nodes`."
        )
    return nodes[-1]


def _gpus() -> list[str]:
    """Return the GPUs of this job on this machine, from CUDA_VISIBLE_DEVICES, else all that torch sees."""
    if (visible := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return [gpu for gpu in visible.split(",") if gpu]
    import torch

    return [str(number) for number in range(torch.cuda.device_count())]


def _step(nodes: Sequence[str]) -> tuple[str, ...]:
    """Return a step of the job with one task per node, all their cores, and the job's GPUs there.

    With --overlap a server's step takes nothing from the training's step. A failed task stops the others.
    """
    gpus = [f"--gres=gpu:{len(visible)}"] if (visible := _gpus_of_slurm()) else []
    tasks = ["--nodes", str(len(nodes)), "--ntasks", str(len(nodes)), "--ntasks-per-node", "1"]
    placed = [*tasks, "--nodelist", ",".join(nodes), "--overlap", "--cpu-bind=none", "--kill-on-bad-exit=1"]
    return ("srun", *placed, *gpus)


def _gpus_of_slurm() -> list[str]:
    return [gpu for gpu in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if gpu]


@contextmanager
def serve_rollouts(plan: LaunchPlan, name: str) -> Iterator[None]:
    """Run the rollout server during the training. Raises ServiceError if it stops before it is ready."""
    if plan.server is None:
        yield
        return
    log(name, "starting the rollout server")
    server = subprocess.Popen(plan.server.start_words(), env={**os.environ, **plan.server.environment})
    try:
        while not _answers(plan.health):
            if (code := server.poll()) is not None:
                raise ServiceError(
                    f"{name}: the rollout server stopped with code {code}; expected it to run. See its log above."
                )
            time.sleep(2)
        yield
    finally:
        server.terminate()
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=5) as reply:
            return reply.status == 200
    except (urllib.error.URLError, OSError):
        return False


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m proofmill.runtime.cluster.launching", description=__doc__.split("\n")[0]
    )
    parser.add_argument("configuration", help="a file of workflow/accelerate, such as ddp or fsdp2")
    parser.add_argument("--processes", type=int, help="processes per node (default: one per GPU)")
    rollouts = parser.add_mutually_exclusive_group()
    rollouts.add_argument(
        "--rollout-gpus", type=int, default=0, help="number of GPUs of this machine that sample rollouts"
    )
    rollouts.add_argument("--rollout-node", action="store_true", help="sample rollouts on the job's last node")
    parser.add_argument("--server-args", default="", help="further flags of the rollout server")
    parser.add_argument("--dry-run", action="store_true", help="only print the commands and their environments")
    parser.add_argument("module", help="proofmill.sft, proofmill.grpo or proofmill.selfplay")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="its arguments")
    options = parser.parse_args()
    try:
        planned = plan(options)
        if options.dry_run:
            print(*filter(None, (planned.server, *planned.launches)), sep="\n")
            return
        environment = {**os.environ, **planned.launches[0].environment}
        if planned.server is None:
            os.execvpe(planned.training()[0], planned.training(), environment)
        with serve_rollouts(planned, options.arguments[0]):
            code = subprocess.run(planned.training(), env=environment, check=False).returncode
        sys.exit(code)
    except ProofmillError as error:
        sys.exit(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
