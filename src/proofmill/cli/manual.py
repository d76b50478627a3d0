"""`proofmill manual`: print reference pages."""

import argparse

from proofmill.cli.config_options import add_configfile, read_config
from proofmill.schema.errors import SettingError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `manual`."""
    parser.add_argument("page", nargs="?", help="a kind, `api`, `grader` or `reasons`")
    parser.add_argument(
        "--schema",
        action="store_true",
        help="print the JSON schema of configuration files, for editors, instead of a page",
    )
    add_configfile(parser)


def run(options: argparse.Namespace) -> None:
    """Print a page, or the JSON schema."""
    from proofmill.config import config_schema
    from proofmill.text.suggestions import among

    read_config(options, drafts=False)  # registers the user's plugins
    if options.schema:
        return print(config_schema.text(), end="")
    from proofmill.config import manual

    pages = {name.removesuffix(".md"): text for name, text in manual.pages().items()}
    if options.page not in pages:
        raise SettingError(f"manual {options.page}: no such page; expected one of {among(str(options.page), pages)}")
    print(pages[options.page], end="")
