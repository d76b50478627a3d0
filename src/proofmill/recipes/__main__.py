"""`python -m proofmill.recipes` prints every artifact of every recipe, with its entry as it is after expansion."""

import argparse
import sys

from proofmill.recipes.book import expand
from proofmill.recipes.yaml_files import read
from proofmill.schema.errors import ProofmillError, SettingError
from proofmill.schema.references import canonical
from proofmill.text.suggestions import among


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m proofmill.recipes", description="Print every artifact of every recipe."
    )
    parser.add_argument("recipe", nargs="?", help="only this recipe")
    parser.add_argument("--configfile", nargs="+", default=[], help="laid over config.yaml")
    options = parser.parse_args()
    try:
        book = expand(read("config.yaml", *options.configfile))
        if options.recipe and options.recipe not in book.recipes:
            raise SettingError(
                f"{options.recipe}: no such recipe; expected one of {among(options.recipe, book.recipes)}"
            )
    except ProofmillError as error:
        sys.exit(f"{type(error).__name__}: {error}")
    for recipe in [options.recipe] if options.recipe else book.recipes:
        print(f"{recipe}:")
        for name in book.recipes[recipe]:
            print(f"  {name}: {canonical(book.entries[name])}")


if __name__ == "__main__":
    main()
