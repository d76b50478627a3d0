"""Keep private texts out of publications: a key stops a publication, and local paths are replaced by names.

Everything published is checked here: texts, stamps (metadata), rows of tables, files next to weights.

Differences from secret scanners:
1. Keys are recognized by their values in the environment (variables that end in KEY, TOKEN, SECRET or PASSWORD, with
   eight or more characters), and by the patterns of well-known keys.
2. A path becomes its name in the configuration (the address of public data, `${MY_DATA}/x.jsonl`), or `~`, `.`,
   `results`.
"""

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
from pyarrow import parquet

import proofmill
from proofmill.artifacts.checked_parquet import UNSEALED, frame_of, no_rows, seal, writer
from proofmill.artifacts.contents import ROW_GROUP
from proofmill.public_data.registry import copy_of, is_public
from proofmill.schema.errors import TableError

TELLING = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD)S?$")
BINARY = (".safetensors", ".model")  # files next to weights that are not text
SHORTEST = 8  # characters of a key; servers without keys get words such as `none` or `EMPTY`
# A key may follow the `n` of a line end in JSON.
FORMS = rb"(?:\b|(?<=\\[bfnrt]))(?:hf_[A-Za-z0-9]{30,}|sk-[A-Za-z0-9_-]{20,}|gh[a-z]_[A-Za-z0-9]{30,}|AKIA[0-9A-Z]{16})"


class Private:
    """The private texts of this process: keys in its environment, its folders, and the paths of `entries`."""

    def __init__(self, entries: Iterable[Any], results: Path, keys: Mapping[str, str] | None = None):
        named = {name: value for name, value in os.environ.items() if TELLING.search(name)} | dict(keys or {})
        self.keys = {value: name for name, value in named.items() if len(value) >= SHORTEST}
        self._secret = re.compile(b"|".join([*(re.escape(value.encode()) for value in self.keys), FORMS]))
        self.written = _paths_of(entries)
        self.set_places(_folders(results, self.written))

    def set_places(self, places: Mapping[str, str]) -> None:
        """Set the names that replace folders."""
        longest_first = sorted(places, key=len, reverse=True)
        pattern = "|".join(re.escape(folder) for folder in longest_first)
        self.places = dict(places)
        self._place = re.compile(rf"(?<![\w./~-])(?:{pattern})(?![\w-])")
        self._place_in_bytes = re.compile(self._place.pattern.encode())

    def check(self, where: str, content: bytes) -> None:
        """Raise TableError if the content has a key. The message names its variable and never shows the key."""
        if match := self._secret.search(content):
            variable = self.keys.get(match[0].decode())
            secret = f"the value of {variable}" if variable else "a text that looks like a service's key"
            raise TableError(
                f"{where}: has {secret}; expected no keys. Nothing was sent. Find its source, rebuild the table without it, and "
                "replace the key."
            )

    def has_path(self, content: bytes) -> bool:
        """Return whether the content has a path of this machine."""
        return self._place_in_bytes.search(content) is not None

    def clean(self, value: Any) -> Any:
        """Replace each path of this machine by its name, in all nested texts."""
        if isinstance(value, str):
            return self._place.sub(lambda match: self.places[match[0]], value)
        if isinstance(value, list):
            return [self.clean(item) for item in value]
        if isinstance(value, dict):
            return {key: self.clean(item) for key, item in value.items()}
        return value

    def stamp(self, stamp: Mapping[str, Any]) -> dict[str, Any]:
        """Return a publishable stamp. Of paths without a name, as from another machine, only the last part is kept."""
        folders = [str(Path(path).parent) for path in stamp["sources"] if path.startswith("/")]
        shared = os.path.commonpath(folders) if folders else "/"
        sources = {self._source(path).removeprefix(f"{shared}/"): sha256 for path, sha256 in stamp["sources"].items()}
        return _without_folders(self.clean({**stamp, "sources": sources}))

    def text(self, text: str, where: str) -> bytes:
        """Return a publishable text, encoded. Raises TableError if it has a key."""
        content = self.clean(text).encode()
        self.check(where, content)
        return content

    def of_a_model(self, path: Path) -> Path | bytes:
        """Return a publishable file of a model. Only configurations are cleaned: tokens of a vocabulary may look like paths."""
        if path.suffix in BINARY:
            return path
        content = path.read_bytes()
        self.check(str(path), content)
        unclean = path.name.endswith("config.json") and self.has_path(content)
        return self.text(content.decode(), str(path)) if unclean else path

    def rows(self, path: Path, where: str, kept: Path, stamp: Mapping[str, Any] | None = None) -> Path:
        """Return a publishable Parquet file: `path`, or a cleaned copy at `kept`.

        It is cleaned if it has a path of this machine or a stamp other than `stamp`. Raises TableError if it has a key
        or cannot be read.
        """
        try:
            same = stamp is None or json.loads(parquet.read_metadata(path).metadata[b"proofmill"]) == stamp
            self.check(f"{where}: the stamp", json.dumps(stamp, ensure_ascii=False).encode())
            for frame in _frames(path):
                for name, column in zip(frame.columns, _arrow(frame).columns, strict=True):
                    for text in (text for chunk in column.chunks for text in _texts(chunk)):
                        self.check(f"{where}: column `{name}`", text)
                        same = same and not self.has_path(text)
            if not same:
                self._rewrite(path, kept, stamp)
        except (pa.ArrowException, OSError) as error:
            raise TableError(
                f"{path}: cannot be read or cleaned ({error}); expected Parquet, and free space in {kept.parent} (TMPDIR). "
                "Rebuild the table, or free space."
            ) from error
        return path if same else kept

    def _rewrite(self, path: Path, kept: Path, stamp: Mapping[str, Any] | None) -> None:
        kept.parent.mkdir(parents=True, exist_ok=True)
        frames = _frames(path)
        with writer(kept, _arrow(next(frames)).schema) as file:
            for frame in frames:
                cleaned = pl.DataFrame(self.clean(frame.to_dicts()), schema=frame.schema, orient="row")
                file.write_table(_arrow(cleaned), row_group_size=ROW_GROUP)
            if stamp is not None:
                file.add_key_value_metadata({"proofmill": json.dumps(stamp, ensure_ascii=False), **UNSEALED})
        if stamp is not None:
            seal(kept)

    def _source(self, path: str) -> str:
        """Return a source file's path as written in its entry."""
        for expanded, text in self.written.items():
            if path == expanded or path.startswith(f"{expanded}/"):
                return text + path.removeprefix(expanded)
        return path


def _frames(path: Path) -> Iterator[pl.DataFrame]:
    """Yield an empty frame with the schema, then the rows in batches."""
    with parquet.ParquetFile(path) as file:
        yield no_rows(file.schema_arrow)
        for batch in file.iter_batches(batch_size=ROW_GROUP):
            yield frame_of(batch)


def _arrow(frame: pl.DataFrame) -> pa.Table:
    return frame.to_arrow(compat_level=pl.CompatLevel.oldest())


def _texts(array: pa.Array) -> Iterator[bytes]:
    """Yield the texts of a column, including those in lists and structs, joined by a byte that no key or path has."""
    if pa.types.is_struct(array.type):
        for number in range(array.type.num_fields):
            yield from _texts(array.field(number))
    elif pa.types.is_large_list(array.type):
        yield from _texts(array.values)
    elif pa.types.is_large_string(array.type):
        yield pl.Series(array).str.join("\0").item().encode()


def _paths_of(entries: Iterable[Any]) -> dict[str, str]:
    """Return each path of the entries on this machine, with its text in the entry (the last part of an absolute one)."""
    texts = {path for entry in entries if (path := getattr(entry, "path", None))}
    public = {str(copy): text for text in texts if is_public(text) and (copy := copy_of(text))}
    texts = {text for text in texts if not is_public(text)}
    named = {text: Path(text).name if text.startswith("/") else text for text in sorted(texts)}
    return {str(Path(os.path.expandvars(text)).expanduser()): name for text, name in named.items()} | public


def _folders(results: Path, written: Mapping[str, str]) -> dict[str, str]:
    """Return folders and files of this machine, with the names that replace them."""
    variables = {name for text in written.values() for name in re.findall(r"\$\{?(\w+)\}?", text)} | {"PROOFMILL_DATA"}
    names = {str(Path.home()): "~", str(Path(proofmill.__file__).parent): "proofmill"}
    if sys.prefix != sys.base_prefix:  # only a virtual environment, not /usr
        names[sys.prefix] = "python"
    names |= {str(Path.cwd()): ".", str(results.resolve()): "results"}
    names |= {os.environ[name].rstrip("/"): f"${{{name}}}" for name in sorted(variables) if name in os.environ}
    names = {folder: name for folder, name in names.items() if folder.startswith("/") and folder != "/"}
    for expanded, text in written.items():
        if "$" in text:  # a variable may be any part of a path
            names[expanded] = text
            names |= {Path(expanded).name: Path(text).name} if "$" in Path(text).name else {}
    return names


def _without_folders(value: Any) -> Any:
    """Reduce each absolute path in a value to its last part."""
    if isinstance(value, str):
        return Path(value).name if value.startswith("/") else value
    if isinstance(value, list):
        return [_without_folders(item) for item in value]
    if isinstance(value, dict):
        return {_without_folders(key): _without_folders(item) for key, item in value.items()}
    return value
