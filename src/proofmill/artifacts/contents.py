"""Contents: digests of rows and weights, and the check of a table or its archived copy against them."""

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from proofmill.artifacts.checked_parquet import CheckedParquet
from proofmill.artifacts.weights import Fact, Weights, digests
from proofmill.schema.errors import TableError
from proofmill.schema.ids import digest

ROW_GROUP = 2048  # rows made, hashed and written at a time


def rows_sha256(frames: Iterable[pl.DataFrame]) -> str:
    """Return a digest of the rows in order, passed in parts of ROW_GROUP; independent of a file's compression."""
    sha256 = hashlib.sha256()
    for part in frames:
        sha256.update(part.rechunk().write_ipc(None, compression="uncompressed").getbuffer())
    return sha256.hexdigest()


def content_of(rows: str, facts: Mapping[str, Fact] | None) -> str:
    """Return a digest of the rows' SHA-256 and of the files of weights, if there are any."""
    return digest(rows, digests(facts) if facts else None)


def page_sha256(text: str | None) -> str | None:
    """Return the digest of a table's Markdown page; None without one."""
    return None if text is None else hashlib.sha256(text.encode()).hexdigest()


def read_page(path: Path, file: CheckedParquet, stamp: Mapping[str, Any]) -> str | None:
    """Return the Markdown page of a table; None if it has none.

    Raises TableError if it is not the page that was written with the table. Stamps older than page digests allow any
    page.
    """
    content = path.read_bytes() if path.exists() else None
    sha256 = None if content is None else hashlib.sha256(content).hexdigest()
    if sha256 != stamp.get("page", sha256):
        fault = "no such page" if content is None else "is not the page that was written with the table"
        raise TableError(f"{path}: {fault}; expected the page of {file.path}. {file.remedy}")
    return None if content is None else content.decode("utf-8", errors="replace")


def check(
    file: CheckedParquet, weights: Weights, page: Path, stamp: Mapping[str, Any], kind: str, deep: bool = False
) -> None:
    """Read the full table, and verify its weights and its Markdown page. Raises TableError if a part is damaged.

    `deep` compares every byte of the table's pages and of the weights with the stamp. The pages have their own digest
    because `content` depends on the memory layout of the rows when they were written: the same rows, read back, may
    give another one. A table older than these digests and checksums can be read but not verified.
    """
    for _ in file.batches():
        pass
    read_page(page, file, stamp)
    if deep and "pages" in stamp and file.pages(stamp["pages"]["bytes"]) != stamp["pages"]:
        raise TableError(
            f"{file.path}: its pages are not those that were written; expected {file.holds}, with the SHA-256 that its stamp "
            f"has. {file.remedy}"
        )
    if "model" in stamp:
        weights.check(stamp, kind, deep)
