"""`proofmill invalidate`: repeat model calls in the next run."""

import argparse

from proofmill.cli.config_options import add_configfile, read_book
from proofmill.runtime.progress import say
from proofmill.schema.errors import SettingError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `invalidate`."""
    parser.add_argument("name", help="<kind>/<name>, whose journal is in the results folder")
    parser.add_argument(
        "--where",
        nargs="+",
        default=[],
        metavar="COLUMN=VALUE",
        help="the rows for which all of these hold (default: unscored and dropped rows)",
    )
    parser.add_argument("--all", action="store_true", help="all rows")
    add_configfile(parser)


def run(options: argparse.Namespace) -> None:
    """Invalidate model outputs, so that the next run repeats their calls."""
    from proofmill.artifacts.maintenance.invalidation import invalidate
    from proofmill.artifacts.tables import Table
    from proofmill.schema.kinds import KINDS
    from proofmill.schema.names import kind_of
    from proofmill.text.suggestions import among

    book = read_book(options)
    (name,) = book.targeted(options.name) if options.name not in book.recipes else [options.name]
    calling = [n for n in book.entries if KINDS[kind_of(n)].calls_models]
    if name not in calling:
        raise SettingError(f"{name}: is in no recipe, or makes no model calls; expected one of {among(name, calling)}")
    table = Table(name, options.results)
    result = invalidate(book, table, options.where, options.all)
    if not result:
        say(name, "invalidated nothing: no row is unscored or dropped, or --where matches none. Use --where or --all")
        return
    rows = "all rows" if result.rows is None else f"{result.rows:,} rows"
    say(name, f"calls of {rows} are repeated by: snakemake {name}")
    say(name, f"{result.answers:,} old outputs stay in {table.calls}; their cost still counts towards the budget")
