"""`proofmill serve`: serve one model to many jobs, on one node or several."""

import argparse
import os
import shlex
from typing import Any

from proofmill.cli.config_options import add_configfile, read_config
from proofmill.schema.errors import SettingError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `serve`."""
    parser.add_argument("name", help="api/<name>, or an artifact with weights: sft/<name>, base/<name>, ...")
    parser.add_argument(
        "--replica",
        type=int,
        default=os.environ.get("SLURM_ARRAY_TASK_ID", 0),
        metavar="N",
        help="number of this server among several of the model (default: index in the SLURM job array, or 0)",
    )
    parser.add_argument("--engine-args", default="", metavar="FLAGS", help="further flags for vLLM's server")
    parser.add_argument("--threads", type=int, default=1, help="threads on a CPU (default: 1)")
    parser.add_argument(
        "--nodes",
        type=int,
        default=os.environ.get("SLURM_NNODES", 1),
        metavar="N",
        help="number of nodes, each running this command (default: all nodes of the SLURM job)",
    )
    parser.add_argument(
        "--node-rank",
        type=int,
        default=os.environ.get("SLURM_NODEID", 0),
        metavar="N",
        help="rank of this node, from 0 (default: its rank in the SLURM job)",
    )
    parser.add_argument(
        "--head-address",
        default=os.environ.get("SLURM_LAUNCH_NODE_IPADDR"),
        metavar="HOST",
        help="address of the first node, for the others (default: launch node of the SLURM job)",
    )
    parser.add_argument("--dry-run", action="store_true", help="only print the command of each node")
    add_configfile(parser)


def run(options: argparse.Namespace) -> None:
    """Serve the model until it is idle; with `--dry-run`, print the commands."""
    from proofmill.engines.services import server_job
    from proofmill.engines.services.directory import Service
    from proofmill.runtime import signals

    if options.dry_run:
        for rank, program in enumerate(_programs_by_rank(options)[1]):
            print(f"# node {rank}\n{shlex.join(program.command(options.head_address or server_job.host(), 8000))}")
        return
    signals.at_once(options.name)
    try:
        name, programs = _programs_by_rank(options)
        service = Service(name, options.results)
        log = options.results / "unfinished" / name / f"service-{options.replica}.log"
        if options.nodes > 1 and options.node_rank:
            server_job.follow(service, options.replica, programs[options.node_rank])
        else:
            server_job.serve(service, options.replica, programs[0], log)
    finally:
        # A running server removes this file when it takes the lock. If it dies earlier, no job may wait for it.
        Service(options.name, options.results).requested.unlink(missing_ok=True)


def _programs_by_rank(options: argparse.Namespace) -> tuple[str, list[Any]]:
    """Return the artifact or `api/...` to serve, and the server program of each node."""
    from proofmill.engines.services import server_job

    name, program = _program(options)
    nodes, rank, head = options.nodes, options.node_rank, options.head_address
    if nodes == 1:
        return name, [program]
    if not head or not program.spreads or not 0 <= rank < nodes:
        raise SettingError(
            f"{name}: found --nodes {nodes} --node-rank {rank} --head-address {head}; expected a model that vLLM serves, a rank "
            "below the number of nodes, and the address of the first node. Set --head-address."
        )
    return name, [server_job.on_nodes(program, node, nodes, head) for node in range(nodes)]


def _program(options: argparse.Namespace) -> tuple[str, Any]:
    """Return the artifact or `api/...` to serve, and its server program."""
    from proofmill.artifacts.tables import Table
    from proofmill.engines.services import server_job
    from proofmill.runtime import environment
    from proofmill.schema.kinds import KINDS
    from proofmill.schema.names import kind_of
    from proofmill.text.suggestions import among

    config = read_config(options)
    api = config.declared.get(options.name) if kind_of(options.name) == "api" else None
    name = getattr(api, "weights", None) or options.name
    if kind_of(name) in KINDS and KINDS[kind_of(name)].weights and name in config.entries:
        return name, server_job.weights_of(Table(name, options.results), options.engine_args, options.threads)
    if api is None:
        known = [
            *(n for n in config.declared if kind_of(n) == "api"),
            *(n for n in config.entries if KINDS[kind_of(n)].weights),
        ]
        raise SettingError(f"serve {options.name}: is not a model; expected one of {among(options.name, known)}")
    if api.program == "referee":
        return name, server_job.referee()
    path = os.environ.get(f"{environment.variable(name)}_MODEL", api.id)
    revision = ["--revision", api.commit] if api.commit and path == api.id else []
    return name, server_job.vllm_server(str(path), str(api.id), lambda: [*revision, *shlex.split(options.engine_args)])
