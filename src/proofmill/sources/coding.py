"""Programming problems with tests: of what a program prints (open-r1), or of what a function returns (HumanEval, MBPP).

`problems` reads open-r1's verifiable-coding-problems-python: `problem_statement`, `gold_standard_solution` and
`verification_info`, whose `test_cases` each have `input`, `output`, `type` and `fn_name`. `humaneval` and `mbpp` read
the published rows (Chen et al. 2021, arXiv 2107.03374; Austin et al. 2021, arXiv 2108.07732) and those of EvalPlus (Liu
et al. 2023, arXiv 2305.01210), whose asserts are a check (sandbox/checks.py). `livecodebench` reads its generation rows
(Jain et al. 2024, arXiv 2403.07974).

How we differ:
1. Of open-r1's tests only those of what a program reads and prints are taken. A problem with none has no answer, and a
   filter decides about it.
2. A solver is asked for the whole function, not for the text that goes on from its signature.
3. LiveCodeBench's hidden tests are pickled; of the pickle only a text is taken, and nothing in it is executed.
"""

import ast
import base64
import json
import pickletools
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

from proofmill.schema.entries import Problems
from proofmill.schema.errors import TableError, shown
from proofmill.sources import files
from proofmill.sources.fields import field, records, text, texts, word
from proofmill.sources.formats import VALUE_LIMIT, parsed_json
from proofmill.sources.triplets import fenced

READS_AND_PRINTS = "stdin_stdout"


def problems(entry: Problems) -> Iterator[dict[str, Any]]:
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
            "asks": "code",
            "origin": word(where, record, "problem_id") if "problem_id" in record else where,
            "tags": [source] if "source" in record and (source := word(where, record, "source")) else [],
        }


# ------------------------------------------------------------------------------------------------ functions with asserts


def humaneval(entry: Problems) -> Iterator[dict[str, Any]]:
    """HumanEval and HumanEval+: `test` defines `check(candidate)`."""
    for where, record in files.records(entry):
        function, stub = _source(where, record, "entry_point"), _source(where, record, "prompt")
        reference = stub + (text(where, record, "canonical_solution") or "")
        test = f"{_source(where, record, 'test').strip()}\n\ncheck({function})\n"
        yield {
            "problem": word(where, record, "task_id"),
            "statement": f"{fenced('python', stub)}\n\nWrite the function `{function}`.",
            "origin": where,
            **_checked(test, function, _before(where, stub, function), reference),
        }


def mbpp(entry: Problems) -> Iterator[dict[str, Any]]:
    """MBPP, as it is and sanitized, and MBPP+, whose `test` has more than the `test_list` that a solver is shown."""
    for where, record in files.records(entry):
        asserts, code = texts(where, record, "test_list"), _source(where, record, "code").replace("\r\n", "\n")
        function = _tested(where, code, asserts)
        setup = texts(where, record, "test_imports") if "test_imports" in record else []
        setup += [text(where, record, "test_setup_code") or ""] if "test_setup_code" in record else []
        before = "\n".join(line for line in setup if line.strip())
        shown_asserts, test = (
            (asserts[:1], _source(where, record, "test")) if "test" in record else (asserts, "\n".join(asserts))
        )
        task = text(where, record, "prompt" if "prompt" in record else "text") or ""
        yield {
            "problem": f"mbpp-{word(where, record, 'task_id')}",
            "statement": f"{task.strip()}\n\n{fenced('python', chr(10).join(shown_asserts))}\n\nWrite the function `{function}`.",
            "origin": where,
            **_checked(f"{test}\n", function, before, code),
        }


def _checked(check: str, function: str, setup: str, reference: str) -> dict[str, Any]:
    """What a problem has of its asserts; `setup` stands before the reference and before what is tried."""
    test = {"check": check, "function": function, "setup": setup, "reference": reference}
    return {
        "solution": fenced("python", reference),
        "answer": json.dumps([test], ensure_ascii=False),
        "asks": "code",
        "tags": ["function"],
    }


def livecodebench(entry: Problems) -> Iterator[dict[str, Any]]:
    """A program that reads and prints, or where there is `starter_code` a method of `Solution`, with all its tests."""
    for where, record in files.records(entry):
        stub, task = text(where, record, "starter_code") or "", _source(where, record, "question_content").strip()
        tests = [*_listed(where, record, "public_test_cases"), *_listed(where, record, "private_test_cases")]
        function = word(where, _object(where, record, "metadata"), "func_name") if stub else None
        asked = f"Write this:\n\n{fenced('python', stub)}" if stub else "The program reads standard input and prints."
        yield {
            "problem": f"livecodebench-{word(where, record, 'question_id')}",
            "statement": f"{task}\n\n{asked}",
            "answer": json.dumps(
                [_called(where, test, function) | _options(entry) for test in tests], ensure_ascii=False
            ),
            "asks": "code",
            "origin": where,
            "level": word(where, record, "difficulty"),
            "tags": [word(where, record, "platform")],
        }


def _options(entry: Problems) -> dict[str, Any]:
    """Return what every test says of how its program is run (sandbox/cases.py)."""
    options = {"setup": entry.setup, "megabytes": entry.megabytes}
    return {name: value for name, value in options.items() if value is not None}


def _called(where: str, test: Mapping[str, Any], function: str | None) -> dict[str, Any]:
    """A test as sandbox/cases.py has it; arguments of a method stand on a line each, as JSON."""
    given, expected = text(where, test, "input") or "", text(where, test, "output") or ""
    if function is None:
        return {"input": given, "output": expected}
    try:
        arguments = [repr(parsed_json(line)) for line in given.splitlines() if line.strip()]
        return {"call": f"Solution().{function}({', '.join(arguments)})", "result": repr(parsed_json(expected))}
    except ValueError as error:
        raise TableError(
            f"{where}: a test is no JSON ({error}); expected an argument a line. Mend or remove the row."
        ) from error


def _listed(where: str, record: Mapping[str, Any], column: str) -> list[Mapping[str, Any]]:
    """Tests as JSON, or as the published file hides them: pickled, compressed, in base 64."""
    written = _source(where, record, column)
    try:
        if not written.lstrip().startswith("["):
            written = _pickled(_inflated(base64.b64decode(written, validate=True)))
        return records(where, {column: parsed_json(written)}, column)
    except (ValueError, zlib.error) as error:
        raise TableError(
            f"{where}: `{column}` cannot be read ({error}); expected tests as LiveCodeBench publishes them."
        ) from error


def _inflated(packed: bytes) -> bytes:
    """Decompress at most VALUE_LIMIT bytes. Raises ValueError for more, and for a stream without an end."""
    stream = zlib.decompressobj()
    content = stream.decompress(packed, VALUE_LIMIT)
    if not stream.eof:
        raise ValueError(f"cut off, or over {VALUE_LIMIT:,} bytes")
    return content


def _pickled(content: bytes) -> str:
    """Read the text that was pickled from the operations of the pickle, none of which is run."""
    found = []
    for operation, argument, _ in pickletools.genops(content):
        if operation.name not in _OF_TEXTS:
            raise ValueError(f"a pickle of more than a text ({operation.name})")
        found += [argument] if isinstance(argument, str) else []
    if len(found) != 1:
        raise ValueError(f"a pickle of {len(found)} texts")
    return found[0]


_OF_TEXTS = (  # operations of a pickle
    *("PROTO", "FRAME", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
    *("MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT", "STOP"),
)


def _object(where: str, record: Mapping[str, Any], column: str) -> Mapping[str, Any]:
    """A column with an object, or with one as JSON."""
    value = field(where, record, column)
    try:
        value = parsed_json(value) if isinstance(value, str) else value
    except ValueError as error:
        raise TableError(
            f"{where}: `{column}` is no JSON ({error}); expected an object. Mend or remove the row."
        ) from error
    if not isinstance(value, Mapping):
        raise TableError(f"{where}: `{column}` is {shown(value)}; expected an object.")
    return value


def _source(where: str, record: Mapping[str, Any], column: str) -> str:
    if not (value := text(where, record, column)):
        raise TableError(f"{where}: `{column}` is empty; expected source text. Mend or remove the row.")
    return value


def _before(where: str, stub: str, function: str) -> str:
    """What stands in a stub before its last function: imports, and functions that it may call."""
    last = [node for node in _tree(where, "prompt", stub).body if getattr(node, "name", None) == function]
    if not last:
        raise TableError(f"{where}: `prompt` does not define `{function}`; expected the stub of its `entry_point`.")
    return "\n".join(stub.splitlines()[: last[-1].lineno - 1]).strip()


def _tested(where: str, code: str, asserts: list[str]) -> str:
    """The function of the code that the asserts call first."""
    defined = {node.name for node in ast.walk(_tree(where, "code", code)) if isinstance(node, ast.FunctionDef)}
    for node in ast.walk(_tree(where, "test_list", "\n".join(asserts))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in defined:
            return node.func.id
    raise TableError(
        f"{where}: `test_list` calls nothing that `code` defines; expected asserts about a function of it."
    )


def _tree(where: str, column: str, source: str) -> ast.Module:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise TableError(
            f"{where}: `{column}` is no Python ({error}); expected some. Mend or remove the row."
        ) from error
