"""The command `proofmill`: what is to be known before and after a run. Stages themselves are run by Snakemake."""

import argparse
import json
import sys
from pathlib import Path

from proofmill import journal, kinds
from proofmill.journal import JournalError
from proofmill.progress import say
from proofmill.recipes import RecipeError
from proofmill.tables import Table, TableError


def main() -> None:
    parser = argparse.ArgumentParser(prog="proofmill", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    planned = commands.add_parser("plan", help="what a target would make, why, and what it would cost")
    planned.add_argument(
        "target", nargs="?", help="a recipe, <kind>/<name> or a table's path; the first recipe without one"
    )
    planned.add_argument("--configfile", nargs="+", default=[], help="laid over config.yaml")
    planned.add_argument("--json", action="store_true", help="for programs")
    adopted = commands.add_parser("adopt", help="move the answers of an artifact that was renamed to its new name")
    adopted.add_argument("old", help="<kind>/<name> as it was")
    adopted.add_argument("new", help="<kind>/<name> as it is")
    for command in (planned, adopted):
        command.add_argument("--results", type=Path, default=Path("results"), help="where tables stand")
    options = parser.parse_args()
    try:
        if options.command == "plan":
            plan(options)
        else:
            adopt(options)
    except (RecipeError, TableError, JournalError) as error:
        sys.exit(f"{type(error).__name__}: {error}")


def plan(options: argparse.Namespace) -> None:
    from proofmill.inspect.plan import of

    made = of(options.target, options.configfile, options.results)
    if options.json:
        print(json.dumps(made.data(), indent=2, ensure_ascii=False))
    else:
        print("\n".join(made.lines()))


def adopt(options: argparse.Namespace) -> None:
    if kinds.kind_of(options.old) != kinds.kind_of(options.new) or kinds.kind_of(options.new) not in kinds.KINDS:
        raise RecipeError(
            f"{options.old} and {options.new}: expected two names of one kind, such as grades/a and grades/b."
        )
    old, new = (Table(name, options.results).calls for name in (options.old, options.new))
    say(options.new, f"has {journal.adopt(old, new):,} answers now, those of {options.old} among them")


if __name__ == "__main__":
    main()
