"""Programs as a model writes them, problems that have tests, and what a sandbox or Python itself makes of them."""

import contextlib
import io
import json
import sys
import textwrap
import warnings
from pathlib import Path

from proofmill.sandbox import Ran, Sandbox

DOUBLE = json.dumps([{"input": f"{n}\n", "output": f"{2 * n}\n"} for n in (3, -4, 50)])
RIGHT = "print(2 * int(input()))"
PASSED = Ran(1.0, 3, 3, "ok")


def block(code: str) -> str:
    return f"Here it is.\n```python\n{textwrap.dedent(code)}\n```\nDone."


def calls(*pairs: tuple[str, str]) -> str:
    return json.dumps([{"call": call, "result": result} for call, result in pairs])


def prints(output: str) -> str:
    return json.dumps([{"input": "", "output": output}])


def ran(made: Sandbox, code: str, answer: str = DOUBLE) -> Ran:
    (one,) = made.check([(block(code), answer)])
    return one


def in_python(code: str) -> str:
    """What a program prints in this process."""
    limit = sys.getrecursionlimit()
    with contextlib.redirect_stdout(io.StringIO()) as printed, warnings.catch_warnings(action="ignore"):
        exec(compile(code, "<test>", "exec"), {"__name__": "__main__"})
    sys.setrecursionlimit(limit)
    return printed.getvalue()


def real_programs(data: Path) -> list[tuple[str, str, str]]:
    """Programs of CRUXEval and of Absolute Zero's seeds with an input of `f` and its output; without outputs cut short."""
    made = []
    for name in ("cruxeval/first400.jsonl", "azr/seed_io_64.jsonl", "azr/seed_code_f_64.jsonl"):
        for row in map(json.loads, (data / name).read_text("utf-8").splitlines()):
            code = "\n".join([*row.get("imports", []), row.get("code") or row["snippet"]])
            pairs = (
                zip(row["inputs"], row["outputs"], strict=True) if "inputs" in row else [(row["input"], row["output"])]
            )
            made += [(code, given, output) for given, output in pairs if output and "..." not in output]
    return made
