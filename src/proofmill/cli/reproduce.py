"""`proofmill reproduce`: derive published tables again from their published answers."""

import argparse
import sys
from dataclasses import asdict

from proofmill.cli.config_options import add_json, print_json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `reproduce`."""
    parser.add_argument("source", metavar="SOURCE", help="a folder of a publication, or NAMESPACE/NAME of the hub")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="only these tables, <kind>/<name>")
    add_json(parser)


def run(options: argparse.Namespace) -> None:
    """Compare all tables; exit with 1 if one differs."""
    from proofmill.publishing import reproduction

    outcomes = reproduction.reproduce(options.source, options.only)
    states = [outcome.state for outcome in outcomes]
    if options.json:
        print_json("reproduce", {"tables": [asdict(outcome) for outcome in outcomes]})
    else:
        answers = sum(outcome.answers for outcome in outcomes)
        print(
            f"{states.count('equal')} tables are equal to the last digit, from {answers:,} answers, without a call; "
            f"{states.count('taken')} are taken as published; {states.count('differs')} differ"
        )
    if "differs" in states:
        sys.exit(1)
