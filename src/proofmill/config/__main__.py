"""Print every artifact of every recipe with its expanded entry: `python -m proofmill.config`."""

import argparse
import sys

from proofmill.config.config import expand
from proofmill.config.yaml_files import read
from proofmill.schema.errors import ProofmillError, SettingError
from proofmill.schema.references import canonical
from proofmill.text.suggestions import among


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog="python -m proofmill.config", description="Print every artifact of every recipe."
    )
    parser.add_argument("recipe", nargs="?", help="only this recipe")
    parser.add_argument("--configfile", nargs="+", default=[], help="files merged onto config.yaml")
    options = parser.parse_args()
    try:
        config = expand(read("config.yaml", *options.configfile))
        if options.recipe and options.recipe not in config.recipes:
            raise SettingError(
                f"{options.recipe}: no such recipe; expected one of {among(options.recipe, config.recipes)}"
            )
    except ProofmillError as error:
        sys.exit(f"{type(error).__name__}: {error}")
    for recipe in [options.recipe] if options.recipe else config.recipes:
        print(f"{recipe}:")
        for name in config.recipes[recipe]:
            print(f"  {name}: {canonical(config.entries[name])}")


if __name__ == "__main__":
    main()
