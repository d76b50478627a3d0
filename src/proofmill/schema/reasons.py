"""Define the values of the columns `stop_reason` and `reason`, with their meaning and whether a retry may help."""

from enum import StrEnum


class StopReason(StrEnum):
    """Why the generation of a text stopped."""

    meaning: str

    def __new__(cls, value: str, meaning: str = "") -> "StopReason":  # a default for the lookup `StopReason(value)`
        member = str.__new__(cls, value)
        member._value_, member.meaning = value, meaning
        return member

    END = "end", "The model ended the text."
    LENGTH = "length", "The text was truncated at the token limit."
    LOOP = "loop", "Generation was stopped because the text repeated itself."
    ERROR = (
        "error",
        "There is no text; `reason` says why. An unfinished stage repeats the call when it is rerun; for a finished table, use `proofmill invalidate`.",
    )


class Reason(StrEnum):
    """`ok`, or why there is no response, grade, label or scheme. With `empty` and `no-answer`, the grade is 0.

    The column *retry* tells if another call may help:

    - `later`: the failure may be temporary. The table is not archived. `proofmill invalidate` drops the calls, and
      the next run repeats them.
    - `now`: the output could not be parsed. The same stage retries it, up to `parse-retries` times.
    - `no`: a retry does not help.
    """

    meaning: str
    again: str

    def __new__(
        cls, value: str, meaning: str = "", again: str = "no"
    ) -> "Reason":  # defaults for the lookup `Reason(value)`
        member = str.__new__(cls, value)
        member._value_, member.meaning, member.again = value, meaning, again
        return member

    OK = "ok", "No problem occurred."
    # The call failed.
    ERROR = "error", "The call failed.", "later"
    PROVIDER = "provider", "The server failed, or its reply could not be parsed.", "later"
    RATE_LIMIT = "rate-limit", "The server reported a rate limit or overload.", "later"
    TIMEOUT = "timeout", "The server did not reply in time.", "later"
    INVALIDATED = (
        "invalidated",
        "The call was invalidated with `proofmill invalidate`. The next run repeats it.",
        "later",
    )
    REFUSED = "refused", "The server or the model refused the request."
    TOO_LONG = "too-long", "The prompt and `max-tokens` together exceed the model's context."
    # The response has no text to grade.
    NO_OUTPUT = "no-output", "The server sent no output, not even reasoning."
    NO_PROOF = "no-proof", "The response has no text, or only a heading."
    REASONING_ONLY = "reasoning-only", "The response has only reasoning. The server may have removed the rest."
    EMPTY = "empty", "The response was truncated before an answer, or is empty. The grade is 0."
    NO_ANSWER = "no-answer", "The response has no final answer or no program. The grade is 0."
    # The judge gave no verdict.
    NO_VERDICT = "no-verdict", "The judge's output has no verdict that can be parsed.", "now"
    OFF_SCALE = "off-scale", "The judge's grade or label is not on the declared scale.", "now"
    NO_QUORUM = "no-quorum", "Fewer judges than `quorum` gave a grade."
    NOT_NORMALIZED = "not-normalized", "The normalizer did not rewrite the proof."
    # The grader lacks a field.
    NO_STATEMENT = "no-statement", "The problem has no statement."
    NO_SCHEME = "no-scheme", "The problem has no grading scheme."
    NO_REFERENCE = "no-reference", "The problem has no reference solution."
    NO_GOLD = (
        "no-gold",
        "The problem has no reference answer and no tests, they cannot be parsed, or its checker rejects its own expected output.",
    )
    NO_GUIDELINES = "no-guidelines", "Neither the problem nor the table of schemes has grading guidelines."
    NO_GRADE = "no-grade", "No human grade was given."
    # The program cannot decide.
    UNPARSABLE = (
        "unparsable",
        "The verifier cannot parse the answer, or cannot compare it with the reference answer; or a problem's checker does not decide. As a reward, 0.",
    )
    # The rollout was not graded.
    NOT_ASKED = "not-asked", "The problem has no correct answer, so no grader was called."
    NOT_GRADED = "not-graded", "The table of grades has no row for this rollout (`proofmill replay`)."


# Failures that may be temporary. A table with such rows is not archived, so that a rebuild repeats the calls.
TRANSIENT = frozenset(reason for reason in Reason if reason.again == "later")
# The judge's output could not be parsed; a retry may help.
UNPARSED = frozenset(reason for reason in Reason if reason.again == "now")
# The program could not decide. In a benchmark the row is unscored; as a reward it is 0.
UNDECIDED = frozenset({Reason.UNPARSABLE})
# The reason if a field that a prompt needs has no value.
ABSENT = {
    "statement": Reason.NO_STATEMENT,
    "scheme": Reason.NO_SCHEME,
    "reference": Reason.NO_REFERENCE,
    "answer": Reason.NO_GOLD,
    "proof": Reason.NO_PROOF,
}
