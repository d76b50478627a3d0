"""`proofmill init`: create a project folder."""

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `init`."""
    parser.add_argument("folder", type=Path, help="the folder to create")


def run(options: argparse.Namespace) -> None:
    """Write the starter project."""
    from proofmill.config import starter

    starter.write(options.folder)
    print(
        f"{options.folder}: config.yaml has a recipe of your own. Run `cd {options.folder}`, then `snakemake` (takes a minute)."
    )
