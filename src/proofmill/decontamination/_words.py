"""Find shared runs of words by open-r1's rule, for comparison: lower case, split at spaces, punctuation kept."""

from collections.abc import Iterator, Sequence
from itertools import groupby

import numpy as np

from proofmill.decontamination._hashes import Places, join_texts, powers_of, spans_of, sums

_IN_WORD = np.ones(256, bool)  # by byte
_IN_WORD[list(b" \t\n\v\f\r\x1c\x1d\x1e\x1f")] = False  # where str.split splits ASCII


class PlainWords:
    """Index of the runs of `words` words in benchmark statements, by open-r1's rule."""

    def __init__(self, texts: Sequence[str], words: int):
        self.words = words
        self.words_B = [text.lower().split() for text in texts]
        keys, self.text_K, self.place_K = self._keys(texts)
        self.keys = Places(keys, np.arange(len(keys)))

    def _keys(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return hash, text and first word of each run of `words` words, in three arrays over the runs."""
        data_C, starts_T = join_texts(
            (text.lower() if text.isascii() else " ".join(text.lower().split())).encode() for text in texts
        )
        inside = _IN_WORD.take(data_C)
        edges = np.flatnonzero(inside[1:] != inside[:-1]) + 1
        start_U, end_U = edges[::2], edges[1::2]
        hashes_U = spans_of(data_C, start_U, end_U)
        powers, inverses = powers_of(len(hashes_U))
        sums_U = sums(hashes_U, powers[: len(hashes_U)])
        first_T = np.searchsorted(start_U, starts_T)
        text_U = np.repeat(np.arange(len(texts)), np.diff(first_T))
        last = self.words - 1
        start = np.flatnonzero(text_U[: max(len(text_U) - last, 0)] == text_U[last:])
        return (
            (sums_U[start + self.words] - sums_U[start]) * inverses[start],
            text_U[start],
            start - first_T[text_U[start]],
        )

    def find(self, texts: Sequence[str]) -> Iterator[tuple[int, int, str, str, float]]:
        """Yield row, benchmark statement, method, longest common run, and its share of the statement's words."""
        keys, text_K, place_K = self._keys(texts)
        run, other_run = self.keys.find(keys)
        hits = np.stack((text_K[run], self.text_K[other_run], place_K[run], self.place_K[other_run]), axis=1)
        offset_P = hits[:, 2] - hits[:, 3]
        hits = hits[np.lexsort((hits[:, 2], offset_P, hits[:, 1], hits[:, 0]))]
        ends = np.flatnonzero((np.diff(hits, axis=0, append=-1) != (0, 0, 1, 1)).any(axis=1)) + 1
        starts = np.append(0, ends)[: len(ends)]
        runs = np.column_stack((hits[starts], ends - starts + self.words - 1)).tolist()
        for row, in_row in groupby(runs, key=lambda run: run[0]):
            lower, written = texts[row].lower().split(), texts[row].split()
            for other, same in groupby(in_row, key=lambda run: run[1]):
                theirs = self.words_B[other]
                for _, _, start, there, size in sorted(same, key=lambda run: (-run[4], run[2])):
                    if lower[start : start + size] == theirs[there : there + size]:
                        yield row, other, "plain-ngram", " ".join(written[start : start + size]), size / len(theirs)
                        break
