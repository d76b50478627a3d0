"""The configurations that use a results folder, so that `proofmill gc` deletes nothing that one of them declares.

results/configurations/ has one file for each list of configuration files that was used in a run. It contains this list,
and the digest of each artifact's identity. A later run with the same list replaces the file; `proofmill gc --forget`
removes it.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from proofmill.config.config import SETTINGS, Config
from proofmill.config.identity import identity_of
from proofmill.runtime import durable
from proofmill.schema.errors import SettingError
from proofmill.schema.ids import digest
from proofmill.text.suggestions import among

FOLDER = "configurations"


@dataclass(frozen=True)
class Configuration:
    """Declarations of a list of configuration files."""

    title: str
    artifacts: dict[str, str]  # by name: the digest of its identity


def of(config: Config) -> dict[str, str]:
    """Return the digest of each artifact's identity."""
    return {name: digest(json.loads(identity_of(entry, config.declared))) for name, entry in config.entries.items()}


def in_stamp(stamp: Mapping[str, Any]) -> str:
    """Return the digest of the identity that a table was made from."""
    fields = ("entry", "revision", "prompts", "declared", "plugins")
    return digest({field: stamp[field] for field in fields if field in stamp})


def place(results: Path, files: Iterable[str | Path], overrides: Mapping[str, Any] | None = None) -> Path:
    """Return the path of the record of these files, with `overrides` from a command line merged onto them.

    It is the same after project and results folder were moved or copied together, and differs for two projects that
    share a results folder.
    """
    relative = [os.path.relpath(file, results.resolve()) for file in files]
    chosen = {key: value for key, value in (overrides or {}).items() if key not in SETTINGS}
    return results / FOLDER / f"{digest(relative, chosen)}.json"


def note(
    config: Config, results: Path, files: Iterable[str | Path], overrides: Mapping[str, Any] | None = None
) -> None:
    """Record what these files declare. While an entry has a mistake, earlier declarations are kept as well."""
    files = list(files)
    path, known = place(results, files, overrides), of(config)
    if config.faults and path.exists():
        known = _read(path).artifacts | known
    title = " + ".join([*map(os.path.relpath, files), *(f"{key}={value}" for key, value in (overrides or {}).items())])
    text = json.dumps(asdict(Configuration(title, known)), indent=1)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        durable.write(path, text)


def others(results: Path, files: Iterable[str | Path]) -> Iterator[Configuration]:
    """Yield the recorded configurations except that of these files. Raises SettingError for a damaged record."""
    for path in sorted((results / FOLDER).glob("*.json")):
        if path != place(results, files):
            yield _read(path)


def forget(results: Path, files: Iterable[str | Path], title: str) -> None:
    """Remove the records with this title, except that of these files. Raises SettingError if no record has it."""
    own = place(results, files)
    known = [(path, _read(path).title) for path in sorted((results / FOLDER).glob("*.json")) if path != own]
    if not (paths := [path for path, each in known if each == title]):
        raise SettingError(
            f"--forget {title}: no such configuration; expected one of {among(title, [each for _, each in known])} Run `proofmill gc` "
            "to list them."
        )
    for path in paths:
        path.unlink()
    durable.sync_name(paths[0])


def _read(path: Path) -> Configuration:
    try:
        return Configuration(**json.loads(path.read_bytes()))
    except (ValueError, TypeError, RecursionError) as error:
        raise SettingError(
            f"{path}: is damaged ({error}); expected the artifacts that a configuration declares. Remove the file, "
            "and run Snakemake with that configuration to record it again."
        ) from error
