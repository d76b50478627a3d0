"""Options and look-ups that several commands share: the configuration, JSON output, and the kind of a target."""

import argparse
import json
from collections.abc import Iterable, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

SCHEMA = 1  # version of the JSON output (docs/automation.md)


def add_configfile(parser: argparse.ArgumentParser) -> None:
    """Add `--configfile`."""
    parser.add_argument("--configfile", nargs="+", default=[], help="configuration files merged onto config.yaml")


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add `--json`."""
    parser.add_argument("--json", action="store_true", help="print one JSON object (docs/automation.md)")


def print_result(options: argparse.Namespace, content: Mapping[str, Any], lines: Iterable[str]) -> None:
    """Print the lines of a result; with `--json`, its content."""
    if options.json:
        print_json(options.command, content)
    else:
        print_lines(lines)


def print_lines(lines: Iterable[str]) -> None:
    """Print lines; a terminal would obey the control sequences in texts of models and sources, so they are escaped."""
    from proofmill.schema.errors import escape_controls

    print(escape_controls("\n".join(lines)))


def print_json(command: str, content: Mapping[str, Any]) -> None:
    """Print the JSON object of a command. Numbers that JSON does not have (NaN, infinities) are null."""
    shown = {"schema": SCHEMA, "command": command, **content}
    valid = json.loads(json.dumps(shown, default=str), parse_constant=lambda _: None)
    print(json.dumps(valid, indent=2, ensure_ascii=False))


def read_config(options: argparse.Namespace, drafts: bool = True) -> Any:
    """Read the configuration. With `drafts`, entries with a mistake are left out until used; without, they raise."""
    from proofmill.config.config import expand

    return expand(_files(options), drafts=drafts)


def read_results_folder(options: argparse.Namespace) -> Path:
    """Return the results folder that the configuration names; `results` without a configuration."""
    from proofmill.config import yaml_files

    exists = Path("config.yaml").exists()
    files = _files(options) if exists else yaml_files.read(*getattr(options, "configfile", []))
    results = files.get("results", "results")
    if not isinstance(results, str):
        from proofmill.config.config import expand

        expand(files)  # raises RecipeError; only then, because this module takes long to import
    return Path(results)


def default_recipe(config: Any) -> str:
    """Return the first recipe, which is the target if none is named. Raises RecipeError without any."""
    from proofmill.schema.errors import RecipeError

    if not config.recipes:
        raise RecipeError(
            "config.yaml: has no recipe; expected one, such as `mine: {problems/sums: {source: arithmetic}}`. Add it; "
            "`proofmill init FOLDER` writes a whole project."
        )
    return next(iter(config.recipes))


def _files(options: argparse.Namespace) -> dict:
    """Read config.yaml and the files merged onto it, once per command: parsing them takes half a second."""
    from proofmill.config import yaml_files

    if not hasattr(options, "files"):
        options.files = yaml_files.read("config.yaml", *getattr(options, "configfile", []))
    return deepcopy(options.files)


def is_artifact(target: str) -> bool:
    """Return whether a target has the form <kind>/<name>."""
    from proofmill.schema.kinds import KINDS
    from proofmill.schema.names import kind_of

    return "/" in target and kind_of(target) in KINDS
