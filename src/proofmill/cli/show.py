"""`proofmill show`: print finished tables."""

import argparse
from pathlib import Path

from proofmill.cli.config_options import (
    add_configfile,
    add_json,
    default_recipe,
    is_artifact,
    print_json,
    print_lines,
    read_config,
)
from proofmill.schema.errors import SettingError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `show`."""
    parser.add_argument("targets", nargs="*", help="a recipe or <kind>/<name> (default: the first recipe)")
    parser.add_argument(
        "--row", metavar="ID", help="print the full row of one artifact with this id, or a prefix of it"
    )
    parser.add_argument(
        "--where", metavar="EXPR", help="filter rows with an SQL expression, e.g. \"grade < 3 AND reason = 'ok'\""
    )
    parser.add_argument("--columns", nargs="+", default=[], help="print only these columns")
    parser.add_argument(
        "--rows", type=int, metavar="N", help="maximum number of rows (default: 10 with --where or --columns)"
    )
    add_json(parser)
    add_configfile(parser)


def run(options: argparse.Namespace) -> None:
    """Print the pages of targets; of a single artifact its metadata, or the selected rows."""
    names = options.targets
    if len(names) == 1 and is_artifact(names[0]):
        return _show_one(options)
    if _selects_rows(options):
        raise SettingError(
            f"show {' '.join(names)}: --row, --where, --columns and --rows need one artifact; expected one <kind>/<name>. Name one."
        )
    from proofmill.analysis.show import list_outputs, to_data

    if not names or not all(map(is_artifact, names)):
        config = read_config(options)
        names = [name for target in names or [default_recipe(config)] for name in config.list_target(target)]
    if options.json:
        return print_json("show", {"artifacts": [to_data(name, options.results) for name in names]})
    print_lines(list_outputs(names, options.results))


def _selects_rows(options: argparse.Namespace) -> bool:
    """Return whether an option asks for rows."""
    return bool(options.columns) or any(x is not None for x in (options.row, options.where, options.rows))


def _show_one(options: argparse.Namespace) -> None:
    """Print the metadata or rows of one artifact."""
    from proofmill.analysis import show_artifact
    from proofmill.analysis.show import list_outputs, to_data
    from proofmill.artifacts.tables import Table

    table = Table(options.targets[0], options.results)
    if not table.path.exists() and Path("config.yaml").exists():
        read_config(options).list_target(table.name)  # else the name is unknown
    limit = show_artifact.ROWS if options.rows is None else options.rows
    rows = (
        show_artifact.rows(table, options.row, options.where, options.columns, limit)
        if _selects_rows(options)
        else None
    )
    if options.json:
        shown = {} if rows is None else {"rows": rows.to_dicts()}
        print_json("show", {"artifacts": [{**to_data(table.name, options.results), **shown}]})
    elif rows is None:
        facts = show_artifact.facts(table) if table.path.exists() else ()
        print_lines([*facts, *list_outputs([table.name], options.results)])
    elif options.row is not None:
        print_lines(show_artifact.as_page(rows.to_dicts()[0]))
    else:
        print_lines([show_artifact.as_table(rows)])
