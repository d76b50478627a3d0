"""`proofmill compare`: compare logs of evaluation programs, without a recipe."""

import argparse
from pathlib import Path

from proofmill.cli.config_options import add_json, print_result
from proofmill.schema.errors import SettingError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `compare`."""
    parser.add_argument("logs", nargs="+", type=Path, help="two or more logs, folders with one log, or grades/<name>")
    parser.add_argument(
        "--metric", action="append", default=[], help="metric to compare, once for all logs or once for each, in order"
    )
    parser.add_argument("--ignore-statements", action="store_true", help="match ids whose statements differ")
    parser.add_argument("--max-points", type=float, metavar="N", help="scores are out of N (default: 1 if all fit)")
    parser.add_argument("--confidence", type=float, default=0.95, help="confidence level (default: 0.95)")
    add_json(parser)


def run(options: argparse.Namespace) -> None:
    """Print the comparison."""
    from proofmill.analysis.compare import compare
    from proofmill.analysis.compare_text import lines

    if not 0 < options.confidence < 1 or (options.max_points is not None and not options.max_points > 0):
        raise SettingError("compare: expected --confidence between 0 and 1, and --max-points above 0. Fix them.")
    # Like other commands, take `grades/x` for a table in the results folder.
    tables = [options.results / f"{log}.parquet" for log in options.logs]
    logs = [
        log if log.exists() or not table.exists() else table for log, table in zip(options.logs, tables, strict=True)
    ]
    settings = (options.ignore_statements, options.max_points, options.confidence)
    result = compare(logs, options.metric, *settings)
    print_result(options, result, lines(result))
