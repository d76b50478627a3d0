"""`proofmill why`: explain a rebuild, or trace a row to its source."""

import argparse

from proofmill.cli.config_options import add_configfile, read_config


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `why`."""
    parser.add_argument("name", help="<kind>/<name>")
    parser.add_argument("--row", metavar="ID", help="the id of a row, or a prefix of it; for scores, the row number")
    add_configfile(parser)


def run(options: argparse.Namespace) -> None:
    """Print why an artifact is due, or the lineage of a row."""
    if options.row is None:
        from proofmill.analysis import why

        print("\n".join(why.lines(read_config(options), options.name, options.results)))
    else:
        from proofmill.analysis import lineage

        print("\n".join(lineage.lines(lineage.trail(options.name, options.row, options.results))))
