"""`proofmill publish`: push tables and models to the Hugging Face hub."""

import argparse
from pathlib import Path

from proofmill.cli.config_options import add_configfile, read_config


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `publish`."""
    parser.add_argument("recipes", nargs="+", metavar="recipe", help="finished recipes to publish together")
    parser.add_argument("--to", required=True, help="NAMESPACE/PREFIX of the repositories")
    parser.add_argument("--only", nargs="+", default=[], help="only these artifacts of the recipes, <kind>/<name>")
    parser.add_argument("--private", action="store_true", help="create new repositories as private")
    parser.add_argument(
        "--with-answers",
        action="store_true",
        help="add the model outputs, so that others can derive every number again",
    )
    parser.add_argument(
        "--any-license", action="store_true", help="with --with-answers, although the license of a source is not known"
    )
    parser.add_argument(
        "--dry-run", type=Path, metavar="FOLDER", help="write the files to this folder and send nothing"
    )
    add_configfile(parser)


def run(options: argparse.Namespace) -> None:
    """Publish the recipes."""
    from proofmill.publishing import hub

    selection = {"only": options.only, "private": options.private, "folder": options.dry_run}
    selection |= {"answers": options.with_answers, "any_license": options.any_license}
    hub.publish(read_config(options), options.recipes, options.to, options.results, **selection)
