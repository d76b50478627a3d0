"""`proofmill export`: write tasks and their grader as a package for another framework."""

import argparse
from pathlib import Path

from proofmill.cli.config_options import add_configfile, read_config
from proofmill.runtime.progress import log


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `export`."""
    parser.add_argument("name", metavar="ENTRY", help="grpo/<name>, grades/<name> or scores/<name>")
    parser.add_argument(
        "--to", required=True, choices=["inspect", "verifiers", "trl", "nemo-gym"], help="framework of the package"
    )
    parser.add_argument("--out", required=True, type=Path, metavar="FOLDER", help="folder to create")
    add_configfile(parser)


def run(options: argparse.Namespace) -> None:
    """Write the package."""
    from proofmill.exports import packages

    name = packages.export(read_config(options), options.name, options.to, options.out, options.results)
    log(
        options.name, f"written to {options.out}: the package {name}; install it with pip install --find-links wheels ."
    )
