"""Python source that runs before a program and supplies what the sandbox's interpreter lacks or does differently.

    prelude(words)       the source, for a program with these words
    inputs(stdin)        the variables that the source reads

The interpreter is pydantic-monty 1.4. A piece is included only for programs that need it, because reading it takes
time. Its own names begin with `_sandbox_`; `_sandbox_lines` holds the lines of the input, the last one first. Built-in
functions that the pieces call are kept under such names too: a program may use `iter`, `str` or `list` for its own.
"""

import re
from collections.abc import Set

LAZY = ("enumerate", "filter", "map", "reversed", "zip")  # these return lists in the sandbox
_KEPT = ("float", "isinstance", "iter", "len", "list", "str")
_PIECES: list[tuple[set[str], str]] = [  # (words of the programs that need a piece, its source)
    # The sandbox cannot derive classes: an exception that it has stands for EOFError.
    ({"EOFError", "input", "sys"}, "import binascii\nEOFError = binascii.Incomplete\n"),
    ({"file", "input", "sys"}, "_sandbox_print = print\n"),
    (
        {"input"},
        """
def input(prompt=''):
    _sandbox_print(prompt, end='')
    if not _sandbox_lines:
        raise EOFError('EOF when reading a line')
    return _sandbox_lines.pop().removesuffix('\\n')
""",
    ),
    (
        {"exit", "quit", "sys"},
        """
def exit(code=None):
    raise SystemExit(_sandbox_str(code or ''))
quit = exit
""",
    ),
    (
        {"sys"},
        """
class _sandbox_In:
    def __init__(self, binary):
        self._sandbox_binary = binary
    def _sandbox_as(self, text):
        return text.encode() if self._sandbox_binary else text
    def read(self, size=-1):
        if size >= 0:
            raise NotImplementedError("part of what is given")
        text = ''.join(_sandbox_lines[::-1])
        _sandbox_lines.clear()
        return self._sandbox_as(text)
    def readline(self):
        return self._sandbox_as(_sandbox_lines.pop() if _sandbox_lines else '')
    def readlines(self):
        return _sandbox_list(self)
    def __iter__(self):
        return self
    def __next__(self):
        if not _sandbox_lines:
            raise StopIteration
        return self.readline()
class _sandbox_Out:
    def __init__(self, shown):
        self._sandbox_shown = shown
    def write(self, text):
        if self._sandbox_shown:
            _sandbox_print(text, end='')
        return _sandbox_len(text)
    def writelines(self, lines):
        self.write(''.join(lines))
    def flush(self):
        pass
class _sandbox_Sys:
    def __init__(self, real):
        self.stdin, self.stdout, self.stderr = _sandbox_In(False), _sandbox_Out(True), _sandbox_Out(False)
        self.stdin.buffer = _sandbox_In(True)
        self.exit, self.argv, self.maxsize, self.maxunicode = exit, real.argv, real.maxsize, real.maxunicode
        self.float_info, self.byteorder, self.version_info = real.float_info, real.byteorder, (3, 11, 0, 'final', 0)
    def setrecursionlimit(self, limit):
        pass
    def getrecursionlimit(self):
        return 1000
import sys as _sandbox_sys
_sandbox_sys = _sandbox_Sys(_sandbox_sys)
""",
    ),
    (
        {"file"},
        """
def print(*values, sep=' ', end='\\n', file=None, flush=False):
    if file is None:
        _sandbox_print(*values, sep=sep, end=end)
    else:
        file.write((' ' if sep is None else sep).join([_sandbox_str(value) for value in values]) + ('\\n' if end is None else end))
""",
    ),
    (
        {"round"},  # the sandbox rounds number * 10**ndigits: 30.415 becomes 30.42
        """
_sandbox_round = round
def round(number, ndigits=None):
    if ndigits is None:
        return _sandbox_round(number)
    if _sandbox_isinstance(number, _sandbox_float) and 0 <= ndigits < 300:
        return _sandbox_float(f'{number:.{ndigits}f}')
    return _sandbox_round(number, ndigits)
""",
    ),
    *(
        (
            {name},
            f"_sandbox_{name} = {name}\ndef {name}(*some, **named):\n    return _sandbox_iter(_sandbox_{name}(*some, **named))\n",
        )
        for name in LAZY
    ),
]


def prelude(words: Set[str]) -> str:
    """The kept functions, and the pieces that a program with these words needs. Their value is None."""
    kept = "".join(f"_sandbox_{name} = {name}\n" for name in _KEPT)
    return kept + "None\n" + "".join(source for users, source in _PIECES if words & users)


def inputs(stdin: str) -> dict[str, list[str]]:
    """The variables that the prelude reads: the lines of the input, each with its end, the last one first."""
    return {"_sandbox_lines": re.findall(r"[^\n]*\n|[^\n]+", stdin)[::-1]}
