"""Append-only journal of an artifact's model calls. Each output is written to disk as soon as it arrives.

A journal is a folder results/calls/<kind>/<name>/:

    calls.jsonl       the newest outputs: one JSON object per line, with the key first and the line's checksum last
    00001.parquet     older outputs as columns; numbered, and only ever replaced by a file with the same rows and more
    lock              held by the process that writes, and names it

Polars can open it at any time, also while it is written: `records.frame(folder)`, or read_ndjson and read_parquet of
the files themselves.

Differences from other response caches:
1. The unit is one call, not one stage, so adding rows repeats no earlier call.
2. A kill loses at most the line being written: an incomplete last line is removed, and its call repeated. Complete lines
   with a wrong checksum are moved to damaged.jsonl. Parquet files have page checksums, verified on read.
3. There is a single writer. The operating system releases its lock when the process ends, however it ends.
4. Disk space for calls in flight is reserved, so a full disk stops the stage without losing outputs.
5. Failures are stored with their reason and retried. The next output replaces them; its cost includes theirs.
"""

import contextlib
import json
import os
import threading
import time
import zlib
from collections.abc import Iterable, Iterator, KeysView, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa

from proofmill.calls import records
from proofmill.calls.model_requests import ModelOutput
from proofmill.calls.records import Earlier
from proofmill.runtime import append_log, durable, locks
from proofmill.runtime.progress import log
from proofmill.schema.errors import JournalError
from proofmill.schema.reasons import StopReason

SYNC_SECONDS = 1.0
SEGMENT_BYTES = 16 * 2**20
MERGED_ROWS = 4096  # a segment with this many rows takes no more
RESERVE_BYTES = 4 * 2**20
AT_ONCE = 4096  # outputs read together: 16 MB at 4 kB each


class Journal:
    """All outputs of one artifact by key. A context manager: while it is open, no other process writes here."""

    def __init__(self, folder: Path, lock: int = -1, lenders: Iterable[Path] = ()):
        """Set the folder, its open `lock` if the caller holds it, and finished journals whose outputs count here."""
        self._earlier = [Earlier(lender, lent=True) for lender in lenders]
        self.folder, self.tail, self.damaged = folder, folder / "calls.jsonl", folder / "damaged.jsonl"
        self._reserve = folder / "reserve"
        self._places: dict[str, int] = {}  # by key: byte offset in the tail, or -1 - row, counted over all segments
        self._failed_keys: dict[str, str] = {}  # key -> reason
        self._failed: dict[str, float] = {}  # key -> dollars of its failures
        self._segments: list[tuple[int, Path]] = []  # the number of rows before it, and the file
        self._rows = 0  # in all segments
        self._end = 0  # of the tail, in bytes
        self._file, self._lock = -1, lock
        self._dirty = threading.Event()
        self._fault: OSError | None = None
        self.spent = 0.0
        self.full = False

    # ---------------------------------------------------------------------------------------------- opening and closing

    def __enter__(self) -> "Journal":
        with contextlib.ExitStack() as opened:
            opened.callback(self._close)
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                if self._lock < 0:
                    self._lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
                    self._take_lock()
                locks.sign(self._lock)
                self._file = os.open(self.tail, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
                durable.sync_name(self.tail)
                self._load()
                self._make_room()
            except OSError as error:
                raise JournalError(
                    f"{error.filename or self.folder}: {error.strerror}; expected a journal that can be written. "
                    "Fix the folder's permissions or disk, and rerun."
                ) from error
            opened.pop_all()
        self._syncing = threading.Thread(target=self._sync_in_time, daemon=True)
        self._syncing.start()
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        try:
            if kind is None and not self.full:
                self.compact()
            self.sync()
        finally:
            self._close()

    def _close(self) -> None:
        with contextlib.suppress(OSError):
            self._reserve.unlink(missing_ok=True)
        file, self._file = self._file, -1
        self._dirty.set()  # lets the thread end
        if file >= 0:
            os.close(file)
        if self._lock >= 0:
            os.close(self._lock)  # releases it
            self._lock = -1

    def _take_lock(self) -> None:
        """Take the lock; a job that is being stopped has some time to release it."""
        try:
            taken = locks.take(self._lock, str(self.folder), locks.wait_seconds())
        except OSError as error:
            raise JournalError(
                f"{self.folder}: this file system has no locks ({error.strerror}); expected one where `flock` works. "
                "Mount it with locks (Lustre: -o flock), or set `results` to a folder on another."
            ) from error
        if not taken:
            raise JournalError(
                f"{self.folder}: another process ({locks.holder(self._lock)}) has been writing here for "
                f"{locks.wait_seconds():g} s; expected one writer. Wait for that job or cancel it, then rerun."
            )

    def _make_room(self) -> None:
        """Reserve disk space for the calls that will be in flight when the disk is full."""
        file = os.open(self._reserve, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            os.posix_fallocate(file, 0, RESERVE_BYTES)
        except OSError as error:
            raise JournalError(
                f"{self.folder}: {error.strerror}; expected room for {RESERVE_BYTES // 2**20} MiB of outputs before the "
                "first call. Free disk space and rerun."
            ) from error
        finally:
            os.close(file)

    # ---------------------------------------------------------------------------------------------------------- reading

    def __contains__(self, request: Any) -> bool:
        own = request.key in self._places and request.key not in self._failed_keys
        return own or any(request.key in earlier for earlier in self._earlier)

    def __len__(self) -> int:
        return len(self._places) - len(self._failed_keys)

    @property
    def keys(self) -> KeysView[str]:
        """The keys of all requests, also of those without an output."""
        return self._places.keys()

    def failure_of(self, request: Any) -> str | None:
        """Return the reason of a request's failure; None if it has not failed."""
        return self._failed_keys.get(request.key)

    def __getitem__(self, request: Any) -> ModelOutput:
        return next(self.answers([request]))

    def answers(self, requests: Iterable[Any]) -> Iterator[ModelOutput]:
        """Yield the output of each request in order, or its failure. Raises KeyError for a request never made."""
        requests = iter(requests)
        while some := list(islice(requests, AT_ONCE)):
            outputs: dict[str, ModelOutput] = {}
            for earlier in self._earlier:
                outputs |= earlier.answers(q.key for q in some if q.key in earlier)
            places = {q.key: self._places[q.key] for q in some if q.key not in outputs}
            found = dict(self._from_tail({p for p in places.values() if p >= 0}))
            found.update(self._from_segments(sorted({-1 - p for p in places.values() if p < 0})))
            for q in some:
                yield outputs.get(q.key) or self._with_failed_cost(q.key, found[places[q.key]])

    def _with_failed_cost(self, key: str, answer: ModelOutput) -> ModelOutput:
        """Return the output with the cost of its failed tries added."""
        failed = self._failed.get(key, 0.0)
        if not failed or answer.cost is None:
            return answer
        return replace(answer, cost=failed if answer.failed else answer.cost + failed)

    def _from_tail(self, places: set[int]) -> Iterator[tuple[int, ModelOutput]]:
        if places:
            with open(self.tail, "rb") as file:
                for place in sorted(places):
                    file.seek(place)
                    row = records.row_of(file.readline())
                    if row is None:
                        raise self._is_changed_by_others()
                    yield place, row.answer

    def _from_segments(self, rows: Sequence[int]) -> Iterator[tuple[int, ModelOutput]]:
        """Read rows by their global number, in order. Reads only the row groups that contain them."""
        index = 0
        ends = [before for before, _ in self._segments[1:]] + [self._rows]
        for (before, path), end in zip(self._segments, ends[: len(self._segments)], strict=True):
            in_segment = []
            while index < len(rows) and rows[index] < end:
                in_segment.append(rows[index] - before)
                index += 1
            if in_segment:
                places = (-1 - (before + row) for row in in_segment)
                yield from zip(places, records.answers_at(path, in_segment), strict=True)

    # ---------------------------------------------------------------------------------------------------------- writing

    def add(self, request: Any, answer: ModelOutput) -> None:
        """Append an output, or a failure (stop `error`), which a rerun retries.

        When this returns, the operating system has the line; it is synced to disk within a second. On a full disk the line
        takes the reserved space and `full` becomes true: no more calls should start. Raises JournalError if the line
        cannot be written.
        """
        if self._fault:
            raise JournalError(
                f"{self.tail}: {self._fault.strerror} while syncing; expected a working disk. Fix the disk and rerun."
            ) from self._fault
        row = {"key": request.key} | {name: getattr(answer, name) for name in ModelOutput.__slots__}
        # A server that truncates inside a character sends half of a surrogate pair, which UTF-8 cannot encode.
        body = json.dumps(row, ensure_ascii=False)[:-1].encode(errors="replace")
        line = body + b', "crc": "%08x"}\n' % zlib.crc32(body)
        place = self._places[request.key] = self._append(line)
        self._note(request.key, answer.stop_reason, answer.reason, answer.cost)
        self._dirty.set()
        if place > SEGMENT_BYTES and not self.full:
            self.compact()

    def _append(self, line: bytes) -> int:
        place = os.lseek(self._file, 0, os.SEEK_END)
        if place != self._end:
            raise self._is_changed_by_others()
        for attempt in range(2):
            fault = None
            try:
                if os.write(self._file, line) == len(line):
                    self._end += len(line)
                    return place
            except OSError as error:
                fault = error
            os.ftruncate(self._file, place)  # remove a line that was written in part
            if attempt == 0:
                self.full = True
                self._reserve.unlink(missing_ok=True)
        raise JournalError(
            f"{self.tail}: {fault.strerror if fault else 'a line was written in part'}; expected room for one more "
            "output. Free disk space and rerun."
        ) from fault

    def _is_changed_by_others(self) -> JournalError:
        return JournalError(
            f"{self.tail}: another program changed it while this job wrote there; expected one writer. Do not edit it while "
            "a job runs, and rerun: missing calls are repeated."
        )

    def _note(self, key: str, stop: str, reason: str, cost: float | None) -> None:
        self.spent += cost or 0.0
        if stop == StopReason.ERROR:
            self._failed_keys[key] = reason
            if cost:
                self._failed[key] = self._failed.get(key, 0.0) + cost
        else:
            self._failed_keys.pop(key, None)

    def empty(self) -> None:
        """Delete all outputs, also on disk, once another journal has them."""
        for path in [*records.segments(self.folder), self.folder / "claim"]:
            path.unlink(missing_ok=True)
        self._cut(0)
        self._places.clear()
        self._failed.clear()

    def _cut(self, end: int) -> None:
        os.ftruncate(self._file, end)
        self._end = end

    def sync(self) -> None:
        """Wait until every added output is on the disk."""
        self._dirty.clear()
        os.fsync(self._file)

    def _sync_in_time(self) -> None:
        """Sync outputs in groups, each at most a second after its first output."""
        while True:
            self._dirty.wait()
            time.sleep(SYNC_SECONDS / 2)
            if self._file < 0:
                return
            try:
                self.sync()
            except OSError as error:
                if self._file >= 0:
                    self._fault = error
                return

    # ------------------------------------------------------------------------------------------------- tail to segments

    def compact(self) -> None:
        """Move the tail into a Parquet segment, together with the last segment while that is small.

        The segment is written before the tail is emptied. A kill in between leaves rows twice, but loses none.
        """
        status = os.stat(self.tail) if self.tail.exists() else None
        if status is None or (status.st_ino, status.st_size) != (os.fstat(self._file).st_ino, self._end):
            raise self._is_changed_by_others()
        new = records.as_frame(records.whole_rows(self.tail), records.ANSWER_COLUMNS)
        if new.is_empty():
            return
        path, before = self._next_segment()
        merged = bool(self._segments) and path == self._segments[-1][1]
        if merged:
            new = pl.concat([records.read(path), new])
        temporary = path.with_suffix(".new")
        try:
            self.sync()  # so that a power cut leaves the complete tail, or an empty one; `_is_moved` distinguishes the two
            records.write(new, temporary)
            durable.replace(temporary, path)
            self._cut(0)
        except (OSError, pa.ArrowException) as error:  # no room for a segment: the tail stays as it is
            log(str(self.folder), f"not compacted: {error}")
            temporary.unlink(missing_ok=True)
            self.full = True
            return
        self._segments[len(self._segments) - merged :] = [(before, path)]
        self._rows = before + new.height
        self._places.update((key, -1 - before - row) for row, key in enumerate(new["key"]))

    def _next_segment(self) -> tuple[Path, int]:
        """Return the segment for the tail (the last one while it is small, else a new one), and the rows before it."""
        if not self._segments:
            return self.folder / "00001.parquet", 0
        before, last = self._segments[-1]
        # Merging loads the segment completely, and a file of similar outputs may be a hundredth of its size in memory.
        if last.stat().st_size < SEGMENT_BYTES // 8 and self._rows - before < MERGED_ROWS:
            return last, before
        return self.folder / f"{int(last.stem) + 1:05d}.parquet", self._rows

    def _load(self) -> None:
        for path in records.segments(self.folder):
            frame, before = records.read(path, "key", "stop_reason", "reason", "cost"), self._rows
            self._segments.append((before, path))
            self._rows += frame.height
            self._places.update(zip(frame["key"], range(-1 - before, -1 - self._rows, -1), strict=True))
            self.spent += records.dollars(frame["cost"])
            for key, cost in (
                frame.filter((pl.col("stop_reason") == StopReason.ERROR) & (pl.col("cost") > 0))
                .select("key", "cost")
                .rows()
            ):
                self._failed[key] = self._failed.get(key, 0.0) + cost
            if self._failed_keys or (frame["stop_reason"] == StopReason.ERROR).any():
                last = frame.unique("key", keep="last")
                for key in self._failed_keys.keys() & set(last["key"]):
                    del self._failed_keys[key]
                self._failed_keys.update(last.filter(stop_reason=StopReason.ERROR).select("key", "reason").iter_rows())
        if self._segments and self._is_moved(path, frame["key"]):
            os.ftruncate(self._file, 0)
        end, damaged = 0, []
        with open(self.tail, "rb") as file:
            for line in file:
                if not line.endswith(b"\n"):
                    break
                if row := records.row_of(line):
                    self._note(row.key, row.answer.stop_reason, row.answer.reason, row.answer.cost)
                    self._places[row.key] = end
                else:
                    damaged.append(line)
                end += len(line)
        self._cut(end)
        if damaged:
            self._move_damaged(damaged)

    def _is_moved(self, last: Path, keys: pl.Series) -> bool:
        """Return whether a kill came between writing a segment and emptying the tail: both then end with the same rows.

        Equal keys are no proof, because a rerun first retries the calls that failed last, under the same keys.
        """
        tail = [row.key for row in records.whole_rows(self.tail)]
        if not tail or keys.tail(len(tail)).to_list() != tail:
            return False
        rows = records.as_frame(records.whole_rows(self.tail), records.ANSWER_COLUMNS)
        return records.read(last).tail(rows.height).equals(rows)

    def keep_damaged(self, other: "Journal") -> None:
        """Move the damaged lines of another journal to those of this one."""
        if other.damaged.exists():
            self._keep(other.damaged.read_bytes().splitlines(keepends=True))
            other.damaged.unlink()

    def _move_damaged(self, damaged: list[bytes]) -> None:
        self._keep(damaged)
        log(
            str(self.folder),
            f"{len(damaged)} damaged lines (moved to {self.damaged.name}); their calls are repeated",
        )

    def _keep(self, damaged: list[bytes]) -> None:
        known = set(self.damaged.read_bytes().splitlines(keepends=True)) if self.damaged.exists() else set()
        append_log.append(self.damaged, (line for line in damaged if line not in known))
