"""The files of a journal: the format of an output in a line and in a segment, and reading both from any process.

Differences from reading JSON and Parquet:
1. A line is valid if its checksum is correct and its values have the types of an output (model_requests.ModelOutput).
2. Segments are written with checksums of their pages, which are verified whenever they are read.
3. An output whose finish reason is not a proper end is read as a failure (model_requests.py), even if an earlier version
   wrote it as a success. Its call is repeated, and its text and cost stay in the journal.
"""

import contextlib
import os
import zlib
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, groupby
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
import pyarrow as pa
from pyarrow import parquet

from proofmill.calls.model_requests import ModelOutput, describe_finish, ending
from proofmill.runtime import append_log
from proofmill.schema.errors import JournalError
from proofmill.schema.reasons import Reason, StopReason

ROW_GROUP = 1024
SHARDS = "shards"  # the subfolder with the journals of shards (shards.py)
START, CHECK = len('{"key": "'), len(', "crc": "00000000"}\n')
READER = msgspec.json.Decoder(ModelOutput)  # of a line; ignores its key and checksum

TOKEN = pl.Struct({"token": pl.String, "logprob": pl.Float64})
ANSWER_COLUMNS: dict[str, Any] = {
    "key": pl.String,
    "text": pl.String,
    "stop_reason": pl.String,
    "reason": pl.String,
    "reasoning": pl.String,
    "prompt_tokens": pl.Int64,
    "cached_tokens": pl.Int64,
    "tokens": pl.Int64,
    "reasoning_tokens": pl.Int64,
    "cost": pl.Float64,
    "seconds": pl.Float64,
    "tries": pl.Int64,
    "model": pl.String,
    "detail": pl.String,
    "finish_reason": pl.String,
    "logprobs": pl.List(TOKEN),
}
DECIDING = ("stop_reason", "reason", "finish_reason", "model")  # the columns that tell failures from outputs


@dataclass(frozen=True)
class CallRecord:
    """An output under the key of its request."""

    key: str
    answer: ModelOutput


def all_rows(folder: Path, keys: Collection[str] | None = None) -> Iterator[CallRecord]:
    """Yield all rows of a journal, oldest first, with failures that succeeded later; with `keys` only their rows."""
    wanted = pl.lit(True) if keys is None else pl.col("key").is_in(list(keys))
    for path in segments(folder):
        for values in read(path).filter(wanted).iter_rows(named=True):
            yield CallRecord(values["key"], answer_of(values))
    yield from (row for row in whole_rows(folder / "calls.jsonl") if keys is None or row.key in keys)


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Raise JournalError for any error inside that concerns a segment."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise JournalError(
            f"{path}: cannot be read as Parquet ({str(error).splitlines()[0]}); expected the outputs of paid calls. Restore "
            "it from a backup, or move it away to repeat its calls."
        ) from error


def read(path: Path, *columns: str) -> pl.DataFrame:
    """Read the rows of a segment: the named columns, or all."""
    with reading(path), parquet.ParquetFile(path, page_checksum_verification=True) as file:
        wanted = list(columns or ANSWER_COLUMNS)
        needed = dict.fromkeys([*wanted, *(DECIDING if "stop_reason" in wanted else ())])
        table = file.read(list(needed))  # `read_table` would import pandas, in every job
    frame = pl.DataFrame(table, schema_overrides={name: ANSWER_COLUMNS[name] for name in table.column_names})
    if "stop_reason" in wanted:
        words = [word for word in frame["finish_reason"].drop_nulls().unique() if ending(word)[0] == StopReason.ERROR]
        improper = pl.col("finish_reason").is_in(pl.Series(words, dtype=pl.String)) & (
            pl.col("stop_reason") == StopReason.END
        )
        improper &= (pl.col("reason") == Reason.OK) & (pl.col("finish_reason") + pl.col("model") != "")
        failed = pl.when(improper)
        frame = frame.with_columns(
            stop_reason=failed.then(pl.lit(StopReason.ERROR.value)).otherwise("stop_reason"),
            reason=failed.then(pl.lit(Reason.PROVIDER.value)).otherwise("reason"),
        )
    return frame.select(wanted)


def check_finish(answer: ModelOutput) -> ModelOutput:
    """Return the output, or a failure if the server's finish reason is not a proper end."""
    served = answer.finish_reason or answer.model  # outputs of the project's own programs have neither
    if (
        not served
        or (answer.stop_reason, answer.reason) != (StopReason.END, Reason.OK)
        or ending(answer.finish_reason)[0] != StopReason.ERROR
    ):
        return answer
    return replace(
        answer, stop_reason=StopReason.ERROR, reason=Reason.PROVIDER, detail=describe_finish(answer.finish_reason)
    )


def answers_at(path: Path, rows: Sequence[int]) -> Iterator[ModelOutput]:
    """Yield the outputs at ascending places of a segment. Reads only the row groups that contain them."""
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


def whole_rows(path: Path) -> Iterator[CallRecord]:
    """Yield the rows of the lines that are complete and undamaged."""
    return filter(None, map(row_of, append_log.complete_lines(path)))


def row_of(line: bytes) -> CallRecord | None:
    """Parse a line; None if it is damaged or its values are not those of an output."""
    if not line.startswith(b'{"key": "') or line[-CHECK:] != b', "crc": "%08x"}\n' % zlib.crc32(line[:-CHECK]):
        return None
    try:
        return CallRecord(line[START : line.index(b'"', START)].decode(), check_finish(READER.decode(line)))
    except (ValueError, msgspec.MsgspecError):
        return None


def answer_of(row: dict[str, Any]) -> ModelOutput:
    """Build the output of a segment's row."""
    values: dict[str, Any] = {name: row.get(name) for name in ModelOutput.__slots__}
    return check_finish(ModelOutput(**values))


def segments(folder: Path) -> list[Path]:
    """List the segments of a journal, oldest first."""
    return sorted(folder.glob("[0-9]*.parquet"))


def any_rows(folder: Path) -> bool:
    """Return whether a journal may have rows, without those of its shards."""
    return (folder / "calls.jsonl").exists() or bool(segments(folder))


def shards(folder: Path) -> list[Path]:
    """List the folders of an artifact's shards whose outputs are not yet in its own journal."""
    try:
        names = os.listdir(folder / SHARDS)
    except FileNotFoundError:  # no shard is there, or another process has just merged the last one
        return []
    numbered = [name for name in names if "-of-" in name]
    return [folder / SHARDS / name for name in sorted(numbered, key=lambda name: [*map(int, name.split("-of-"))][::-1])]


def journals(calls: Path) -> Iterator[Path]:
    """Yield all journals under the folder `calls`, also those of shards."""
    for pattern in ("*/*/lock", f"*/*/{SHARDS}/*/lock"):
        yield from (path.parent for path in calls.glob(pattern))


def frame(folder: Path, *columns: str) -> pl.DataFrame:
    """Read a journal and its shards, also while they are written: for each key the output, or the last failure.

    The columns are the key and those named; without names, all of them.
    """
    wanted = {name: dtype for name, dtype in ANSWER_COLUMNS.items() if not columns or name in ("key", *columns)}
    read_columns = [*wanted, *({"stop_reason"} - set(wanted))]
    # Shards are read first. If one is merged into the artifact's journal meanwhile, its rows are read twice, not missed.
    frames = [_rows_now(each, read_columns) for each in shards(folder)]
    frames = [_rows_now(folder, read_columns), *frames]
    failed = pl.col("stop_reason") == StopReason.ERROR
    last = pl.concat(frame.unique("key", keep="last", maintain_order=True) for frame in frames)
    if len(frames) > 1:  # a call may have failed in one journal and succeeded in another
        first = last.filter(~failed).unique("key", keep="first", maintain_order=True)  # as in merging
        last = pl.concat([last.filter(failed), first]).unique("key", keep="last", maintain_order=True)
    return last.select(*wanted)


def _rows_now(folder: Path, columns: Sequence[str]) -> pl.DataFrame:
    """Read all rows of one journal, also while it is written."""
    tail = folder / "calls.jsonl"  # read first: a row that moves into a segment meanwhile is read twice, not missed
    wanted = {name: ANSWER_COLUMNS[name] for name in columns}
    newest = as_frame(whole_rows(tail), wanted)
    return pl.concat([*(read(path, *wanted) for path in segments(folder)), newest])


def cost(folder: Path) -> float:
    """Return the dollars of all rows ever written to a journal, including failures."""
    tail = folder / "calls.jsonl"
    newest = sum(row.answer.cost or 0.0 for row in whole_rows(tail))
    return newest + sum(dollars(read(path, "cost")["cost"]) for path in segments(folder))


def dollars(costs: pl.Series) -> float:
    """Sum dollars; a negative or missing cost counts as zero."""
    return float(costs.fill_nan(0.0).clip(0.0).sum())


def as_frame(rows: Iterable[CallRecord], wanted: dict[str, Any]) -> pl.DataFrame:
    """Return the wanted columns of rows as a frame."""
    rows = list(rows)
    answers = [row.answer for row in rows]
    columns = {name: [getattr(answer, name) for answer in answers] for name in wanted if name != "key"}
    return pl.DataFrame({"key": [row.key for row in rows], **columns}, schema=wanted)


class Earlier:
    """The outputs of a journal that no process writes meanwhile, by key. Those that are `lent` cost nothing again."""

    def __init__(self, folder: Path, lent: bool = False):
        self._lent = lent
        self._paths, self._starts = segments(folder), [0]
        self._places: dict[str, int] = {}  # the number of the row, counted over all segments
        self._tail: dict[str, ModelOutput] = {}
        for path in self._paths:
            frame, before = read(path, "key", "stop_reason"), self._starts[-1]
            for row, (key, stop) in enumerate(frame.rows(), before):
                self._note(key, stop, self._places, row)
            self._starts.append(before + frame.height)
        tail = folder / "calls.jsonl"
        for line in whole_rows(tail):
            self._note(line.key, line.answer.stop_reason, self._tail, line.answer)

    def _note(self, key: str, stop: str, where: dict[str, Any], what: Any) -> None:
        """Record the last row of a key. A failure, or a line that invalidates an output, removes the key."""
        self._places.pop(key, None)
        self._tail.pop(key, None)
        if stop != StopReason.ERROR:
            where[key] = what

    def __contains__(self, key: str) -> bool:
        return key in self._places or key in self._tail

    def answers(self, keys: Iterable[str]) -> dict[str, ModelOutput]:
        """Return the outputs of some keys. Raises KeyError for a key without one."""
        wanted = set(keys)
        outputs = {key: self._tail[key] for key in wanted & self._tail.keys()}
        rows = sorted((self._places[key], key) for key in wanted - outputs.keys())
        for segment, group in groupby(rows, lambda row: bisect_right(self._starts, row[0]) - 1):
            some = list(group)
            places = [row - self._starts[segment] for row, _ in some]
            answers = answers_at(self._paths[segment], places)
            outputs |= {key: answer for (_, key), answer in zip(some, answers, strict=True)}
        return {key: replace(output, cost=0.0) for key, output in outputs.items()} if self._lent else outputs
