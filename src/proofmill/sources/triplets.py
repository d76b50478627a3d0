"""Programs with an input and its output: CRUXEval, LiveCodeBench's executions, the seeds of Absolute Zero.

A problem requests the output (`deduce`), an input (`abduce`), or the program that fits given pairs (`induce`). Its answer
is the triplet as a JSON object, as selfplay_tasks/tasks.py reads it. Its solution is a reply with the published part.

From: CRUXEval (Gu et al. 2024, arXiv 2401.03065), LiveCodeBench (Jain et al. 2024, arXiv 2403.07974), and the seed
files of Absolute Zero Reasoner (arXiv 2505.03335).

Differences from the originals:
1. Absolute Zero requests inputs for LiveCodeBench's rows, while its paper states outputs. Here each is a source.
2. A function keeps its name in the statement. Absolute Zero renames it to `f` with a text search.
"""

import ast
import builtins
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

from proofmill.schema.entries.problem_entries import Problems
from proofmill.schema.errors import TableError, shorten
from proofmill.sources import files
from proofmill.sources.record_fields import field, source, text, texts, word

Row = dict[str, Any]
Load = Callable[[Problems], Iterator[Row]]
Asked = Literal["deduce", "abduce"]


def fence(language: str, code: str) -> str:
    """Return code as a fenced block of Markdown."""
    fence = "`" * (4 if "```" in code else 3)
    return f"{fence}{language}\n{code.strip(chr(10)).rstrip()}\n{fence}"


def _prediction(kind: Asked, code: str, function: str, arguments: str, output: str) -> Row:
    """Build the columns from a triplet. The statement shows `code`; in the program `f` is an alias of its function."""
    program = fence("python", code)
    if kind == "deduce":
        call = fence("python", f"{function}({arguments})")
        statement = f"{program}\n\nWhat is the value of this call?\n\n{call}"
        solution = fence("output", output)
    else:
        value = fence("python", output)
        statement = f"{program}\n\nWith which arguments does `{function}` return this value?\n\n{value}"
        solution = fence("input", arguments)
    named = code if function == "f" else f"{code.rstrip()}\n\nf = {function}\n"
    task = {"kind": kind, "program": named, "input": arguments, "output": output}
    return {
        "statement": statement,
        "solution": solution,
        "answer": json.dumps(task, ensure_ascii=False),
        "question_type": "code",
        "tags": [kind],
    }


def cruxeval(kind: Asked) -> Load:
    """Build the loader of CRUXEval for one task."""

    def load(entry: Problems) -> Iterator[Row]:
        for where, record in files.records(entry):
            id = word(where, record, "id") if "id" in record else None
            yield {
                "problem": f"cruxeval-{kind}-{id}" if id else None,
                "origin": where,
                **_prediction(kind, source(where, record, "code"), "f", *_pair(where, record)),
            }

    return load


def livecodebench(kind: Asked) -> Load:
    """Build the loader of LiveCodeBench's executions. `input` is the complete call; missing imports are added to the code."""

    def load(entry: Problems) -> Iterator[Row]:
        for where, record in files.records(entry):
            function, (call, output) = source(where, record, "function_name"), _pair(where, record)
            call = call.strip()
            if not (call.startswith(f"{function}(") and call.endswith(")")):
                raise TableError(
                    f"{where}: `input` is {shorten(call)}; expected a call of `{function}`. Check that the file is "
                    "LiveCodeBench's execution part."
                )
            arguments = call[len(function) + 1 : -1]
            id = word(where, record, "id") if "id" in record else None
            yield {
                "problem": f"livecodebench-{kind}-{id}" if id else None,
                "origin": where,
                "level": word(where, record, "difficulty") if "difficulty" in record else None,
                **_prediction(kind, with_imports(source(where, record, "code")), function, arguments, output),
            }

    return load


def azr(kind: Literal["deduce", "abduce", "induce"]) -> Load:
    """Build the loader of Absolute Zero's seeds for one task."""

    def load(entry: Problems) -> Iterator[Row]:
        for where, record in files.records(entry):
            imports = texts(where, record, "imports") if "imports" in record else []
            snippet = source(where, record, "snippet")
            code = "\n".join([*(line for line in imports if line not in snippet.splitlines()), snippet])
            if kind != "induce":
                yield {"origin": where, **_prediction(kind, code, "f", *_pair(where, record))}
                continue
            inputs, outputs = texts(where, record, "inputs"), texts(where, record, "outputs")
            if len(inputs) != len(outputs) or len(inputs) < 2:
                raise TableError(
                    f"{where}: {len(inputs)} inputs and {len(outputs)} outputs; expected the same number, at least two. Fix the row."
                )
            yield {"origin": where, **_induction(code, inputs, outputs, text(where, record, "message") or "")}

    return load


def _induction(code: str, inputs: list[str], outputs: list[str], message: str) -> Row:
    """Build a problem of induction: it shows the first half of the pairs, rounded down; the others test the program."""
    shown_pairs = list(zip(inputs, outputs, strict=True))[: len(inputs) // 2]
    calls = "\n".join(f"f({arguments})  # {output}" for arguments, output in shown_pairs)
    hint = f"\n\n{message}" if message else ""
    task = {"kind": "induce", "program": code, "inputs": inputs, "outputs": outputs, "message": message}
    return {
        "statement": f"Which function `f` gives these values?\n\n{fence('python', calls)}{hint}",
        "solution": fence("python", code),
        "answer": json.dumps(task, ensure_ascii=False),
        "question_type": "code",
        "tags": ["induce"],
    }


def _pair(where: str, record: Mapping[str, Any]) -> tuple[str, str]:
    """Return the input, which may be empty, and the output as literals."""
    written = [field(where, record, column) for column in ("input", "output")]
    for column, value in zip(("input", "output"), written, strict=True):
        if not isinstance(value, str):
            raise TableError(f"{where}: `{column}` is {shorten(value)}; expected a Python literal as text.")
    return written[0], written[1]


# ------------------------------------------------------------------------------------------------------ missing imports

# Names that LeetCode programs use without an import, by module.
_NAMES = {
    "typing": "Any Callable DefaultDict Deque Dict FrozenSet Generator Iterable Iterator List Optional Sequence Set Tuple Union",
    "collections": "ChainMap Counter OrderedDict defaultdict deque namedtuple",
    "heapq": "heapify heappop heappush heappushpop heapreplace merge nlargest nsmallest",
    "bisect": "bisect bisect_left bisect_right insort insort_left insort_right",
    "itertools": "accumulate chain combinations combinations_with_replacement count cycle groupby islice pairwise permutations "
    "product repeat starmap takewhile zip_longest",
    "functools": "cache cmp_to_key lru_cache partial reduce",
    "operator": "add and_ itemgetter mul or_ xor",
    "math": "ceil comb cos factorial floor gcd hypot inf isqrt lcm log log10 log2 perm pi prod sin sqrt",
    "string": "ascii_letters ascii_lowercase ascii_uppercase digits",
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names.split()}
_MODULES = {*_NAMES, "copy", "datetime", "fractions", "random", "re", "statistics", "sys"}


def with_imports(code: str) -> str:
    """Prepend imports of the well-known names that a program uses and does not define; unparsable code is unchanged."""
    try:
        nodes = list(ast.walk(ast.parse(code)))
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return code
    defined = {getattr(node, "name", None) or getattr(node, "arg", None) or "" for node in nodes} | {*dir(builtins)}
    defined |= {alias.asname or alias.name.partition(".")[0] for n in nodes for alias in getattr(n, "names", []) if n}
    defined |= {n.id for n in nodes if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
    of_module = {n.value.id for n in nodes if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name)}
    free = dict.fromkeys(n.id for n in nodes if isinstance(n, ast.Name) and n.id not in defined)
    lines = [f"import {name}" for name in free if name in of_module and name in _MODULES]
    lines += [
        f"from {_MODULE_OF[name]} import {name}"
        for name in free
        if name in _MODULE_OF and f"import {name}" not in lines
    ]
    return "\n".join([*sorted(lines), code]) if lines else code
