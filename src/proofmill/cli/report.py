"""`proofmill report`: write one HTML file about a recipe."""

import argparse
from pathlib import Path

from proofmill.cli.config_options import add_configfile, read_book
from proofmill.runtime.progress import say


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `report`."""
    parser.add_argument("recipe", nargs="?", help="a recipe (default: the first one)")
    parser.add_argument("--out", type=Path, help="the file to write (default: <recipe>.html)")
    add_configfile(parser)


def run(options: argparse.Namespace) -> None:
    """Write the report."""
    from proofmill.viewer import report

    book = read_book(options)
    recipe = options.recipe or next(iter(book.recipes))
    out = options.out or Path(f"{recipe}.html")
    out.write_text(report.written(book, recipe, options.results), encoding="utf-8")
    say("report", f"is in {out}")
