"""Split a formula in LaTeX at its top level: outside all brackets, or inside an enclosing pair of brackets."""

import re
from collections.abc import Collection
from functools import lru_cache
from typing import NamedTuple

_OPEN = frozenset(("(", "[", "{", "\\{", "\\lbrace", "\\lfloor", "\\lceil", "\\langle", "\\begin"))
_SHUT = frozenset((")", "]", "}", "\\}", "\\rbrace", "\\rfloor", "\\rceil", "\\rangle", "\\end"))
_TOKEN = re.compile(r"\\[A-Za-z]+|\\.|.", re.DOTALL)
_ROUND = {"(": "(", "[": "[", "\\{": "{", "\\langle": "(", ")": ")", "]": "]", "\\}": "}", "\\rangle": ")"}


class Piece(NamedTuple):
    sign: str  # a command or a character
    depth: int  # number of enclosing brackets; a bracket does not count itself
    start: int


@lru_cache(maxsize=1024)
def pieces(text: str) -> tuple[Piece, ...]:
    """Return all signs of a text. Any bracket closes any other, since `[0,1)` is an interval."""
    signs, depth = [], 0
    for token in _TOKEN.finditer(text):
        sign = token[0]
        depth -= sign in _SHUT
        signs.append(Piece(sign, depth, token.start()))
        depth += sign in _OPEN
    return tuple(signs)


def is_closed(text: str) -> bool:
    """Return whether every bracket of a text is closed, and none before it is opened."""
    signs = pieces(text)
    return not signs or (all(p.depth >= 0 for p in signs) and signs[-1].depth + (signs[-1].sign in _OPEN) == 0)


def split(text: str, signs: Collection[str]) -> list[tuple[str, str]]:
    """Split a text at these signs outside all brackets; return (preceding sign, part), with "" for the first sign."""
    parts, begin, before = [], 0, ""
    for piece in pieces(text):
        if piece.depth == 0 and piece.sign in signs:
            parts.append((before, text[begin : piece.start].strip()))
            begin, before = piece.start + len(piece.sign), piece.sign
    return [*parts, (before, text[begin:].strip())]


def enclosing_pair(text: str) -> tuple[str, str, str] | None:
    """Return (left bracket, content, right bracket) of a pair that encloses the full text; None without such a pair.

    Each bracket is one character. The French notation of intervals, `]0,1[`, gives round ones.
    """
    signs = pieces(text)
    if len(signs) < 3:
        return None
    first, last = signs[0], signs[-1]
    inside = text[len(first.sign) : last.start].strip()
    if (first.sign == "]" or last.sign == "[") and first.sign in "[]" and last.sign in "[]":
        return "(" if first.sign == "]" else "[", inside, ")" if last.sign == "[" else "]"
    if first.sign not in _ROUND or first.sign in _SHUT or last.sign not in _ROUND or last.sign in _OPEN:
        return None
    shut = next((piece for piece in signs[1:] if piece.depth == 0), None)
    return (_ROUND[first.sign], inside, _ROUND[last.sign]) if shut is last else None
