"""The view that a shard has of a table: only its own rows are read."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import polars as pl
import pyarrow as pa

from proofmill.artifacts.tables import Table
from proofmill.calls.shards import Shard


@dataclass(frozen=True)
class Share(Table):
    """A table as one shard reads it. Stamp and weights are those of the full table."""

    shard: Shard = field(kw_only=True)

    def scan(self) -> pl.LazyFrame:
        rows = self.height  # read from the file once
        mine = [self.shard.has(place, rows) for place in range(rows)]
        return super().scan().filter(pl.lit(pl.Series(mine, dtype=pl.Boolean)))

    def batches(self, *columns: str) -> Iterator[pa.RecordBatch]:
        before, rows = 0, self.height
        for batch in super().batches(*columns):
            places = range(before, before + batch.num_rows)
            yield batch.filter(pa.array([self.shard.has(place, rows) for place in places]))
            before += batch.num_rows

    def frames(self) -> Iterator[pl.DataFrame]:
        before, rows = 0, self.height
        for frame in super().frames():
            mine = [self.shard.has(place, rows) for place in range(before, before + frame.height)]
            yield frame.filter(pl.Series(mine, dtype=pl.Boolean))
            before += frame.height
