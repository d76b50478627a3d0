"""Compare statements without numbers and names: a problem and its copies with other numbers are then equal."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from proofmill.decontamination.similarity import telling
from proofmill.text.statements import tokens

LEAST = 3  # distinctive words; a skeleton with fewer is a common template
_NUMBERS = frozenset(
    """
    zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen
    eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand million
    """.split()  # noqa: SIM905
)
# A capital letter after a small one, a comma or a number begins a name; one after a full stop may begin a sentence.
_NAME = re.compile(r"(?<=[a-z0-9,;] )[A-Z][a-z]+")


def skeleton(text: str) -> tuple[str, ...] | None:
    """Return the words and signs of a statement without numbers and names; None if too few distinctive words remain."""
    names = {name.lower() for name in _NAME.findall(text)}
    names |= {f"{name}s" for name in names}  # `Anna's`
    left = [
        token for token in tokens(text)
        if token.kind != "number" and token.text not in _NUMBERS and token.text not in names
    ]  # fmt: skip
    tells = len({token.text for token in left if telling(token)}) >= LEAST
    return tuple(token.text for token in left) if tells else None


class NumberFree:
    """Index of benchmark statements by skeleton."""

    def __init__(self, texts: Iterable[str]):
        self.holders: dict[tuple[str, ...] | None, list[int]] = defaultdict(list)
        for number, text in enumerate(texts):
            self.holders[skeleton(text)].append(number)
        self.holders.pop(None, None)

    def find(self, texts: Sequence[str]) -> Iterator[tuple[int, int, str, str, float]]:
        """Yield row, benchmark statement, method, the row's text, and similarity 1 for equal skeletons."""
        for row, text in enumerate(texts):
            for other in self.holders.get(skeleton(text), ()):
                yield row, other, "number-free", text, 1.0
