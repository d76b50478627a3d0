"""Compact sets and maps of texts, in memory that depends on their number and not on their length.

Difference from a set of texts: a text counts as seen if one with the same 64-bit digest was. Among a million texts, two
share a digest with a chance of 3 in 100 million; the ids of rows are such digests too (schema/ids.py).
"""

from array import array
from collections.abc import Iterable
from hashlib import blake2b

_FEWEST = 1 << 10  # slots


def hash64(text: str) -> int:
    """Return a digest of a text as a 64-bit number."""
    return int.from_bytes(blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest(), "little")


class Seen:
    """Numbers of distinct texts: 0, 1, ... in the order of first occurrence. Takes 14 to 20 bytes per text.

    As in Python's dictionaries, a table of slots holds numbers, and an array the digests by number.
    """

    def __init__(self) -> None:
        self._digests = array("Q")
        self._slots = array("I", bytes(4 * _FEWEST))  # 0, or 1 + the number of a text

    def __len__(self) -> int:
        return len(self._digests)

    def add(self, text: str) -> int:
        """Return the number of a text, adding it if necessary. It is new if the number equals the previous length."""
        digest = hash64(text)
        slot = self._slot(digest)
        if not self._slots[slot]:
            self._digests.append(digest)
            self._slots[slot] = len(self._digests)
            if 3 * len(self._digests) > 2 * len(self._slots):
                self._widen()
                return len(self._digests) - 1
        return self._slots[slot] - 1

    def is_new(self, text: str) -> bool:
        """Add a text and return whether it was new."""
        before = len(self)
        return self.add(text) == before

    def find(self, text: str) -> int | None:
        """Return the number of a text that was added; None for others."""
        number = self._slots[self._slot(hash64(text))]
        return number - 1 if number else None

    def _slot(self, digest: int) -> int:
        """Return the slot of a digest, or the free slot for it."""
        slots, digests, mask = self._slots, self._digests, len(self._slots) - 1
        slot = digest & mask
        while (number := slots[slot]) and digests[number - 1] != digest:
            slot = (slot + 1) & mask
        return slot

    def _widen(self) -> None:
        self._slots = array("I", bytes(8 * len(self._slots)))
        for number, digest in enumerate(self._digests, 1):
            self._slots[self._slot(digest)] = number


class Values:
    """A map from texts, such as ids, to numbers, with 22 to 28 bytes for each."""

    def __init__(self, pairs: Iterable[tuple[str, float]] = ()):
        self._seen, self._values = Seen(), array("d")
        for text, value in pairs:
            if self._seen.is_new(text):
                self._values.append(value)

    def get(self, text: str) -> float | None:
        number = self._seen.find(text)
        return None if number is None else self._values[number]


class Texts:
    """A list of short texts, such as ids, with an overhead of 8 bytes each."""

    def __init__(self) -> None:
        self._letters = bytearray()
        self._ends = array("Q", [0])

    def __len__(self) -> int:
        return len(self._ends) - 1

    def append(self, text: str) -> None:
        self._letters += text.encode(errors="surrogatepass")
        self._ends.append(len(self._letters))

    def __getitem__(self, number: int) -> str:
        return self._letters[self._ends[number] : self._ends[number + 1]].decode(errors="surrogatepass")
