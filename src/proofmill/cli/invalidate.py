"""`proofmill invalidate`: repeat model calls in the next run."""

import argparse

from proofmill.cli.config_options import add_configfile, read_config
from proofmill.runtime.progress import log
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

    config = read_config(options)
    (name,) = config.list_target(options.name) if options.name not in config.recipes else [options.name]
    calling = [n for n in config.entries if KINDS[kind_of(n)].calls_models]
    if name not in calling:
        raise SettingError(f"{name}: is in no recipe, or makes no model calls; expected one of {among(name, calling)}")
    table = Table(name, options.results)
    result = invalidate(config, table, options.where, options.all)
    if not result:
        nothing = "no row is unscored or dropped, or --where matches none. Use --where or --all"
        log(name, f"invalidated nothing: {'its journal has no valid outputs' if options.all else nothing}")
        return
    rows = "all rows" if result.rows is None else f"{result.rows:,} rows"
    log(name, f"calls of {rows} are repeated by: snakemake {name}")
    log(name, f"{result.answers:,} old outputs stay in {table.calls}; their cost still counts towards the budget")
