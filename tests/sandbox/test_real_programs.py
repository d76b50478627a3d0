"""Real programs: CRUXEval and the seeds of Absolute Zero give the recorded outputs in all processes."""

import json
from pathlib import Path

import pytest

from proofmill.sandbox import executor, values
from proofmill.sandbox.executor import Execution, Executor, Result
from proofmill.sandbox.plain import is_tame

FILES = ("cruxeval/first400.jsonl", "azr/seed_io_64.jsonl", "azr/seed_code_f_64.jsonl")
# Errors of programs whose value is not plain data. Other outputs may differ if the record was cut in its middle.
NO_DATA = (
    "a value of the type generator, which is no plain data",
    "a value of the type ellipsis, which is no plain data",
)


@pytest.fixture(scope="module")
def records(data: Path) -> list[tuple[Execution, str]]:
    made = []
    for name in FILES:
        if not (data / name).exists():
            pytest.skip(f"{data / name} is missing")
        for row in map(json.loads, (data / name).read_text("utf-8").splitlines()):
            program = "\n".join([*row.get("imports", []), row.get("code") or row["snippet"]])
            pairs = (
                zip(row["inputs"], row["outputs"], strict=True) if "inputs" in row else [(row["input"], row["output"])]
            )
            made += [(Execution(program, f"f({given})"), output) for given, output in pairs]
    return made


@pytest.fixture(scope="module")
def results(records) -> list[Result]:
    """Return the results of the programs."""
    with Executor(seconds=60, longest=100_000, workers=2) as opened:
        return list(opened.run(execution for execution, _ in records))


def test_outputs_of_real_programs_are_as_recorded(records, results):
    """Only outputs whose record is cut, and refused generators and ellipses, differ."""
    others = []
    for (execution, output), result in zip(records, results, strict=True):
        if result.status == "ok":
            first, cut, last = output.partition("...")
            is_cut = cut and result.value.startswith(first) and result.value.endswith(last)
            if not (is_cut or values.same(values.parse(result.value), values.parse(output))):
                others.append((execution, result, output))
        elif result.error not in NO_DATA:
            others.append((execution, result, output))
    assert others == []


def test_processes_that_are_shared_give_the_same_values(records, results, monkeypatch):
    """At least four of five are tame, and each has the same result in a process of its own."""
    tame = [
        one for one, (execution, _) in zip(results, records, strict=True) if is_tame(execution.program, execution.call)
    ]
    assert len(tame) >= 0.8 * len(records)
    monkeypatch.setattr(executor, "is_tame", lambda program, call: False)
    with Executor(seconds=60, longest=100_000, workers=2) as alone:
        outcomes = list(alone.run(execution for execution, _ in records[:300]))
    assert [(a.status, a.value, a.error) for a in outcomes] == [(a.status, a.value, a.error) for a in results[:300]]


def test_fresh_processes_give_the_same_values(records):
    """The first 200 depend on their input alone."""
    with Executor(seconds=60, longest=100_000, workers=2) as opened:
        some = [execution for execution, _ in records[:200]]
        one, other = (list(opened.run(some, fresh=fresh)) for fresh in (False, True))
    assert [result.value for result in one] == [result.value for result in other]
