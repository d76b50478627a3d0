"""The command that serves a model for many jobs: what its service runs, on one node or on several."""

import argparse
import os
import shlex
from typing import Any

from proofmill.commands.book import CONFIGFILE, book_of
from proofmill.schema.errors import SettingError
from proofmill.schema.kinds import KINDS
from proofmill.schema.names import kind_of


def add(commands: Any) -> dict[argparse.ArgumentParser, Any]:
    """The command's parser with the function that runs it."""
    served = commands.add_parser(
        "serve", help="serve a model's weights for many jobs, as a job of its own, until nobody needs them"
    )
    served.add_argument("name", help="api/<name>, or an artifact with weights: sft/<name>, base/<name>, ...")
    served.add_argument(
        "--replica",
        type=int,
        default=os.environ.get("SLURM_ARRAY_TASK_ID", 0),
        metavar="N",
        help="which of several servers of the model; the number in a job array without it, or 0",
    )
    served.add_argument("--engine-args", default="", metavar="FLAGS", help="further flags of vLLM's server")
    served.add_argument("--threads", type=int, default=1, help="on a CPU")
    served.add_argument(
        "--nodes",
        type=int,
        default=os.environ.get("SLURM_NNODES", 1),
        metavar="N",
        help="over so many nodes, with a process of this command on each; those of the SLURM job without it",
    )
    served.add_argument(
        "--node", type=int, default=os.environ.get("SLURM_NODEID", 0), metavar="N", help="which of them this is, from 0"
    )
    served.add_argument(
        "--head",
        default=os.environ.get("SLURM_LAUNCH_NODE_IPADDR"),
        metavar="HOST",
        help="the first of several nodes, as the others reach it",
    )
    served.add_argument("--dry-run", action="store_true", help="only print what each node would run")
    served.add_argument("--configfile", **CONFIGFILE)
    return {served: serve}


def serve(options: argparse.Namespace) -> None:
    from proofmill.engines.services import serving
    from proofmill.engines.services.directory import Service
    from proofmill.runtime import signals

    if options.dry_run:
        for node, each in enumerate(_on_nodes(options)[1]):
            print(f"# node {node}\n{shlex.join(each.command(options.head or serving.host(), 8000))}")
        return
    signals.at_once(options.name)
    try:
        name, programs = _on_nodes(options)
        service = Service(name, options.results)
        log = options.results / "unfinished" / name / f"service-{options.replica}.log"
        if options.nodes > 1 and options.node:
            serving.follow(service, options.replica, programs[options.node])
        else:
            serving.serve(service, options.replica, programs[0], log)
    finally:
        # One that serves has removed it with its lock taken; one that dies before is not to be waited for.
        Service(options.name, options.results).summoned.unlink(missing_ok=True)


def _on_nodes(options: argparse.Namespace) -> tuple[str, list[Any]]:
    """The artifact or `api/...` that is served, and what each node runs for it."""
    from proofmill.engines.services import serving

    name, program = _program(options)
    if options.nodes > 1:
        if not options.head or not program.spreads or not 0 <= options.node < options.nodes:
            raise SettingError(
                f"{name}: found --nodes {options.nodes} --node {options.node} --head {options.head}; expected a model that vLLM "
                "serves, the number of this node below that of all, and the address of the first one. Give --head."
            )
        return name, [serving.on_nodes(program, node, options.nodes, options.head) for node in range(options.nodes)]
    return name, [program]


def _program(options: argparse.Namespace) -> tuple[str, Any]:
    """The artifact or `api/...` that is served, and how."""
    from proofmill.artifacts.tables import Table
    from proofmill.engines.services import serving
    from proofmill.runtime import environment
    from proofmill.text.suggestions import among

    book = book_of(options)
    api = book.declared.get(options.name) if kind_of(options.name) == "api" else None
    name = getattr(api, "weights", None) or options.name
    if kind_of(name) in KINDS and KINDS[kind_of(name)].weights and name in book.entries:
        return name, serving.weights_of(Table(name, options.results), options.engine_args, options.threads)
    if api is None:
        known = [
            *(n for n in book.declared if kind_of(n) == "api"),
            *(n for n in book.entries if KINDS[kind_of(n)].weights),
        ]
        raise SettingError(f"serve {options.name}: is no model; expected one of {among(options.name, known)}.")
    if api.program == "referee":
        return name, serving.referee()
    place = os.environ.get(f"{environment.variable(name)}_MODEL", api.id)
    return name, serving.vllm_server(str(place), str(api.id), lambda: shlex.split(options.engine_args))
