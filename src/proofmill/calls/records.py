"""The files of a journal: how an answer stands in a line and in a segment, and how both are read, by any process.

How we differ from reading JSON and Parquet:
1. A line is believed if its checksum is right and its values can be those of an answer (exchange.Answer).
2. Segments are written with checksums of their pages, which are looked at whenever they are read.
3. An answer whose finish word is no proper end is read as a failure (exchange.py), also if it was written as an answer.
   Its question is asked again, and its text and cost stay in the journal.
"""

import contextlib
import zlib
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
import pyarrow as pa
from pyarrow import parquet

from proofmill.calls.exchange import Answer, ending, finished_with
from proofmill.schema.errors import JournalError
from proofmill.schema.reasons import Reason, Stop

ROW_GROUP = 1024
SHARDS = "shards"  # the folder, in a journal's, with those of its shards (shards.py)
START, CHECK = len('{"key": "'), len(', "crc": "00000000"}\n')
READER = msgspec.json.Decoder(Answer)  # of a line: its key and checksum are no fields of an answer

TOKEN = pl.Struct({"token": pl.String, "logprob": pl.Float64})
ANSWER_COLUMNS: dict[str, Any] = {
    "key": pl.String,
    "text": pl.String,
    "stop": pl.String,
    "reason": pl.String,
    "reasoning": pl.String,
    "prompt_tokens": pl.Int64,
    "cached_tokens": pl.Int64,
    "tokens": pl.Int64,
    "reasoning_tokens": pl.Int64,
    "cost": pl.Float64,
    "seconds": pl.Float64,
    "attempts": pl.Int64,
    "model": pl.String,
    "detail": pl.String,
    "finish": pl.String,
    "logprobs": pl.List(TOKEN),
}
DECIDING = ("stop", "reason", "finish", "model")  # whether a row is an answer or a failure


@dataclass(frozen=True)
class Row:
    """An answer under the key of its question."""

    key: str
    answer: Answer


def all_rows(folder: Path, keys: Collection[str] | None = None) -> Iterator[Row]:
    """All rows of a journal, failures that were answered later too, oldest first; with `keys` those of them alone."""
    wanted = pl.lit(True) if keys is None else pl.col("key").is_in(list(keys))
    for path in segments(folder):
        for values in read(path).filter(wanted).iter_rows(named=True):
            yield Row(values["key"], answer_of(values))
    if (folder / "answers.jsonl").exists():
        rows = whole_rows(folder / "answers.jsonl")
        yield from (row for row in rows if keys is None or row.key in keys)


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Raises JournalError for whatever goes wrong inside with a segment."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise JournalError(
            f"{path}: cannot be read as Parquet ({str(error).splitlines()[0]}); expected answers that were paid for. Bring it "
            "back from a copy, or move it away to have its questions asked again."
        ) from error


def read(path: Path, *columns: str) -> pl.DataFrame:
    """The rows of a segment: the named columns, or all."""
    with reading(path), parquet.ParquetFile(path, page_checksum_verification=True) as file:
        wanted = list(columns or ANSWER_COLUMNS)
        needed = dict.fromkeys([*wanted, *(DECIDING if "stop" in wanted else ())])
        table = file.read(list(needed))  # `read_table` would import pandas, in every job
    frame = pl.DataFrame(table, schema_overrides={name: ANSWER_COLUMNS[name] for name in table.column_names})
    if "stop" in wanted:
        words = [word for word in frame["finish"].drop_nulls().unique() if ending(word)[0] == Stop.ERROR]
        improper = pl.col("finish").is_in(pl.Series(words, dtype=pl.String)) & (pl.col("stop") == Stop.END)
        improper &= (pl.col("reason") == Reason.OK) & (pl.col("finish") + pl.col("model") != "")
        failed = pl.when(improper)
        frame = frame.with_columns(
            stop=failed.then(pl.lit(Stop.ERROR.value)).otherwise("stop"),
            reason=failed.then(pl.lit(Reason.PROVIDER.value)).otherwise("reason"),
        )
    return frame.select(wanted)


def checked(answer: Answer) -> Answer:
    """Return the answer, or the failure in its place if its server's finish word is no proper end."""
    served = answer.finish or answer.model  # what a program of ours says has neither
    if not served or (answer.stop, answer.reason) != (Stop.END, Reason.OK) or ending(answer.finish)[0] != Stop.ERROR:
        return answer
    return replace(answer, stop=Stop.ERROR, reason=Reason.PROVIDER, detail=finished_with(answer.finish))


def answers_at(path: Path, rows: Sequence[int]) -> Iterator[Answer]:
    """The answers at ascending places of a segment; only the row groups that hold some of them are read."""
    with reading(path), parquet.ParquetFile(path, page_checksum_verification=True) as file:
        sizes = (file.metadata.row_group(group).num_rows for group in range(file.num_row_groups))
        starts = [0, *accumulate(sizes)]
        group = -1
        values: list[dict[str, Any]] = []
        for row in rows:
            if group < 0 or row >= starts[group + 1]:
                group = bisect_right(starts, row) - 1
                values = pl.DataFrame(file.read_row_group(group)).to_dicts()
            yield answer_of(values[row - starts[group]])


def write(rows: pl.DataFrame, path: Path) -> None:
    """Write a segment."""
    arrow = rows.to_arrow(compat_level=pl.CompatLevel.oldest())
    parquet.write_table(arrow, path, row_group_size=ROW_GROUP, compression="zstd", write_page_checksum=True)


def whole_rows(path: Path) -> Iterator[Row]:
    """The rows of the lines that are complete and undamaged."""
    with open(path, "rb") as file:
        for line in file:
            if line.endswith(b"\n") and (row := row_of(line)):
                yield row


def row_of(line: bytes) -> Row | None:
    """The row of a line; None for a line that is damaged, or holds what is no answer."""
    if not line.startswith(b'{"key": "') or line[-CHECK:] != b', "crc": "%08x"}\n' % zlib.crc32(line[:-CHECK]):
        return None
    try:
        return Row(line[START : line.index(b'"', START)].decode(), checked(READER.decode(line)))
    except (ValueError, msgspec.MsgspecError):
        return None


def answer_of(row: dict[str, Any]) -> Answer:
    values: dict[str, Any] = {name: row.get(name) for name in Answer.__slots__}
    return checked(Answer(**values))


def segments(folder: Path) -> list[Path]:
    """The segments of a journal, oldest first."""
    return sorted(folder.glob("[0-9]*.parquet"))


def any_rows(folder: Path) -> bool:
    """Whether a journal may have rows; those of its shards do not count."""
    return (folder / "answers.jsonl").exists() or bool(segments(folder))


def shards(folder: Path) -> list[Path]:
    """The folders of the shards of an artifact, whose answers are not yet in its own."""
    return sorted((folder / SHARDS).glob("*-of-*"), key=lambda path: [int(n) for n in path.name.split("-of-")][::-1])


def journals(calls: Path) -> Iterator[Path]:
    """All journals under the folder `calls`, those of shards too."""
    for pattern in ("*/*/lock", f"*/*/{SHARDS}/*/lock"):
        yield from (path.parent for path in calls.glob(pattern))


def frame(folder: Path, *columns: str) -> pl.DataFrame:
    """All rows of a journal, also while it is written, and of its shards: for each key the answer, or the last failure.

    The columns are the key and those named; without names, all of them.
    """
    wanted = {name: dtype for name, dtype in ANSWER_COLUMNS.items() if not columns or name in ("key", *columns)}
    read_columns = [*wanted, *({"stop"} - set(wanted))]
    # The shards first, of which some may be taken in meanwhile: what is read twice is not missed.
    frames = [_rows_now(each, read_columns) for each in shards(folder)]
    frames = [_rows_now(folder, read_columns), *frames]
    failed = pl.col("stop") == Stop.ERROR
    last = pl.concat(frame.unique("key", keep="last", maintain_order=True) for frame in frames)
    if len(frames) > 1:  # a shard may have failed where the artifact, or a shard of another run, was answered
        first = last.filter(~failed).unique("key", keep="first", maintain_order=True)  # as when they are taken in
        last = pl.concat([last.filter(failed), first]).unique("key", keep="last", maintain_order=True)
    return last.select(*wanted)


def _rows_now(folder: Path, columns: Sequence[str]) -> pl.DataFrame:
    """All rows of one journal, while it is written too."""
    tail = folder / "answers.jsonl"  # read first: a row that moves into a segment meanwhile is read twice, not missed
    wanted = {name: ANSWER_COLUMNS[name] for name in columns}
    newest = as_frame(whole_rows(tail) if tail.exists() else (), wanted)
    return pl.concat([*(read(path, *wanted) for path in segments(folder)), newest])


def cost(folder: Path) -> float:
    """Dollars of all rows that were ever written to a journal, failures included."""
    tail = folder / "answers.jsonl"
    newest = sum(row.answer.cost or 0.0 for row in whole_rows(tail)) if tail.exists() else 0.0
    return newest + sum(dollars(read(path, "cost")["cost"]) for path in segments(folder))


def dollars(costs: pl.Series) -> float:
    """Dollars; what a row cost is never below zero."""
    return float(costs.fill_nan(0.0).clip(0.0).sum())


def as_frame(rows: Iterable[Row], wanted: dict[str, Any]) -> pl.DataFrame:
    """The wanted columns of rows."""
    rows = list(rows)
    answers = [row.answer for row in rows]
    columns = {name: [getattr(answer, name) for answer in answers] for name in wanted if name != "key"}
    return pl.DataFrame({"key": [row.key for row in rows], **columns}, schema=wanted)
