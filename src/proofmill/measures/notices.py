"""Sentences about attempts that were not wrong, but cut off, empty, unreadable or without an answer, and what to change.

Such attempts have 0 marks, or none, and a mean of marks does not say so: a model whose every answer is cut off scores 0.00
like one that knows nothing. Where more than SHARE of the attempts are of one of these sorts, a sentence with their number goes
into the log, into the table's stamp, and beside the marks on the page of `scores`. An attempt counts once, for what came first.
A training has a notice, too, in its log and stamp: about rewards that never varied, from which nothing is learned.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from proofmill.schema.reasons import Reason, Stop

SHARE = 0.05  # of the attempts, from which on it is said
NEARLY = 0.9  # of `max-tokens`: what was cut off before that was not cut off by it
EMPTY = frozenset({Reason.EMPTY, Reason.UNANSWERED, Reason.SILENT, Reason.NO_PROOF})


class Notices:
    """Counts attempts as they pass, and says what is to be noticed about them.

    `max_tokens` is what one answer was allowed, None where nobody was asked; `reads` is how a grader reads final answers.
    """

    def __init__(self, max_tokens: int | None = None, reads: str | None = None):
        self.max_tokens, self.reads = max_tokens, reads
        self._counts: Counter[str] = Counter()
        self._total = self._elsewhere = self._longest = 0

    def add(self, stop: str, reason: str, tokens: int | None = None, found: str | None = None) -> None:
        """Count an attempt: why it stopped, why it has no marks, its tokens, and how its final answer is found."""
        self._total += 1
        if stop == Stop.LENGTH:
            self._counts["cut off"] += 1
            self._longest = max(self._longest, tokens or 0)
        elif reason in EMPTY:
            self._counts["empty"] += 1
        elif reason == Reason.NO_ANSWER:
            self._counts["without"] += 1
            self._elsewhere += found is not None
        elif reason == Reason.UNPARSABLE:
            self._counts["unreadable"] += 1

    def sentences(self) -> list[str]:
        """A sentence for each sort that is more than a small share."""
        said = {
            "cut off": self._cut_off,
            "empty": self._empty,
            "without": self._without,
            "unreadable": self._unreadable,
        }
        return [
            f"{count:,} of {self._total:,} attempts ({count / self._total:.1%}) {said[sort]()}"
            for sort, count in sorted(self._counts.items())
            if count > SHARE * self._total
        ]

    def _cut_off(self) -> str:
        if self.max_tokens is None:
            return "were cut off before their end"
        if 0 < self._longest < NEARLY * self.max_tokens:
            return (
                f"were cut off after {self._longest:,} tokens at most, and `max-tokens` is {self.max_tokens:,}: raise the "
                "limit of the server"
            )
        return f"were cut off at {self.max_tokens:,} tokens: raise `max-tokens`"

    def _empty(self) -> str:
        if self.max_tokens is None:
            return "are empty, or have nothing but a heading: see their texts"
        return (
            "are empty, or nothing stands in them besides reasoning: see what the server sent (`text`, `reasoning` of the "
            "responses), and name the marks that end its reasoning (`delimiters` of the model)"
        )

    def _without(self) -> str:
        if self.reads == "strict" and self._elsewhere:
            return (
                f"give no final answer in the form that is read (a box, `####`), and {self._elsewhere:,} of them a value "
                "elsewhere: ask for that form (`prompt: answer`), or read the last value (`grader: final-answer-flexible`)"
            )
        return "give no final answer, or no program, in any form: see their texts, and ask for it (`prompt`)"

    def _unreadable(self) -> str:
        return "give an answer that the verifier cannot read: let a judge decide (`escalate-to` of a `grader/<name>`)"


def of_rewards(constant: Sequence[str], rewards: Sequence[str]) -> list[str]:
    """Return the notice about the rewards of a training that were constant within every group, if there are any."""
    which = "no reward" if len(constant) == len(rewards) else f"none of {', '.join(f'`{name}`' for name in constant)}"
    advice = "start from weights that solve some of the problems, choose problems of which they do, or fix the rewards"
    return [f"{which} varied within any group, so the training learned nothing from it: {advice}"] * bool(constant)


def of_attempts(attempts: Any) -> Iterator[str]:
    """The sentences about graded attempts (rows as measures get them), with the limit and the reading of each row."""
    notices: dict[tuple, Notices] = {}
    for row in attempts:
        key = row["max_tokens"], row["reads"]
        notices.setdefault(key, Notices(*key)).add(
            row["stop"], row["reason"], row["response_tokens"], row["answer_found"]
        )
    for some in notices.values():
        yield from some.sentences()
