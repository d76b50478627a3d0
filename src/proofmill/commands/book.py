"""What several commands read first: the configuration, and what a target means in it."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from proofmill.schema.kinds import KINDS
from proofmill.schema.names import kind_of

CONFIGFILE = {"nargs": "+", "default": [], "help": "laid over config.yaml"}


def book_of(options: argparse.Namespace, drafts: bool = True) -> Any:
    """The configuration. With `drafts` what has a mistake is left out of it until it is asked for; else it is refused."""
    from proofmill.recipes import yaml_files
    from proofmill.recipes.book import expand

    return expand(yaml_files.read("config.yaml", *options.configfile), drafts=drafts)


def results_of(configfiles: Sequence[str]) -> Path:
    """The folder of tables that the configuration names, if there is one here."""
    from proofmill.recipes import yaml_files

    files = [*(["config.yaml"] if Path("config.yaml").exists() else []), *configfiles]
    return Path(yaml_files.read(*files).get("results", "results"))


def is_artifact(target: str) -> bool:
    return "/" in target and kind_of(target) in KINDS
