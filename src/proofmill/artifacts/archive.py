"""The archive: copies of finished tables by fingerprint, in results/archive/<kind>/<name>/<fingerprint>/.

A copy has the table, its weights and its page, as hard links if the file system has them. If an edit of the
configuration is reverted, or a table was deleted, the copy is restored, without calls or training. Tables with failed
calls have no copy.
"""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proofmill.artifacts import contents
from proofmill.artifacts.checked_parquet import CheckedParquet
from proofmill.artifacts.stamps import read_stamp
from proofmill.artifacts.weights import MANIFEST, Weights
from proofmill.runtime import durable
from proofmill.schema.errors import TableError
from proofmill.schema.names import kind_of

# Suffixes of copies that are never restored.
DAMAGED = "damaged"
INVALIDATED = "invalidated"


@dataclass(frozen=True)
class ArchivedTable:
    """The archived copy of a table with one fingerprint; it may not exist."""

    folder: Path
    name: str

    @property
    def table(self) -> Path:
        return self.folder / "table.parquet"

    @property
    def weights(self) -> Path:
        return self.folder / "weights"

    @property
    def page(self) -> Path:
        return self.folder / "page.md"

    @property
    def state(self) -> Path:
        """The training state at the last step, if it is kept (training/checkpoints.py)."""
        return self.folder / "state"

    @property
    def _file(self) -> CheckedParquet:
        return CheckedParquet(self.table, f"a copy of {self.name}", f"Delete the copy: rm -r {self.folder}")

    def exists(self) -> bool:
        """Return whether there is a copy, complete or damaged. False for a copy that a kill left incomplete."""
        return self.table.exists()

    @property
    def stamp(self) -> dict[str, Any] | None:
        """The stamp (metadata) of the copy; None without a readable copy."""
        try:
            return self._stamp() if self.exists() else None
        except TableError:
            return None

    def _stamp(self) -> dict[str, Any]:
        stamp = read_stamp(self._file, kind_of(self.name))
        if stamp["fingerprint"] != self.folder.name:
            raise TableError(
                f"{self.table}: is a copy of {stamp['fingerprint']}; expected {self.folder.name}. {self._file.remedy}"
            )
        return stamp

    def check(self, deep: bool = False) -> None:
        """Read the stamp and, if `deep`, compare every byte with its digests. Raises TableError if it is damaged."""
        stamp, weights = self._stamp(), Weights(self.weights, self.table, self._file.remedy)
        if deep:
            contents.check(self._file, weights, self.page, stamp, kind_of(self.name), deep)

    @property
    def is_invalidated(self) -> bool:
        """True if calls of this table were invalidated (artifacts/maintenance/invalidation.py) and it was not rebuilt since."""
        suffixes = {copy.suffix for copy in self.folder.parent.glob("*")}  # all copies are invalidated together
        return f".{INVALIDATED}" in suffixes and "" not in suffixes

    @property
    def is_aside(self) -> bool:
        return bool(self.folder.suffix)

    def set_invalid(self, why: str = DAMAGED) -> Path:
        """Rename the copy so that it is never restored; deletes an older one of that name."""
        aside = self.folder.with_suffix(f".{why}")
        shutil.rmtree(aside, ignore_errors=True)
        return self.folder.rename(aside)

    def keep(self, table: Path, weights: Path, page: Path) -> None:
        """Copy a finished table, with its weights and page if it has them."""
        self.table.unlink(missing_ok=True)  # first, so that the rest of an older copy does not count as one
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        if page.exists():
            link(page, self.page)
        if (weights / MANIFEST).exists():
            shutil.copytree(weights, self.weights, copy_function=link)
        durable.sync_tree(self.folder)
        durable.sync_name(self.folder)
        link(table, self.table)  # last: a copy with its table is complete
        durable.sync(self.table)
        durable.sync_name(self.table)

    def bring_back(self, table: Path, weights: Path, page: Path, scratch: Path) -> None:
        """Restore the copy's weights and page, then write its table to the file `table`."""
        if self.weights.exists():
            shutil.rmtree(scratch, ignore_errors=True)
            shutil.copytree(self.weights, scratch, copy_function=link)
            replace_folder(scratch, weights)
        if self.page.exists():
            page.unlink(missing_ok=True)
            link(self.page, page)
            os.utime(page)
            durable.sync_name(page)
        shutil.copy2(self.table, table)


def link(source: str | Path, target: str | Path) -> None:
    """Create a hard link if the file system has them, else a copy."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def replace_folder(new: Path, old: Path) -> None:
    """Replace the folder `old` with `new`; a kill in between leaves no folder, never a mixture."""
    shutil.rmtree(old, ignore_errors=True)
    old.parent.mkdir(parents=True, exist_ok=True)
    durable.replace(new, old)
