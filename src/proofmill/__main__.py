"""The command `proofmill`: plan a run, inspect, check, rename and publish its results. Snakemake runs the stages."""

import argparse
import os
import signal
import sys
from pathlib import Path
from typing import Any

import proofmill
from proofmill.commands import after, before, keeping, serving
from proofmill.commands.book import results_of
from proofmill.runtime import environment
from proofmill.schema.errors import ProofmillError

EXAMPLES = {
    "init": "proofmill init mine",
    "fetch": "proofmill fetch qed-nano --list",
    "plan": "proofmill plan qed-nano --configfile workflow/rehearsal.yaml",
    "check": "proofmill check sft/cold grades/sampled --deep",
    "attack": "proofmill attack grpo/nano --rows 16",
    "manual": "proofmill manual grpo",
    "show": "proofmill show grades/sampled --where 'grade < 3' --columns grade verdict",
    "view": "proofmill view --configfile workflow/rehearsal.yaml",
    "report": "proofmill report nano --out nano.html",
    "why": "proofmill why scores/nano --row 0",
    "diff": "proofmill diff scores/nano --with rehearsal",
    "replay": "proofmill replay grpo/nano --rewards '{grade: 1, overlong: {weight: 1, buffer: 64}}'",
    "curves": "proofmill curves sft/cold grpo/nano --measures loss --out curves.svg",
    "rename": "proofmill rename grades/old-name grades/new-name",
    "ask-again": "proofmill ask-again grades/mine --where reason=unparsable",
    "gc": "proofmill gc",
    "serve": "proofmill serve api/judge --engine-args='--tensor-parallel-size 8'",
    "publish": "proofmill publish nano --to my-group/nano --dry-run /tmp/nano",
}


class PrintCompletion(argparse.Action):
    """Prints what makes a shell complete the command's words, and ends."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: Any, values: Any, option_string: Any = None) -> None:
        import shtab

        print(shtab.complete(parser, values))
        parser.exit()


def main() -> None:
    options = parser().parse_args()
    try:
        environment.read_file()
        options.results = options.results or results_of(getattr(options, "configfile", []))
        options.run(options)
        sys.stdout.flush()
    except ProofmillError as error:
        sys.exit(f"{type(error).__name__}: {error}")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("proofmill"):
            raise
        sys.exit(
            f"proofmill {options.command}: {error.name} is not installed; expected what the stages need. Install it: "
            "pip install 'proofmill[pipeline]', or [cpu] or [gpu], which have vLLM too (docs/library.md)."
        )
    except BrokenPipeError:  # whoever read, as `head` does, has seen enough; nothing is left to flush at the exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(128 + signal.SIGPIPE)


def parser() -> argparse.ArgumentParser:
    """Every command with its options and an example."""
    parser = argparse.ArgumentParser(
        prog="proofmill", description=__doc__, epilog="`proofmill COMMAND --help` has an example of each."
    )
    parser.add_argument("--version", action="version", version=f"proofmill {proofmill.__version__}")
    parser.add_argument(
        "--print-completion",
        action=PrintCompletion,
        choices=["bash", "zsh", "tcsh"],
        help='what your shell\'s start-up file evaluates to complete this command: eval "$(proofmill --print-completion bash)"',
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    runs = {**before.add(commands), **after.add(commands), **keeping.add(commands), **serving.add(commands)}
    for command, run in runs.items():
        command.epilog = f"example: {EXAMPLES[command.prog.split()[-1]]}"
        command.set_defaults(run=run)
        command.add_argument("--results", type=Path, help="where tables stand; `results` of config.yaml without it")
    return parser


if __name__ == "__main__":
    main()
