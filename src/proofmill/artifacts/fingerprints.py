"""Fingerprints: digests of all that decides the rows of a table: its entry, its parents and its sources."""

import hashlib
import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from proofmill.artifacts.tables import Table
from proofmill.calls import sampling
from proofmill.config.entry_values import entry_from
from proofmill.config.identity import identity_of, parts_of
from proofmill.config.source_paths import source_names, source_path
from proofmill.public_data.registry import check_unchanged, is_public
from proofmill.schema import references
from proofmill.schema.errors import RecipeError, SettingError, TableError, shorten
from proofmill.schema.ids import digest, file_sha256
from proofmill.schema.kinds import KINDS
from proofmill.schema.names import kind_of


def read_identity(name: str, identity: str) -> tuple[Any, dict[str, Any]]:
    """Parse an identity into its entry and the models and graders it relies on.

    Raises SettingError for invalid JSON, RecipeError if the user's plugins differ from those of the identity.
    """
    try:
        values = json.loads(identity)
        decided, relied = values["entry"], values["declared"]
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise SettingError(
            f"{name}: --entry is {shorten(identity)}; expected the checked entry as JSON. Omit it to read the configuration."
        ) from error
    declared = {other: entry_from(kind_of(other), fields) for other, fields in relied.items()}
    entry = entry_from(kind_of(name), decided)
    if values.get("plugins", {}) != parts_of(entry, declared):
        raise RecipeError(
            f"{name}: your plugins ({', '.join(sorted(values.get('plugins', {})))}) have changed since the run was planned; expected "
            "files that stay unchanged during a run. Rerun it."
        )
    return entry, declared


def digest_inputs(table: Table, entry: Any, declared: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the content by name of the tables that an artifact reads, and the digest by name of its source files.

    Raises TableError if a table or file is missing.
    """

    def entry_of(parent: str) -> dict:
        return table.other(parent).stamp["entry"]

    read = references.reads(table.kind, entry, entry_of, declared)
    tables = map(table.other, read)
    contents = {parent.name: as_read(table.kind, parent.content, parent.folder) for parent in tables}
    return contents, sources_of(table.kind, entry, entry_of)


def as_read(kind: str, content: str, folder: Path) -> str:
    """Return the digest of a parent's content that goes into the fingerprint of a `kind`; `folder` has its weights.

    Weights with sampling settings of their own (`generation_config.json`) get another digest than before these were
    ignored, so tables that were sampled with them are rebuilt.
    """
    if kind == "sft":
        return content
    return sampling.journal_name(content, folder, sampling.BY_TRL if KINDS[kind].trains else ())


def sources_of(kind: str, entry: Any, entry_of: Callable[[str], Any]) -> dict[str, str]:
    """Return the digest by name of the files that an entry reads in addition to artifacts.

    Raises TableError if one is missing, or differs from what was downloaded.
    """
    names = source_names(kind, entry, entry_of)
    digests = {path: _source_digest(path) for path in names}
    if (source := source_path(kind, entry, entry_of)) and is_public(source):
        check_unchanged(source, {str(path): digest for path, digest in digests.items()})
    return {names[path]: digest for path, digest in digests.items()}


def fingerprint_of(
    name: str, entry: Any, declared: Mapping[str, Any], parents: Mapping[str, str], sources: Mapping[str, str]
) -> str:
    """Return a digest of the entry's identity, and of the names and contents of its parents and sources.

    The entry's own name is part of it only if it decides rows.
    """
    own = [name] if entry.draws_by_name() else []
    return digest(identity_of(entry, declared), sorted(parents.items()), sorted(sources.items()), *own)


def _source_digest(path: Path) -> str:
    try:
        stat = path.stat()
        # An empty file is not opened: kernel files have no size, and reading one may block.
        if not stat.st_size:
            return hashlib.sha256().hexdigest()
        return _digest_of(path, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
    except OSError as error:
        raise TableError(
            f"{path}: cannot be read ({error.strerror}); expected the source that the entry names."
        ) from error


@cache
def _digest_of(path: Path, *_: int) -> str:
    """Return the SHA-256 of a file, cached by its inode, size and times: many entries share a file."""
    return file_sha256(path)
