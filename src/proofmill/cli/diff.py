"""`proofmill diff`: compare two artifacts."""

import argparse
from pathlib import Path

from proofmill.cli.config_options import add_json, print_result
from proofmill.schema.errors import SettingError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `diff`."""
    parser.add_argument("one", help="<kind>/<name>")
    parser.add_argument("other", nargs="?", help="<kind>/<name> (default: the same name in --other-results)")
    parser.add_argument("--other-results", type=Path, metavar="RESULTS", help="results folder of the other artifact")
    add_json(parser)


def run(options: argparse.Namespace) -> None:
    """Print the differences."""
    from proofmill.analysis import differences
    from proofmill.artifacts.tables import Table

    if options.other is None and options.other_results is None:
        raise SettingError(
            f"diff {options.one}: only one artifact is named; expected a second one. Name it, or set --other-results."
        )
    other = Table(options.other or options.one, options.other_results or options.results)
    found = differences.compare(Table(options.one, options.results), other)
    print_result(options, found, differences.lines(found))
