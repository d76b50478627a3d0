"""`proofmill fetch`: download public data and models."""

import argparse

from proofmill.cli.config_options import add_configfile, default_recipe, read_config


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `fetch`."""
    parser.add_argument("targets", nargs="*", help="recipes, <kind>/<name> or tables (default: the first recipe)")
    parser.add_argument("--list", action="store_true", help="only list what is needed: size, license, location")
    add_configfile(parser)


def run(options: argparse.Namespace) -> None:
    """Download the data that targets need, or list it."""
    from proofmill.planning import data

    config = read_config(options)
    needed = data.list_needed(config, data.artifacts(config, options.targets or [default_recipe(config)]))
    if options.list:
        print("\n".join(data.lines(needed)))
    else:
        data.fetch(needed)
