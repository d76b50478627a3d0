"""`proofmill view`: serve a local web page of the results."""

import argparse

from proofmill.cli.config_options import add_configfile


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `view`."""
    parser.add_argument("--port", type=int, default=0, help="port on the loopback address (default: any free port)")
    add_configfile(parser)


def run(options: argparse.Namespace) -> None:
    """Serve the page until interrupted."""
    from proofmill.viewer import server

    server.serve(options.configfile, options.results, options.port)
