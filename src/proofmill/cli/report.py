"""`proofmill report`: write one HTML file about a recipe."""

import argparse
from pathlib import Path

from proofmill.cli.config_options import add_configfile, default_recipe, read_config
from proofmill.runtime.progress import log


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `report`."""
    parser.add_argument("recipe", nargs="?", help="a recipe (default: the first one)")
    parser.add_argument("--out", type=Path, help="the file to write (default: <recipe>.html)")
    add_configfile(parser)


def run(options: argparse.Namespace) -> None:
    """Write the report."""
    from proofmill.viewer import report

    config = read_config(options)
    recipe = options.recipe or default_recipe(config)
    out = options.out or Path(f"{recipe}.html")
    out.write_text(report.write(config, recipe, options.results), encoding="utf-8")
    log("report", f"is in {out}")
