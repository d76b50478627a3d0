"""Decide whether a statement asks for a proof or for an answer, and build multiple-choice problems."""

import re
from collections.abc import Sequence
from string import ascii_uppercase

from proofmill.schema.ids import digest

ASKS_PROOF = re.compile(
    r"\b(prove|proves|proof|show|shows that|demonstrate|verify that|justify|establish|deduce|"
    r"disprove)\b(?!\s+your\s+work)",
    re.IGNORECASE,
)
_NO_PROOF = re.compile(
    r"\b(shown|as shown|shows (?:a|an|the)|show(?:s)? (?:how many|your|the (?:first|last)))\b", re.IGNORECASE
)
# The first class holds all characters that a match can begin with. This makes the search several times faster.
END_OF_PROOF = re.compile(
    r"[\\QqWwAa∎■□◼](?:(?<=[∎■□◼])|(?<=\\)(?i:blacksquare|square|Box\b|qed\b|qedsymbol)|"
    r"(?<=\b[Qq])(?i:\.?\s?E\.?\s?D\b)|(?<=\b[Aa])(?i:s desired\b\W*$)|"
    r"(?<=\b[Ww])(?i:\.?w\.?w\.?w?\.?$|e(?:'re| are) done\b\W*$))",
    re.MULTILINE,
)
BOX = re.compile(r"\\boxed\b|\\fbox\b")


def asks(statement: str | None, solution: str | None = None, end_of_proof: bool = False) -> str:
    """Return `proof` or `answer`.

    A statement asks for a proof if it contains prove, show, demonstrate, verify that, justify, establish or deduce; but
    not for "as shown" or "show your work". Any other statement ("Find all n such that ...") counts as asking for a
    proof if the source says so (`end_of_proof`) or its solution has an end-of-proof symbol (\\blacksquare, \\qed,
    Q.E.D.).
    """
    explicit = bool(ASKS_PROOF.search(_NO_PROOF.sub(" ", statement or "")))
    hinted = end_of_proof or bool(END_OF_PROOF.search(solution or ""))
    return "proof" if explicit or hinted else "answer"


def build_choice(statement: str, options: Sequence[str], seed: int, id: str | None) -> tuple[str, str | None]:
    """Return a statement with lettered options, and the letter of the first one; None if no letter is correct.

    Wrong options that are empty are left out. No letter is correct if the first option is empty, alone, or equal to
    another one. The order is drawn from the seed and the problem's id, or its statement without one.
    """
    places = [place for place, option in enumerate(options) if option or not place]
    order = sorted(places, key=lambda place: digest("choices", seed, id or statement, place))
    lines = "\n".join(f"{letter}. {options[place]}" for letter, place in zip(ascii_uppercase, order, strict=False))
    asked = f"{statement.strip()}\n\n{lines}\n\nAnswer with the letter of the correct option."
    is_clear = options[0] and len(places) > 1 and options[0] not in options[1:]
    return asked, ascii_uppercase[order.index(0)] if is_clear else None
