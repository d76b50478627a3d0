"""Contents: digests of rows and weights, and whether a finished table, in its place or kept, is what was written."""

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
    """A digest of the rows in order, passed in parts of ROW_GROUP; it does not depend on a file's compression."""
    whole = hashlib.sha256()
    for part in frames:
        whole.update(part.rechunk().write_ipc(None, compression="uncompressed").getbuffer())
    return whole.hexdigest()


def content_of(rows: str, facts: Mapping[str, Fact] | None) -> str:
    """A digest of the rows' SHA-256 and of the files of weights, if there are any."""
    return digest(rows, digests(facts) if facts else None)


def page_sha256(text: str | None) -> str | None:
    """Return the digest of a table's Markdown page; None without one."""
    return None if text is None else hashlib.sha256(text.encode()).hexdigest()


def read_page(path: Path, file: CheckedParquet, stamp: Mapping[str, Any]) -> str | None:
    """Return the Markdown page of a table; None if it has none.

    Raises TableError if it is not the page that was written with the table. Stamps from before pages had digests say
    nothing of it.
    """
    found = path.read_bytes() if path.exists() else None
    digest = None if found is None else hashlib.sha256(found).hexdigest()
    if digest != stamp.get("page", digest):
        what = "no such page" if found is None else "is not the page that was written with the table"
        raise TableError(f"{path}: {what}; expected the page of {file.path}. {file.remedy}")
    return None if found is None else found.decode("utf-8", errors="replace")


def check(
    file: CheckedParquet, weights: Weights, page: Path, stamp: Mapping[str, Any], kind: str, deep: bool = False
) -> None:
    """Read the whole table, and compare its weights and its Markdown page. Raises TableError when a part is damaged.

    `deep` compares every byte of the table's pages and of the weights with the stamp. The pages have a digest of their own,
    since `content` depends on how polars laid out the rows when they were made: the same rows, read from the file, may
    have another. A table from before there were such digests and checksums is read, and no more can be said of it.
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
