"""The weights of a table: their files are verified before they are loaded.

The manifest MANIFEST in their folder names the table, and has size, modification time, SHA-256 and the SHA-256 of a sample
of each file. If size and time are unchanged, the sample is compared: at most 1 MiB per file, so 16 GB of weights in
eight files cost 8 MiB of reading. If the time differs (the file was written, or copied without its time), or the
manifest has no such facts, the full file is read. The digest of all files is in the table's stamp.

Only `proofmill check --deep` finds a change that keeps the time of a file and misses its sample, such as a flipped bit.
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
from proofmill.schema.kinds import KINDS, STEPS

MANIFEST = "proofmill.json"
OF_A_MODEL = {".safetensors", ".json", ".txt", ".model", ".jinja"}  # weights, configuration, tokenizer, chat template
BLOCK = 2**16  # bytes
BLOCKS = 16  # of a sample


@dataclass(frozen=True)
class Fact:
    """The recorded facts of a file."""

    bytes: int
    changed: int  # nanoseconds, by the clock of the file system
    sha256: str
    sample: str  # SHA-256

    @classmethod
    def of(cls, path: Path) -> "Fact":
        """Read a file and return its facts."""
        stat, sha256 = path.stat(), file_sha256(path)
        return cls(stat.st_size, stat.st_mtime_ns, sha256, _sample(path, stat.st_size, sha256))

    def holds(self, path: Path) -> bool:
        """Return whether size, time and sample of a file are unchanged."""
        stat = path.stat()
        same = (stat.st_size, stat.st_mtime_ns) == (self.bytes, self.changed)
        return same and _sample(path, self.bytes, self.sha256) == self.sample


def _sample(path: Path, size: int, sha256: str) -> str:
    """Return the SHA-256 of the first and last block and of some that `sha256` selects; of all of a small file."""
    if size <= BLOCK * BLOCKS:
        return file_sha256(path)
    draw, sample = random.Random(sha256), hashlib.sha256()
    with open(path, "rb") as file:
        for place in sorted([0, size - BLOCK, *(draw.randrange(size - BLOCK) for _ in range(BLOCKS - 2))]):
            file.seek(place)
            sample.update(file.read(BLOCK))
    return sample.hexdigest()


def facts_of(folder: Path) -> dict[str, Fact]:
    """Return the facts of each file of a folder except MANIFEST, by its relative path, sorted."""
    return {path: Fact.of(folder / path) for path in _files(folder)}


def digests(facts: Mapping[str, Fact]) -> list[tuple[str, str]]:
    """Return (path, SHA-256) of each file, whose digest stamps have."""
    return [(path, fact.sha256) for path, fact in facts.items()]


def model_digest(kind: str, facts: Mapping[str, Fact]) -> str:
    """Return a digest of weights and tokenizer only, without rollouts, other extra files, and weights of other steps."""
    others = (*KINDS[kind].extra_files, f"{STEPS}/")
    return digest([file for file in digests(facts) if not file[0].startswith(others)])


def _files(folder: Path) -> list[str]:
    return sorted(str(f.relative_to(folder)) for f in folder.rglob("*") if f.is_file() and f.name != MANIFEST)


@dataclass(frozen=True)
class Weights:
    """The folder of a table's weights. `check` raises TableError."""

    folder: Path
    of: Path  # the table
    remedy: str  # what to do if they are damaged, for messages

    def write_manifest(self, name: str, fingerprint: str, facts: Mapping[str, Fact]) -> None:
        """Write the manifest with the table's name and the facts of the files, by one rename: MANIFEST may be a link."""
        files = {path: asdict(fact) for path, fact in facts.items()}
        new = self.folder.with_name(
            f".{self.folder.name}.{secrets.token_hex(8)}.manifest"
        )  # readers on other nodes write too
        try:
            new.write_text(json.dumps({"fingerprint": fingerprint, "name": name, "files": files}), encoding="utf-8")
            durable.replace(new, self.folder / MANIFEST)
        finally:
            new.unlink(missing_ok=True)

    def check(self, stamp: Mapping[str, Any], kind: str, deep: bool = False) -> dict[str, Fact]:
        """Return the facts of the files if they belong to a table with this stamp; `deep` reads all of each file."""
        manifest = self._manifest()
        if manifest["fingerprint"] != stamp["fingerprint"]:
            self._refuse(
                self.folder, f"weights of {manifest['fingerprint']}", f"those of {self.of} ({stamp['fingerprint']})"
            )
        known = self._read_facts(manifest)
        try:
            facts = self._verify(known, deep) if known else facts_of(self.folder)
        except OSError as error:
            self._refuse(error.filename or self.folder, f"cannot be read ({error.strerror})", "weights", error)
        if model_digest(kind, facts) != stamp["model"]:
            self._refuse(self.folder, "its files are not those that were written", f"the weights of {self.of}")
        if facts != known:
            self._remember(manifest, facts)
        return facts

    def _manifest(self) -> dict[str, Any]:
        path = self.folder / MANIFEST
        if not path.exists():
            self._refuse(self.folder, "no weights here", f"those of {self.of}")
        try:
            manifest = json.loads(path.read_text(encoding="utf-8"))
            return manifest | {"fingerprint": manifest["fingerprint"]}
        except (OSError, ValueError, KeyError, TypeError) as error:
            self._refuse(path, f"is damaged ({error})", f"the manifest of the weights of {self.of}", error)

    def _read_facts(self, manifest: Mapping[str, Any]) -> dict[str, Fact] | None:
        """Return the facts in MANIFEST; None if the manifest was written before facts existed."""
        try:
            return {path: Fact(**fact) for path, fact in manifest["files"].items()} if "files" in manifest else None
        except (AttributeError, TypeError) as error:
            self._refuse(self.folder / MANIFEST, f"is damaged ({error})", f"facts of the files of {self.of}", error)

    def _verify(self, known: Mapping[str, Fact], deep: bool) -> dict[str, Fact]:
        """Return the present facts of the files. Raises TableError for the first that differs."""
        files = _files(self.folder)
        if missing := [path for path in known if path not in files]:
            self._refuse(self.folder / missing[0], "no such file", f"weights of {self.of}")
        if more := [path for path in files if path not in known and not f"/{path}".count("/.")]:
            raise TableError(
                f"{self.folder / more[0]}: was not written with the weights of {self.of}; expected only their files, because "
                "a library may load this one too. Move it away."
            )
        facts = {}
        for name, fact in known.items():
            path = self.folder / name
            if (size := path.stat().st_size) != fact.bytes:
                self._refuse(path, f"has {size:,} bytes", f"{fact.bytes:,}, as written")
            facts[name] = fact if not deep and fact.holds(path) else Fact.of(path)
            if facts[name].sha256 != fact.sha256:
                self._refuse(path, "is damaged or another file of the same size", "the bytes that were written")
        return facts

    def _remember(self, manifest: Mapping[str, Any], facts: Mapping[str, Fact]) -> None:
        """Write the facts so that the next reader need not read full files; skip this in a read-only folder."""
        try:
            self.write_manifest(manifest.get("name", ""), manifest["fingerprint"], facts)
        except OSError:
            return

    def _refuse(self, where: Path, fault: str, expected: str, cause: Exception | None = None) -> NoReturn:
        """Raise TableError."""
        raise TableError(f"{where}: {fault}; expected {expected}. {self.remedy}") from cause
