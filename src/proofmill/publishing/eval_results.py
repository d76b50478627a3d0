"""Write a model's results for the hub: `.eval_results/*.yaml`, which its pages of models and benchmarks show.

Format: https://huggingface.co/docs/hub/eval-results.

Only avg@k at a whole split of a dataset of the hub (`id`) at a pinned commit is written, in percent of the points: a part
of a benchmark under the name of the whole would be another number than it seems. Split, interval and settings are in the
notes.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from proofmill.artifacts.tables import Table
from proofmill.schema.entries.problem_entries import Problems

_AVERAGE = re.compile(r"avg@\d+")


def counts(row: Mapping[str, Any], entry: Problems, benchmark: Table) -> bool:
    """Return whether a row of scores is an average over a whole split; `benchmark` is the table of its problems."""
    is_part = entry.rows or entry.every > 1 or entry.where or entry.also
    is_average = row["value"] is not None and not row["baseline"] and _AVERAGE.fullmatch(row["metric"])
    return bool(entry.id and is_average and not is_part) and {*benchmark.stamp["counts"]} == {"kept"}


def of_row(row: Mapping[str, Any], max_points: float, entry: Problems, url: str) -> dict[str, Any]:
    """Return the result of a row that counts; `entry` is that of its problems, `url` the address of the scores."""
    from huggingface_hub import EvalResultEntry, eval_result_entries_to_yaml

    percent = 100 / max_points
    interval = "" if row["low"] is None else f", interval {percent * row['low']:.1f} to {percent * row['high']:.1f}"
    (result,) = eval_result_entries_to_yaml(
        [
            EvalResultEntry(
                dataset_id=str(entry.id),
                task_id=entry.subset or "default",
                value=round(percent * row["value"], 2),
                dataset_revision=entry.commit,
                source_url=url,
                source_name="proofmill",
                notes=f"{row['metric']} in percent of the points{interval}, {row['n']} attempts at {row['n_problems']} problems, "
                f"{row['unscored']:.1%} unscored, split {entry.split}, sampling {row['sampling']}, grader {row['grader']}",
            )
        ]
    )
    return result


def files(results: Iterable[dict[str, Any]]) -> dict[str, bytes]:
    """Return the files of a repository: one for each dataset, with its results."""
    by_dataset: dict[str, list[dict[str, Any]]] = {}
    for result in results:
        by_dataset.setdefault(result["dataset"]["id"], []).append(result)
    return {
        f".eval_results/{id.replace('/', '--')}.yaml": yaml.safe_dump(
            some, sort_keys=False, allow_unicode=True, width=1000
        ).encode()
        for id, some in by_dataset.items()
    }
