"""Notices about attempts that are truncated, empty, unparsable or without an answer, and how to fix them.

Such attempts have a grade of 0 or none, which a mean grade hides: a model whose responses are all truncated scores 0.00,
like one that solves nothing. If more than SHARE of the attempts are of one of these sorts, a sentence with their number
appears in the log, in the table's stamp (metadata), and next to the scores on the score page. An attempt counts once, for
the first sort that applies. A training also has a notice in its log and stamp: about rewards that never varied.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from proofmill.schema.reasons import Reason, StopReason

SHARE = 0.05  # of the attempts; a larger share has a notice
NEARLY = 0.9  # of `max-tokens`; responses truncated earlier met another limit
EMPTY = frozenset({Reason.EMPTY, Reason.REASONING_ONLY, Reason.NO_OUTPUT, Reason.NO_PROOF})


class Notices:
    """Count attempts by sort and report the frequent sorts.

    `max_tokens` is the limit of one response, None if no model was called. `reads` is the way a grader reads final answers.
    """

    def __init__(self, max_tokens: int | None = None, reads: str | None = None):
        self.max_tokens, self.reads = max_tokens, reads
        self._counts: Counter[str] = Counter()
        self._total = self._elsewhere = self._longest = 0

    def add(self, stop: str, reason: str, tokens: int | None = None, extraction: str | None = None) -> None:
        """Count an attempt, from its stop and grade reasons, its tokens, and the extraction of its final answer."""
        self._total += 1
        if stop == StopReason.LENGTH:
            self._counts["truncated"] += 1
            self._longest = max(self._longest, tokens or 0)
        elif reason in EMPTY:
            self._counts["empty"] += 1
        elif reason == Reason.NO_ANSWER:
            self._counts["without"] += 1
            self._elsewhere += extraction is not None
        elif reason == Reason.UNPARSABLE:
            self._counts["unparsable"] += 1

    def sentences(self) -> list[str]:
        """Return a sentence for each sort that exceeds SHARE."""
        texts = {
            "truncated": self._describe_truncated,
            "empty": self._empty,
            "without": self._without,
            "unparsable": self._unparsable,
        }
        return [
            f"{count:,} of {self._total:,} attempts ({count / self._total:.1%}) {texts[sort]()}"
            for sort, count in sorted(self._counts.items())
            if count > SHARE * self._total
        ]

    def _describe_truncated(self) -> str:
        if self.max_tokens is None:
            return "were truncated"
        if 0 < self._longest < NEARLY * self.max_tokens:
            return (
                f"were truncated after at most {self._longest:,} tokens, below `max-tokens` ({self.max_tokens:,}): raise the "
                "limit of the server"
            )
        return f"were truncated at {self.max_tokens:,} tokens: raise `max-tokens`"

    def _empty(self) -> str:
        if self.max_tokens is None:
            return "are empty, or have only a heading: see their texts"
        return (
            "are empty, or contain only reasoning: see the output of the server (`text`, `reasoning` of the responses), and "
            "set the texts that end its reasoning (`reasoning-end` of the model)"
        )

    def _without(self) -> str:
        if self.reads == "strict" and self._elsewhere:
            return (
                f"give no final answer in the declared form (a box, `####`), {self._elsewhere:,} of them a value elsewhere: "
                "request that form (`prompt: answer`), or read the last value (`grader: final-answer-flexible`)"
            )
        return "give no final answer, or no program, in any form: see their texts, and request one (`prompt`)"

    def _unparsable(self) -> str:
        return "give an answer that the verifier cannot parse: let a judge decide (`escalate-to` of a `grader/<name>`)"


def of_rewards(constant: Sequence[str], rewards: Sequence[str]) -> list[str]:
    """Return the notice about rewards that were constant within every group; empty if `constant` is."""
    which = "no reward" if len(constant) == len(rewards) else f"none of {', '.join(f'`{name}`' for name in constant)}"
    advice = "start from weights that solve some of the problems, choose problems that they solve in part, or fix the rewards"
    return [f"{which} varied within any group, so it gave no gradient: {advice}"] * bool(constant)


def of_attempts(attempts: Any) -> Iterator[str]:
    """Yield the sentences about graded attempts (rows as metrics get them), by token limit and answer reading."""
    notices: dict[tuple, Notices] = {}
    for row in attempts:
        key = row["max_tokens"], row["reads"]
        notices.setdefault(key, Notices(*key)).add(
            row["stop_reason"], row["reason"], row["response_tokens"], row["answer_extraction"]
        )
    for some in notices.values():
        yield from some.sentences()
