"""Programming problems with tests, as open-r1 publishes them (verifiable-coding-problems-python).

A record has `problem_statement`, `gold_standard_solution` and `verification_info`, whose `test_cases` each have `input`,
`output`, `type` and `fn_name`.

How we differ: only tests of what a program reads and prints are taken. A problem with none has no answer, and a filter
decides about it.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from proofmill.schema.entries import Problems
from proofmill.schema.errors import TableError
from proofmill.schema.quoting import shown
from proofmill.sources import files
from proofmill.sources.fields import field, records, text, word
from proofmill.sources.formats import parsed_json

READS_AND_PRINTS = "stdin_stdout"


def problems(entry: Problems) -> Iterator[dict[str, Any]]:
    for where, record in files.records(entry):
        tests = [
            {"input": text(where, test, "input"), "output": text(where, test, "output")}
            for test in records(where, _verification(where, record), "test_cases")
            if test.get("type", READS_AND_PRINTS) == READS_AND_PRINTS and not test.get("fn_name")
        ]
        yield {
            "statement": text(where, record, "problem_statement"),
            "solution": text(where, record, "gold_standard_solution") if "gold_standard_solution" in record else None,
            "answer": json.dumps(tests, ensure_ascii=False) if tests else None,
            "asks": "code",
            "origin": word(where, record, "problem_id") if "problem_id" in record else where,
            "tags": [source] if "source" in record and (source := word(where, record, "source")) else [],
        }


def _verification(where: str, record: Mapping[str, Any]) -> Mapping[str, Any]:
    """The column with the tests: an object, or one as JSON."""
    value = field(where, record, "verification_info")
    try:
        value = parsed_json(value) if isinstance(value, str) else value
    except ValueError as error:
        raise TableError(
            f"{where}: `verification_info` is no JSON ({error}); expected an object with `test_cases`. Mend or remove the row."
        ) from error
    if not isinstance(value, Mapping):
        raise TableError(f"{where}: `verification_info` is {shown(value)}; expected an object with `test_cases`.")
    return value
