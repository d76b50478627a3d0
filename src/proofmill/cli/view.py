"""`proofmill view`: serve a local web page of the results."""

import argparse

from proofmill.cli.config_options import add_configfile
from proofmill.viewer import server


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `view`."""
    parser.add_argument("--port", type=int, default=0, help="port on the loopback address (default: any free port)")
    add_configfile(parser)
    parser.set_defaults(first=first)


def first(options: argparse.Namespace) -> None:
    """Print the address, before the configuration is read."""
    options.listening = server.announce(options.port)


def run(options: argparse.Namespace) -> None:
    """Serve the page until interrupted."""
    server.serve(options.configfile, options.results, *options.listening)
