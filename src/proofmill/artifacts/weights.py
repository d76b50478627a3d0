"""Weights beside a table: their files are compared with those that were written before anybody loads them.

MARK, among them, names their table and holds of each file its size, its time of change, its SHA-256 and the SHA-256 of
a sample of it. Where size and time are as they were, the sample is compared: at most 1 MiB of a file, so that 16 GB of
weights in eight files cost 8 MiB of reading. Where the time differs (a file was written to, or copied without its
time), or where MARK has no such facts, the whole file is. What the whole files must be is in the table's stamp.

A change that keeps the time of a file and misses its sample, such as one bit that the disk forgets, is seen by
`proofmill check --deep` alone.
"""

import hashlib
import json
import random
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

from proofmill.runtime import durable
from proofmill.schema.errors import TableError
from proofmill.schema.ids import digest, file_sha256
from proofmill.schema.kinds import KINDS

MARK = "proofmill.json"
OF_A_MODEL = {".safetensors", ".json", ".txt", ".model", ".jinja"}  # weights, configuration, tokenizer, chat template
BLOCK = 2**16  # bytes
BLOCKS = 16  # of a sample


@dataclass(frozen=True)
class Fact:
    """What is known of a file."""

    bytes: int
    changed: int  # nanoseconds, by the clock of the file system
    sha256: str
    sample: str  # SHA-256

    @classmethod
    def of(cls, path: Path) -> "Fact":
        """The facts of a file, which is read to its end."""
        found, sha256 = path.stat(), file_sha256(path)
        return cls(found.st_size, found.st_mtime_ns, sha256, _sample(path, found.st_size, sha256))

    def holds(self, path: Path) -> bool:
        """Whether size, time and sample of a file are still these."""
        found = path.stat()
        same = (found.st_size, found.st_mtime_ns) == (self.bytes, self.changed)
        return same and _sample(path, self.bytes, self.sha256) == self.sample


def _sample(path: Path, size: int, sha256: str) -> str:
    """SHA-256 of a file's first and last block, and of some between that its SHA-256 chooses; of a small file, all."""
    if size <= BLOCK * BLOCKS:
        return file_sha256(path)
    draw, whole = random.Random(sha256), hashlib.sha256()
    with open(path, "rb") as file:
        for place in sorted([0, size - BLOCK, *(draw.randrange(size - BLOCK) for _ in range(BLOCKS - 2))]):
            file.seek(place)
            whole.update(file.read(BLOCK))
    return whole.hexdigest()


def facts_of(folder: Path) -> dict[str, Fact]:
    """The facts of each file of a folder but MARK, by its path there, sorted."""
    return {path: Fact.of(folder / path) for path in _files(folder)}


def digests(facts: Mapping[str, Fact]) -> list[tuple[str, str]]:
    """(path, SHA-256) of each file: what stamps hold a digest of."""
    return [(path, fact.sha256) for path, fact in facts.items()]


def model_digest(kind: str, facts: Mapping[str, Fact]) -> str:
    """A digest of the weights and tokenizer alone, without what stands beside them."""
    return digest([file for file in digests(facts) if file[0] not in KINDS[kind].beside])


def _files(folder: Path) -> list[str]:
    return sorted(str(f.relative_to(folder)) for f in folder.rglob("*") if f.is_file() and f.name != MARK)


@dataclass(frozen=True)
class Weights:
    """The folder of a table's weights. `check` raises TableError."""

    folder: Path
    of: Path  # the table
    remedy: str  # what to do when they are damaged

    def write_mark(self, name: str, fingerprint: str, facts: Mapping[str, Fact]) -> None:
        """Name the table that they belong to, and what is known of the files. By one rename: MARK may be a link."""
        files = {path: asdict(fact) for path, fact in facts.items()}
        new = self.folder.with_name(
            f".{self.folder.name}.{secrets.token_hex(8)}.mark"
        )  # readers on other nodes write too
        try:
            new.write_text(json.dumps({"fingerprint": fingerprint, "name": name, "files": files}), encoding="utf-8")
            durable.replace(new, self.folder / MARK)
        finally:
            new.unlink(missing_ok=True)

    def check(self, stamp: Mapping[str, Any], kind: str, deep: bool = False) -> dict[str, Fact]:
        """The facts of the files, when they are those of a table with this stamp; `deep` reads all of each file."""
        mark = self._mark()
        if mark["fingerprint"] != stamp["fingerprint"]:
            self._refuse(
                self.folder, f"weights of {mark['fingerprint']}", f"those of {self.of} ({stamp['fingerprint']})"
            )
        known = self._known(mark)
        try:
            found = self._found(known, deep) if known else facts_of(self.folder)
        except OSError as error:
            self._refuse(error.filename or self.folder, f"cannot be read ({error.strerror})", "weights", error)
        if model_digest(kind, found) != stamp["model"]:
            self._refuse(self.folder, "its files are not those that were written", f"the weights of {self.of}")
        if found != known:
            self._remember(mark, found)
        return found

    def _mark(self) -> dict[str, Any]:
        path = self.folder / MARK
        if not path.exists():
            self._refuse(self.folder, "no weights here", f"those of {self.of}")
        try:
            mark = json.loads(path.read_text(encoding="utf-8"))
            return mark | {"fingerprint": mark["fingerprint"]}
        except (OSError, ValueError, KeyError, TypeError) as error:
            self._refuse(path, f"is damaged ({error})", f"what was written beside the weights of {self.of}", error)

    def _known(self, mark: Mapping[str, Any]) -> dict[str, Fact] | None:
        """The facts in MARK; None where it has none, as before they were written there."""
        try:
            return {path: Fact(**fact) for path, fact in mark["files"].items()} if "files" in mark else None
        except (AttributeError, TypeError) as error:
            self._refuse(self.folder / MARK, f"is damaged ({error})", f"facts of the files of {self.of}", error)

    def _found(self, known: Mapping[str, Fact], deep: bool) -> dict[str, Fact]:
        """The facts of the files as they are now. TableError names the first that is not what was written."""
        files = _files(self.folder)
        if missing := [path for path in known if path not in files]:
            self._refuse(self.folder / missing[0], "no such file", f"weights of {self.of}")
        if more := [path for path in files if path not in known and not f"/{path}".count("/.")]:
            raise TableError(
                f"{self.folder / more[0]}: was not written with the weights of {self.of}; expected those files alone, since "
                "whoever loads them may load it too. Move it away."
            )
        found = {}
        for name, fact in known.items():
            path = self.folder / name
            if (size := path.stat().st_size) != fact.bytes:
                self._refuse(path, f"has {size:,} bytes", f"{fact.bytes:,}, as written")
            found[name] = fact if not deep and fact.holds(path) else Fact.of(path)
            if found[name].sha256 != fact.sha256:
                self._refuse(path, "is damaged or another file of the same size", "the bytes that were written")
        return found

    def _remember(self, mark: Mapping[str, Any], facts: Mapping[str, Fact]) -> None:
        """Write the facts down, so that the next reader need not read whole files; not where nothing can be written."""
        try:
            self.write_mark(mark.get("name", ""), mark["fingerprint"], facts)
        except OSError:
            return

    def _refuse(self, where: Path, found: str, expected: str, cause: Exception | None = None) -> NoReturn:
        raise TableError(f"{where}: {found}; expected {expected}. {self.remedy}") from cause
