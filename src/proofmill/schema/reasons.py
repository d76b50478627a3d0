"""Every `stop` and every `reason`: what it means, and whether asking again may help. Columns of these names refuse others."""

from enum import StrEnum


class Stop(StrEnum):
    """Why a text ended."""

    meaning: str

    def __new__(cls, value: str, meaning: str) -> "Stop":
        member = str.__new__(cls, value)
        member._value_, member.meaning = value, meaning
        return member

    END = "end", "The writer ended the text itself."
    LENGTH = "length", "The text was cut off at its limit of tokens."
    LOOP = "loop", "The text was cut off because it repeated itself."
    ERROR = "error", "No text came; the reason says why. `proofmill ask-again` asks again."


class Reason(StrEnum):
    """`ok`, or why there is no answer, no grade, no label or no scheme; with `empty` and `no-answer` the grade is 0.

    `again` says whether asking again may help: `later` (the failure may pass; a table that has one is not kept, and
    `proofmill ask-again` asks again), `now` (the answer could not be read; the same stage asks again as often as
    `requeries` allows) or `no`.
    """

    meaning: str
    again: str

    def __new__(cls, value: str, meaning: str = "", again: str = "no") -> "Reason":  # `Reason(value)` finds a member
        member = str.__new__(cls, value)
        member._value_, member.meaning, member.again = value, meaning, again
        return member

    OK = "ok", "All went well."
    # A call that was not answered.
    ERROR = "error", "The call failed.", "later"
    PROVIDER = "provider", "The server failed, or its reply could not be read.", "later"
    RATE_LIMIT = "rate-limit", "The server was too busy.", "later"
    TIMEOUT = "timeout", "The server did not answer in time.", "later"
    SET_ASIDE = "set-aside", "Its answer was set aside (`proofmill ask-again`), and is not yet asked again.", "later"
    REFUSED = "refused", "The server or the model refused to answer."
    TOO_LONG = "too-long", "The prompt and the answer do not fit the model's context."
    # A response that holds nothing to grade.
    SILENT = "silent", "The server said nothing at all, not even reasoning."
    NO_PROOF = "no-proof", "There is nothing but a heading, or no text."
    UNANSWERED = (
        "unanswered",
        "The writer ended, and nothing stands outside the reasoning: perhaps a server cut it there.",
    )
    EMPTY = "empty", "The writer was cut off before an answer, or wrote nothing: 0 marks."
    NO_ANSWER = "no-answer", "The text gives no final answer, or no program: 0 marks."
    # A judge's answer that is no verdict.
    NO_VERDICT = "no-verdict", "The judge's answer holds no verdict that can be read.", "now"
    OFF_SCALE = "off-scale", "The judge's mark or label is not one of those it was offered.", "now"
    NO_QUORUM = "no-quorum", "Fewer judges than the `quorum` gave a mark."
    NOT_NORMALIZED = "not-normalized", "The normalizer did not write the proof again."
    # What a grader needs and has not.
    NO_STATEMENT = "no-statement", "The problem has no statement."
    NO_SCHEME = "no-scheme", "The problem has no marking scheme."
    NO_REFERENCE = "no-reference", "The problem has no official solution."
    NO_GOLD = "no-gold", "The problem has no right answer or tests to compare with, or they cannot be read."
    NO_GUIDELINES = (
        "no-guidelines",
        "The problem came without guidelines for marking, or the table of schemes has none for it.",
    )
    NO_MARK = "no-mark", "No human gave a mark."
    # A program that cannot decide.
    UNPARSABLE = "unparsable", "The verifier cannot read the answer, or compare it with the right one; as a reward 0."
    # A rollout without a verdict.
    NOT_ASKED = "not-asked", "The problem has no right answer, so no grader was asked."
    NOT_GRADED = "not-graded", "The table of grades has no row for this rollout (`proofmill replay`)."


# Failures that may pass: a table that has some is not kept, so that asking for it again asks them again.
PASSING = frozenset(reason for reason in Reason if reason.again == "later")
# The judge answered, and a further question may help.
UNREAD = frozenset(reason for reason in Reason if reason.again == "now")
# A program could not decide about what was written. A benchmark leaves it unscored; as a reward it is 0.
UNDECIDED = frozenset({Reason.UNPARSABLE})
# Why nothing can be graded when a field that a prompt needs has no value.
ABSENT = {
    "statement": Reason.NO_STATEMENT,
    "scheme": Reason.NO_SCHEME,
    "reference": Reason.NO_REFERENCE,
    "answer": Reason.NO_GOLD,
    "proof": Reason.NO_PROOF,
}
