"""`proofmill why`: explain a rebuild, or trace a row to its source."""

import argparse
from dataclasses import asdict

from proofmill.cli.config_options import add_configfile, add_json, print_result, read_config


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `why`."""
    parser.add_argument("name", help="<kind>/<name>")
    parser.add_argument("--row", metavar="ID", help="the id of a row, or a prefix of it; for scores, the row number")
    add_json(parser)
    add_configfile(parser)


def run(options: argparse.Namespace) -> None:
    """Print why an artifact is due, or the lineage of a row."""
    if options.row is None:
        from proofmill.analysis import why

        explained = why.explain(read_config(options), options.name, options.results)
        content, lines = {"artifacts": explained}, why.lines(explained)
    else:
        from proofmill.analysis import lineage

        steps = lineage.trail(options.name, options.row, options.results)
        content, lines = {"steps": [asdict(step) for step in steps]}, lineage.lines(steps)
    print_result(options, {"name": options.name, **content}, lines)
