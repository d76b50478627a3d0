"""Count the rows that each filter of the recipes drops, on local copies of public data.

    python benchmarks/drops.py [--data ../shared/data] [--results build/drops]

Each `problems` entry with filters, whose source has a local file, is built with that file in place of its address, and so
are the benchmarks that it is decontaminated against and the entries that select from it. Filters that read labels, grades
or schemes need a model; entries with such filters are not built.
"""

import argparse
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from proofmill.artifacts import jobs
from proofmill.artifacts.tables import Table
from proofmill.config import yaml_files
from proofmill.config.config import expand
from proofmill.config.identity import identity_of
from proofmill.filters.problem_filters import FILTERS
from proofmill.problems import main as build
from proofmill.schema.registry_items import name_of

# Local files by source, and by a part of the address where a source has several.
FILES = {
    "math": {"": "math/train_every5th.jsonl"},
    "aops": {"": "aops_threads/threads_first4.jsonl"},
    "harp": {"": "harp/proof_even.jsonl"},
    "graded-proofs": {"": "opc/graded_proofs.jsonl"},
    "gsm8k": {"train": "gsm8k/train.jsonl", "test": "gsm8k/test_first660.jsonl"},
    "proofbench": {"": "imobench/proofbench_v2.csv"},
    "answerbench": {"": "imobench/answerbench_v2.csv"},
    "aime": {"": "aime/aime24.jsonl"},
    "matharena": {"usamo_2025": "usamo_2025"},
}


def localized(entry: Any, data: Path) -> Any | None:
    """Return an entry that reads a local copy, or None."""
    for part, file in FILES.get(entry.source, {}).items():
        if part in (entry.path or "") and (data / file).exists():
            every = 1 if entry.source in ("harp", "math") else entry.every  # the copies are samples already
            source = {"aops": "aops-threads"}.get(entry.source, entry.source)  # the copy has the forum's own form
            return replace(entry, source=source, path=str(data / file), columns={}, every=every)
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    shared = Path(__file__).resolve().parents[2] / "shared" / "data"
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("PROOFMILL_DATA", shared)))
    parser.add_argument("--results", type=Path, default=Path("build/drops"))
    options = parser.parse_args()
    config = expand(yaml_files.read("config.yaml"))
    entries = {name: entry for name, entry in config.entries.items() if name.startswith("problems/")}
    local = {name: found for name, entry in entries.items() if (found := localized(entry, options.data.resolve()))}
    while more := {
        name: entry
        for name, entry in entries.items()
        if name not in local and entry.source in local and not (entry.grades or entry.labels or entry.schemes)
    }:
        local |= more
    print("| table | rows | kept | dropped by | not applied |\n|---|---|---|---|---|")
    for name, entry in local.items():
        free = [item for item in entry.keep if FILTERS[name_of(item)].needs is None]
        if not entry.keep or len(free) < len(entry.keep) or getattr(entry, "also", None):
            continue
        against = [other for other in entry.decontaminate if other in local]
        chain = [*against, *([entry.source] if entry.source in local else [])]
        entry = replace(entry, decontaminate=against)
        for made, one in [*((other, local[other]) for other in chain), (name, entry)]:
            if not Table(made, options.results).path.exists() or made == name:
                jobs.make(build, made, identity_of(one, {}), options.results, config.terms)
        table = Table(name, options.results)
        dropped = table.scan().collect()["dropped"].drop_nulls().value_counts(sort=True).rows()
        cells = ", ".join(f"{count:,} {filter}" for filter, count in dropped) or "none"
        left = ", ".join(sorted({*config.entries[name].decontaminate} - {*against})) or "none"
        rows = sum(count for _, count in dropped) + table.stamp["counts"]["kept"]
        print(f"| {name} | {rows:,} | {table.stamp['counts']['kept']:,} | {cells} | {left} |", flush=True)


if __name__ == "__main__":
    main()
