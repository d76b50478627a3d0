"""`proofmill plan`: show the jobs, calls and cost of a target, and whether it fits a machine."""

import argparse
import shutil
import sys
from typing import Any

from proofmill.cli.config_options import (
    add_configfile,
    add_json,
    default_recipe,
    is_artifact,
    print_result,
    read_config,
)
from proofmill.schema.errors import SettingError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `plan`."""
    parser.add_argument(
        "target", nargs="?", help="a recipe, <kind>/<name> or the path of a table (default: the first recipe)"
    )
    add_configfile(parser)
    parser.add_argument(
        "--verbose", action="store_true", help="print all details of each stage, finished ones included"
    )
    parser.add_argument(
        "--machine",
        metavar="NAME",
        help="check whether the run fits this machine, e.g. 8xH100, 2x8xH200, 4x48GB, cpu; exits with 1 if not",
    )
    parser.add_argument(
        "--mean-length",
        type=float,
        default=1.0,
        metavar="SHARE",
        help="mean text length as a share of the limit, for the GPU-hours of --machine (default: 1)",
    )
    add_json(parser)


def run(options: argparse.Namespace) -> None:
    """Print the plan of a target; with `--machine`, whether it fits."""
    from proofmill.planning.plan import RunPlan

    if not 0 < options.mean_length <= 1:
        raise SettingError(
            f"--mean-length {options.mean_length:g}: is not such a share; expected one above 0 and up to 1. Change it."
        )
    config = read_config(options)
    plan = RunPlan(config, options.target or default_recipe(config), options.results)
    if options.machine:
        check_fit(plan, options)
    else:
        verbose = options.verbose or (options.target is not None and is_artifact(options.target))
        print_result(
            options,
            plan.data() if options.json else {},
            plan.lines(verbose, shutil.get_terminal_size((120, 0)).columns),
        )


def check_fit(plan: Any, options: argparse.Namespace) -> None:
    """Print whether the jobs of a plan fit a machine; exit with code 1 if one does not."""
    from proofmill.planning.feasibility import Feasibility
    from proofmill.planning.machines import machine

    feasibility = Feasibility(plan, machine(options.machine), options.mean_length)
    print_result(options, {"target": plan.target, **feasibility.data()}, feasibility.lines())
    if not feasibility.fits:
        sys.exit(1)
