"""`proofmill check`: test model servers and verify stored results."""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from proofmill.cli.config_options import add_configfile, add_json, print_json, read_config
from proofmill.runtime.progress import log
from proofmill.schema.errors import SettingError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `check`."""
    parser.add_argument(
        "targets", nargs="*", help="recipes or <kind>/<name> (default: everything in the results folder, and no server)"
    )
    add_json(parser)
    add_configfile(parser)
    parser.add_argument("--deep", action="store_true", help="read every byte of tables, weights and archived tables")


def run(options: argparse.Namespace) -> None:
    """Print each fault that is found; exit with code 1 if there is one."""
    config = read_config(options) if options.targets and Path("config.yaml").exists() else None
    faults = []
    for fault in faults_of_targets(options.targets, config, options.results, options.deep):
        faults.append(str(fault))
        if not options.json:
            print(fault, flush=True)
    if options.json:
        print_json(options.command, {"targets": options.targets, "sound": not faults, "faults": faults})
    if faults:
        sys.exit(1)
    log("check", "nothing is damaged")


def faults_of_targets(targets: list[str], config: Any, results: Path, deep: bool = False) -> Iterator[object]:
    """Yield the faults of targets: servers that due stages need, and damaged files in the results folder.

    Without targets, check all results and no server; without a configuration (`config`), no server either. Raises SettingError for a target
    that is unknown to both, RecipeError for one with a mistake.
    """
    from proofmill.artifacts.maintenance.integrity import artifacts_in, find_damage
    from proofmill.artifacts.states import States
    from proofmill.planning.connections import connections, faults_of, find_due
    from proofmill.text.suggestions import among

    entries, recipes = (config.entries, config.recipes) if config else ({}, {})
    given = [target.removeprefix(f"{results}/").removesuffix(".parquet") for target in targets]
    declaring = {*recipes, *(config.faults if config else ())}
    of_target = {each: config.list_target(each) if config and each in declaring else [each] for each in given}
    names = list(dict.fromkeys(name for each in given for name in of_target[each]))
    stored = artifacts_in(results) if targets else set()
    if unknown := [name for name in names if name not in entries and name not in stored]:
        known = among(unknown[0], {*recipes, *entries, *stored})
        raise SettingError(f"{unknown[0]}: is in no recipe and not in {results}; expected one of {known}")
    if config and (declared := [name for name in names if name in entries]):
        yield from faults_of(
            connections(config, find_due(config, States(config, results), declared)), results, config.budget
        )
    if not names or stored & set(names):
        yield from find_damage([name for name in names if name in stored], results, deep)
