"""Extract the program of a text: its last block of Python.

From: `extract_code` of open-r1, which takes the last ```python block.

Differences from the original: a block without a language counts if no block is declared as Python. An unclosed block
does not count.
"""

import re

_USUAL = (
    "string", "re", "datetime", "collections", "heapq", "bisect", "copy", "math", "random", "statistics", "itertools",
    "functools", "operator", "io", "sys", "json",
)  # fmt: skip
# Code that precedes a program if its tests request it. `leetcode`: the code that LiveCodeBench puts before each program
# (Jain et al. 2024, `import_string` of lcb_runner), as LeetCode does.
SETUPS = {
    "leetcode": "".join(f"from {module} import *\n" for module in (*_USUAL, "builtins", "typing"))
    + f"import {', '.join(_USUAL)}\nsys.setrecursionlimit(50000)\n"
}

_FENCE = re.compile(r"[ \t]*+(`{3,}+)[ \t]*+([^`\s]*+)[^`]*+")


def code_of(text: str) -> str | None:
    """Return the last closed block declared as Python; without one, the last closed block without a language."""
    last: dict[bool, str] = {}
    fence, language, start = "", "", 0
    lines = text.split("\n")
    for n, line in enumerate(lines):
        if not (fence_line := _FENCE.fullmatch(line)):
            continue
        if not fence or fence_line[2]:  # a new block begins: an earlier one was not closed
            fence, language, start = fence_line[1], fence_line[2].lower(), n + 1
        elif len(fence_line[1]) >= len(fence):
            if language in ("python", "py", "python3", ""):
                last[bool(language)] = "\n".join(lines[start:n]) + "\n"
            fence = ""
    return last.get(True, last.get(False))
