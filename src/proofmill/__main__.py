"""The command `proofmill`: plan a run, inspect, check, rename and publish its results. Snakemake runs the stages."""

import argparse
import os
import signal
import sys
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import proofmill
from proofmill.schema.errors import ProofmillError, SettingError


@dataclass(frozen=True)
class Command:
    """A command's line in `--help`, an example, and its module in proofmill.cli (default: its name)."""

    summary: str
    example: str
    module: str = ""


COMMANDS = {
    "init": Command("create a project with a recipe, data, a reward and .env, or add what a folder lacks", "init mine"),
    "fetch": Command("download the public data and models that a target needs", "fetch qed-nano --list"),
    "plan": Command(
        "show what a target would run, why, and at what cost", "plan qed-nano --configfile workflow/rehearsal.yaml"
    ),
    "check": Command(
        "test the model servers of a target, and verify stored results", "check sft/cold grades/sampled --deep"
    ),
    "attack": Command(
        "test how many points attacks (no answer, guesses, verdict tags, ...) earn from a grader",
        "attack grpo/nano --rows 16",
    ),
    "verify": Command(
        "compare a final answer with a reference answer, and show how both were read", "verify '1/2' '0.5'"
    ),
    "compare": Command(
        "compare models by their logs of inspect_ai, lm-eval, lighteval, verifiers, NeMo-Gym, or any table",
        "compare logs/large.eval logs/small.eval",
    ),
    "manual": Command("print the reference of a kind: fields, columns, values, your plugins", "manual grpo"),
    "show": Command(
        "print score pages, an artifact's metadata, or its rows",
        "show grades/sampled --where 'grade < 3' --columns grade verdict",
    ),
    "view": Command(
        "serve a local web page: recipes, tables, problems, and grades of your own",
        "view --configfile workflow/rehearsal.yaml",
    ),
    "report": Command(
        "write one HTML file about a recipe: scores, data, trainings, samples, settings", "report nano --out nano.html"
    ),
    "why": Command(
        "explain why an artifact would be rebuilt, or trace one of its rows to the source", "why scores/nano --row 0"
    ),
    "diff": Command(
        "compare two artifacts, or one artifact in two results folders", "diff scores/nano --other-results rehearsal"
    ),
    "replay": Command(
        "recompute the rewards of a finished run's rollouts under other settings",
        "replay grpo/nano --rewards '{grade: 1, overlong: {weight: 1, buffer: 64}}'",
    ),
    "fit-cascade": Command(
        "choose the cascade of graders with the lowest cost at a bound on the error, from tables that all graded",
        "fit-cascade grades/cheap grades/strong --gold grades/human --error 0.05",
        "fit_cascade",
    ),
    "plot": Command(
        "plot training metrics, or scores by cost, of one or more artifacts",
        "plot sft/cold grpo/nano --metrics loss --out curves.svg",
    ),
    "rename": Command("give an artifact's model outputs to its new name", "rename grades/old-name grades/new-name"),
    "invalidate": Command(
        "repeat model calls of an artifact in the next run, e.g. after fixing its judge",
        "invalidate grades/mine --where reason=unparsable",
    ),
    "gc": Command("list files that no recipe needs, and their size", "gc", "garbage_collection"),
    "serve": Command(
        "serve a model to many jobs, as a job of its own, until it is idle",
        "serve api/judge --engine-args='--tensor-parallel-size 8'",
    ),
    "selftest": Command(
        "train and sample in each way that this machine can, and compare the plan with what it took", "selftest --gpu"
    ),
    "publish": Command(
        "push tables and models of finished recipes to the Hugging Face hub",
        "publish nano --to my-group/nano --dry-run /tmp/nano",
    ),
    "reproduce": Command(
        "derive published tables again from their published model outputs, without a call, and compare every value",
        "reproduce my-group/nano-tables --only scores/nano",
    ),
    "export": Command(
        "write tasks and their grader as a package for inspect_ai, verifiers, TRL or NeMo-Gym",
        "export grpo/nano --to inspect --out /tmp/nano-inspect",
    ),
}


class PrintCompletion(argparse.Action):
    """Print a script with which a shell completes the command, and exit."""

    def __call__(self, _: argparse.ArgumentParser, namespace: Any, values: Any, option_string: Any = None) -> None:
        import shtab

        complete = parser()
        print(shtab.complete(complete, values))
        complete.exit()


def main() -> None:
    """Run the command of `sys.argv`."""
    options = parser(COMMANDS.keys() & sys.argv[1:]).parse_args()
    try:
        from proofmill.cli.config_options import read_results_folder
        from proofmill.runtime import environment

        if "first" in options:
            options.first(options)
        environment.read_file()
        options.results = options.results or read_results_folder(options)
        options.run(options)
        sys.stdout.flush()
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("proofmill"):
            raise
        sys.exit(
            f"proofmill {options.command}: {error.name} is not installed; expected the packages of the stages. Install "
            "them: pip install 'proofmill[pipeline]', or [cpu] or [gpu], which include vLLM (docs/library.md)."
        )
    except BrokenPipeError:  # the reader, e.g. `head`, has closed the pipe
        _drop_output()
        sys.exit(128 + signal.SIGPIPE)
    except (ProofmillError, OSError) as error:
        fault = error if isinstance(error, ProofmillError) else _describe(error, options.command)
        with suppress(OSError):
            if getattr(options, "json", False):
                from proofmill.cli.config_options import print_json

                print_json(
                    options.command, {"error": {"type": type(fault).__name__, "messages": str(fault).split("\n")}}
                )
        _drop_output()
        sys.exit(f"{type(fault).__name__}: {fault}")


def _drop_output() -> None:
    """Drop what standard output does not take, so that Python does not retry it at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _describe(error: OSError, command: str) -> SettingError:
    """Return an error of the file system or of a connection as one with a message."""
    return SettingError(
        f"{error.filename or f'proofmill {command}'}: {error.strerror or error}; expected a file or address that can be read or "
        "written. Name another one, or correct this one."
    )


def parser(names: Collection[str] = COMMANDS.keys()) -> argparse.ArgumentParser:
    """Build the parser. Only the commands `names` get their arguments, since that imports their modules."""
    parser = argparse.ArgumentParser(
        prog="proofmill", description=__doc__, epilog="`proofmill COMMAND --help` ends with an example."
    )
    parser.add_argument("--version", action="version", version=f"proofmill {proofmill.__version__}")
    parser.add_argument(
        "--print-completion",
        action=PrintCompletion,
        choices=["bash", "zsh", "tcsh"],
        help='print a completion script for a shell\'s start-up file: eval "$(proofmill --print-completion bash)"',
    )
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, command in COMMANDS.items():
        subparser = subparsers.add_parser(
            name, help=command.summary, description=command.summary, epilog=f"example: proofmill {command.example}"
        )
        if name in names:
            module = import_module(f"proofmill.cli.{command.module or name}")
            module.add_arguments(subparser)
            subparser.add_argument("--results", type=Path, help="results folder (default: `results` from config.yaml)")
            subparser.set_defaults(run=module.run)
    return parser


if __name__ == "__main__":
    main()
