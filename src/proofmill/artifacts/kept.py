"""Copies of finished tables, kept by fingerprint: results/kept/<kind>/<name>/<fingerprint>/.

A copy has the table, its weights and its page, as hard links where the file system has them. When an edit of the
configuration is reverted, or a table was deleted, the copy is restored, and nothing is paid or trained again.
"""

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import polars as pl

MARK = "proofmill.json"  # beside weights: the fingerprint of the table they belong to


@dataclass(frozen=True)
class Kept:
    """The copy of a table with one fingerprint; it may not exist."""

    folder: Path

    @property
    def _table(self) -> Path:
        return self.folder / "table.parquet"

    @property
    def _weights(self) -> Path:
        return self.folder / "weights"

    @property
    def _page(self) -> Path:
        return self.folder / "page.md"

    @property
    def stamp(self) -> dict | None:
        """The stamp of the copy; None when there is no readable copy."""
        try:
            return json.loads(pl.read_parquet_metadata(self._table)["proofmill"])
        except (OSError, pl.exceptions.PolarsError):
            return None

    def keep(self, table: Path, weights: Path, page: Path) -> None:
        """Copy a finished table, with its weights and page if it has them."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        if page.exists():
            link(page, self._page)
        if (weights / MARK).exists():
            shutil.copytree(weights, self._weights, copy_function=link)
        link(table, self._table)  # last: a copy with its table is complete

    def bring_back(self, table: Path, weights: Path, page: Path, scratch: Path) -> None:
        """Put the copy's weights and page in place, then write its table to the file `table`."""
        if self._weights.exists():
            shutil.rmtree(scratch, ignore_errors=True)
            shutil.copytree(self._weights, scratch, copy_function=link)
            replace_folder(scratch, weights)
        if self._page.exists():
            page.unlink(missing_ok=True)
            link(self._page, page)
            os.utime(page)
        shutil.copy2(self._table, table)


def link(source: str | Path, target: str | Path) -> None:
    """Make a hard link where the file system has them, else a copy."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def replace_folder(new: Path, old: Path) -> None:
    """Put `new` in the place of `old`; a kill in between leaves no folder, never a mixture."""
    shutil.rmtree(old, ignore_errors=True)
    old.parent.mkdir(parents=True, exist_ok=True)
    os.rename(new, old)
