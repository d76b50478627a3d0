"""Programming problems with tests of a program's output (open-r1) or a function's result (HumanEval, MBPP).

`problems` reads open-r1's verifiable-coding-problems-python: `problem_statement`, `gold_standard_solution` and
`verification_info`, whose `test_cases` each have `input`, `output`, `type` and `fn_name`. `humaneval` and `mbpp` read
the published rows (Chen et al. 2021, arXiv 2107.03374; Austin et al. 2021, arXiv 2108.07732) and those of EvalPlus (Liu
et al. 2023, arXiv 2305.01210), whose asserts are one check (sandbox/asserts.py). `livecodebench` reads its generation rows
(Jain et al. 2024, arXiv 2403.07974).

Differences from the originals:
1. Of open-r1's tests only those on standard input and output are used. A problem without them has no answer; filters
   decide about it.
2. The statement requests the complete function, not a continuation of its signature.
3. LiveCodeBench's hidden tests are pickled. Only a text is read from the pickle; nothing in it is executed.
"""

import ast
import base64
import json
import pickletools
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

from proofmill.schema.entries.problem_entries import Problems
from proofmill.schema.errors import TableError, shorten
from proofmill.sources import files
from proofmill.sources.file_formats import VALUE_LIMIT, parse_json
from proofmill.sources.record_fields import day, field, records, source, text, texts, word
from proofmill.sources.triplets import fence

READS_AND_PRINTS = "stdin_stdout"


def problems(entry: Problems) -> Iterator[dict[str, Any]]:
    """Yield the problems of open-r1's verifiable-coding-problems-python."""
    for where, record in files.records(entry):
        tests = [
            {"input": text(where, test, "input"), "output": text(where, test, "output"), **_options(entry)}
            for test in records(where, _object(where, record, "verification_info"), "test_cases")
            if test.get("type", READS_AND_PRINTS) == READS_AND_PRINTS and not test.get("fn_name")
        ]
        yield {
            "statement": text(where, record, "problem_statement"),
            "solution": text(where, record, "gold_standard_solution") if "gold_standard_solution" in record else None,
            "answer": json.dumps(tests, ensure_ascii=False) if tests else None,
            "question_type": "code",
            "origin": word(where, record, "problem_id") if "problem_id" in record else where,
            "tags": [source] if "source" in record and (source := word(where, record, "source")) else [],
        }


# ------------------------------------------------------------------------------------------------ functions with asserts


def humaneval(entry: Problems) -> Iterator[dict[str, Any]]:
    """Yield the problems of HumanEval and HumanEval+, whose `test` defines `check(candidate)`."""
    for where, record in files.records(entry):
        function, stub = source(where, record, "entry_point"), source(where, record, "prompt")
        reference = stub + (text(where, record, "canonical_solution") or "")
        test = f"{source(where, record, 'test').strip()}\n\ncheck({function})\n"
        yield {
            "problem": word(where, record, "task_id"),
            "statement": f"{fence('python', stub)}\n\nWrite the function `{function}`.",
            "origin": where,
            **_function_columns(test, function, _stub_prefix(where, stub, function), reference),
        }


def mbpp(entry: Problems) -> Iterator[dict[str, Any]]:
    """Yield the problems of MBPP, plain or sanitized, and of MBPP+, whose `test` has more than the public `test_list`."""
    for where, record in files.records(entry):
        asserts, code = texts(where, record, "test_list"), source(where, record, "code").replace("\r\n", "\n")
        function = _find_tested_function(where, code, asserts)
        setup = texts(where, record, "test_imports") if "test_imports" in record else []
        setup += [text(where, record, "test_setup_code") or ""] if "test_setup_code" in record else []
        before = "\n".join(line for line in setup if line.strip())
        shown_asserts, test = (
            (asserts[:1], source(where, record, "test")) if "test" in record else (asserts, "\n".join(asserts))
        )
        task = text(where, record, "prompt" if "prompt" in record else "text") or ""
        yield {
            "problem": f"mbpp-{word(where, record, 'task_id')}",
            "statement": f"{task.strip()}\n\n{fence('python', chr(10).join(shown_asserts))}\n\nWrite the function `{function}`.",
            "origin": where,
            **_function_columns(f"{test}\n", function, before, code),
        }


def _function_columns(check: str, function: str, setup: str, reference: str) -> dict[str, Any]:
    """Build the columns from asserts; `setup` precedes both the reference and the tested code."""
    test = {"check": check, "function": function, "setup": setup, "reference": reference}
    return {
        "solution": fence("python", reference),
        "answer": json.dumps([test], ensure_ascii=False),
        "question_type": "code",
        "tags": ["function"],
    }


def livecodebench(entry: Problems) -> Iterator[dict[str, Any]]:
    """Yield LiveCodeBench's problems with all tests: programs, or with `starter_code` methods of `Solution`."""
    for where, record in files.records(entry):
        stub, task = text(where, record, "starter_code") or "", source(where, record, "question_content").strip()
        tests = [*_read_tests(where, record, "public_test_cases"), *_read_tests(where, record, "private_test_cases")]
        function = word(where, _object(where, record, "metadata"), "func_name") if stub else None
        asked = f"Write this:\n\n{fence('python', stub)}" if stub else "The program reads standard input and prints."
        yield {
            "problem": f"livecodebench-{word(where, record, 'question_id')}",
            "statement": f"{task}\n\n{asked}",
            "answer": json.dumps(
                [_convert_test(where, test, function) | _options(entry) for test in tests], ensure_ascii=False
            ),
            "question_type": "code",
            "origin": where,
            "date": day(where, record, "contest_date") if "contest_date" in record else None,
            "level": word(where, record, "difficulty"),
            "tags": [word(where, record, "platform")],
        }


def _options(entry: Problems) -> dict[str, Any]:
    """Return the options of the entry that every test has (sandbox/cases.py)."""
    options = {"setup": entry.setup, "megabytes": entry.megabytes}
    return {name: value for name, value in options.items() if value is not None}


def _convert_test(where: str, test: Mapping[str, Any], function: str | None) -> dict[str, Any]:
    """Convert a test to the form of sandbox/cases.py; arguments of a method are JSON, one per line."""
    stdin, expected = text(where, test, "input") or "", text(where, test, "output") or ""
    if function is None:
        return {"input": stdin, "output": expected}
    try:
        arguments = [repr(parse_json(line)) for line in stdin.splitlines() if line.strip()]
        return {"call": f"Solution().{function}({', '.join(arguments)})", "result": repr(parse_json(expected))}
    except ValueError as error:
        raise TableError(
            f"{where}: a test is not JSON ({error}); expected one argument per line. Fix or remove the row."
        ) from error


def _read_tests(where: str, record: Mapping[str, Any], column: str) -> list[Mapping[str, Any]]:
    """Read tests as JSON, or as the published file hides them: pickled, compressed, in base 64."""
    written = source(where, record, column)
    try:
        if not written.lstrip().startswith("["):
            written = _unpickle_text(_inflate(base64.b64decode(written, validate=True)))
        return records(where, {column: parse_json(written)}, column)
    except (ValueError, zlib.error) as error:
        raise TableError(
            f"{where}: `{column}` cannot be read ({error}); expected tests as LiveCodeBench publishes them."
        ) from error


def _inflate(packed: bytes) -> bytes:
    """Decompress at most VALUE_LIMIT bytes. Raises ValueError for more, and for a stream without an end."""
    stream = zlib.decompressobj()
    content = stream.decompress(packed, VALUE_LIMIT)
    if not stream.eof:
        raise ValueError(f"incomplete, or over {VALUE_LIMIT:,} bytes")
    return content


def _unpickle_text(content: bytes) -> str:
    """Read the pickled text from the operations of the pickle, without running any."""
    values = []
    for operation, argument, _ in pickletools.genops(content):
        if operation.name not in _OF_TEXTS:
            raise ValueError(f"a pickle of more than a text ({operation.name})")
        values += [argument] if isinstance(argument, str) else []
    if len(values) != 1:
        raise ValueError(f"a pickle of {len(values)} texts")
    return values[0]


_OF_TEXTS = (  # operations of a pickle that holds only a text
    *("PROTO", "FRAME", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
    *("MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT", "STOP"),
)


def _object(where: str, record: Mapping[str, Any], column: str) -> Mapping[str, Any]:
    """Return an object from a column that holds it, or its JSON."""
    value = field(where, record, column)
    try:
        value = parse_json(value) if isinstance(value, str) else value
    except ValueError as error:
        raise TableError(
            f"{where}: `{column}` is not JSON ({error}); expected an object. Fix or remove the row."
        ) from error
    if not isinstance(value, Mapping):
        raise TableError(f"{where}: `{column}` is {shorten(value)}; expected an object.")
    return value


def _stub_prefix(where: str, stub: str, function: str) -> str:
    """Return the part of a stub before its last function: imports and helper functions."""
    last = [node for node in _parse(where, "prompt", stub).body if getattr(node, "name", None) == function]
    if not last:
        raise TableError(f"{where}: `prompt` does not define `{function}`; expected the stub of its `entry_point`.")
    return "\n".join(stub.splitlines()[: last[-1].lineno - 1]).strip()


def _find_tested_function(where: str, code: str, asserts: list[str]) -> str:
    """Return the first function of the code that the asserts call."""
    defined = {node.name for node in ast.walk(_parse(where, "code", code)) if isinstance(node, ast.FunctionDef)}
    for node in ast.walk(_parse(where, "test_list", "\n".join(asserts))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in defined:
            return node.func.id
    raise TableError(
        f"{where}: `test_list` calls no function of `code`; expected asserts about one. Fix or remove the row."
    )


def _parse(where: str, column: str, source: str) -> ast.Module:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise TableError(
            f"{where}: `{column}` is not Python ({error}); expected source code. Fix or remove the row."
        ) from error
