"""Read evaluation logs of inspect_ai, one file or a folder: problems, and attempts with their grades.

A sample is a problem, each of its epochs an attempt, its scores are grades. Logs of one task share their problems.

From: `EvalSample` in inspect_ai/log/_log.py, `ModelOutput` in model/_model_output.py and `value_to_float` in
scorer/_metric.py (github.com/UKGovernmentBEIS/inspect_ai, 2026).

Differences from inspect_ai:
1. A value that is not a grade, such as a text or an object, is ignored. inspect_ai counts it as 0, with a warning.
2. If several scorers graded a sample, one is read, the same in all of a log, and the job's log reports it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from proofmill.public_data.locations import local_path
from proofmill.runtime.progress import log
from proofmill.schema.entries.problem_entries import Problems
from proofmill.schema.errors import TableError, list_names, shorten
from proofmill.schema.fields import require
from proofmill.schema.reasons import Reason, StopReason
from proofmill.sources import file_formats, files, inspect_files, record_fields
from proofmill.sources.file_formats import Record
from proofmill.sources.graded_proofs import GradedProof, Row, distinct_problems
from proofmill.sources.record_fields import records, text, word, words

READ = {"statement": text, "solution": text, "answer": word, "guidelines": text, "level": word}


def problems(entry: Problems) -> Iterator[Row]:
    """Yield each problem of the logs once; raises TableError if its statements differ."""
    return distinct_problems((where, _problem(where, sample, entry.columns)) for where, sample in _samples(entry))


def attempts(entry: Problems) -> Iterator[tuple[str, GradedProof]]:
    """Yield (problem, attempt) for all samples; log at the end which grades were read, and which were not."""
    grades = _Grades(entry.columns.get("given_grade"), entry.columns.get("max_points", "1"))
    for where, sample in _samples(entry):
        yield _id(where, sample), read_attempt(where, sample, *grades.of(where, sample))
    if sentence := grades.sentence():
        log(entry.source, sentence)


def _samples(entry: Problems) -> Iterator[Record]:
    """Yield the samples, each with the `eval` of its log."""
    if unknown := [column for column in entry.columns if column not in (*READ, "given_grade", "max_points")]:
        raise TableError(
            f"columns: `{unknown[0]}` is not a column that `{entry.source}` reads; expected some of {', '.join(READ)}, given_grade, max_points."
        )
    rows = files.read(local_path(require(entry.path)), readers=inspect_files.READERS, but=inspect_files.OTHER_FILES)
    for number, row in enumerate(files.select(rows, entry)):
        if entry.rows is not None and number >= entry.rows:
            return
        yield row


# ------------------------------------------------------------------------------------------------------------- a problem


def _id(where: str, sample: Mapping[str, Any]) -> str:
    """Return task and sample id: ids of different tasks are often 1, 2, ..."""
    if not (id := word(where, sample, "id")):
        raise TableError(f"{where}: `id` is {shorten(id)}; expected the sample's id. Fix or remove the sample.")
    return f"{sample['eval']['task'].rpartition('/')[2]}-{id}"


def _problem(where: str, sample: Mapping[str, Any], columns: Mapping[str, str]) -> Row:
    """Build the problem. Without `columns` the input is the statement, the target the answer; any of several is correct."""
    own = {ours: READ[ours](where, sample, theirs) for ours, theirs in columns.items() if ours in READ}
    targets = [] if {"answer", "solution", "guidelines"} & set(own) else _targets(where, sample)
    row = {
        "problem": _id(where, sample),
        "statement": read_statement(where, sample) if "statement" not in own else None,
        "answer": targets[0] if targets else None,
        "guidelines": f"Any of these is right: {'; '.join(targets)}" if len(targets) > 1 else None,
        "origin": where,
        **own,
    }
    row["question_type"] = "answer" if row["answer"] else "proof"
    file_formats.check_texts(where, row)
    return row


def _targets(where: str, sample: Mapping[str, Any]) -> list[str]:
    return [target for target in words(where, sample, "target") if target.strip()] if "target" in sample else []


def read_statement(where: str, sample: Mapping[str, Any]) -> str:
    """Return the user's text with the choices; other conversations have the roles. System messages are dropped."""
    asked = record_fields.field(where, sample, "input")
    if isinstance(asked, str):
        parts = [asked]
    else:
        talk = [m for m in records(where, sample, "input") if m.get("role") != "system"]
        apart = any(message.get("role") != "user" for message in talk)
        parts = [(f"{m.get('role')}: " if apart else "") + _content(where, sample, m)[0] for m in talk]
    choices = words(where, sample, "choices") if "choices" in sample else []
    parts += (
        ["\n".join(f"{chr(ord('A') + number)}) {choice}" for number, choice in enumerate(choices))] if choices else []
    )
    return "\n\n".join(parts)


def _content(where: str, sample: Mapping[str, Any], message: Mapping[str, Any]) -> tuple[str, str | None]:
    """Return the text of a message, and its reasoning if separate; other parts appear by kind, in brackets."""
    reasoning = [thought] if isinstance(thought := message.get("reasoning"), str) else []  # of the first versions
    content = message.get("content")
    if isinstance(content, str) or content is None:
        return _attachment(sample, content or ""), reasoning[0] if reasoning else None
    parts = []
    for part in records(where, message, "content"):
        kind = part.get("type")
        if kind == "reasoning":
            thought = part.get("summary") if part.get("redacted") else part.get("reasoning")
            reasoning.append(_attachment(sample, thought) if isinstance(thought, str) else "")
        elif kind == "text":
            parts.append(_attachment(sample, text(where, part, "text") or ""))
        elif kind in ("image", "audio", "video", "document", "data"):
            parts.append(f"[{kind}]")
    return "\n".join(parts), "\n\n".join(filter(None, reasoning)) if reasoning else None


def _attachment(sample: Mapping[str, Any], text: str) -> str:
    """Return a text, or the attachment of the sample that it refers to."""
    attachments = sample.get("attachments")
    content = attachments.get(text.removeprefix("attachment://")) if isinstance(attachments, Mapping) else None
    return content if text.startswith("attachment://") and isinstance(content, str) else text


# ------------------------------------------------------------------------------------------------------------ an attempt


def read_attempt(where: str, sample: Mapping[str, Any], grade: float | None, max_points: int | None) -> GradedProof:
    """Build the attempt of a sample, with this grade."""
    output = _object(where, sample, "output")
    choice = next(iter(records(where, output, "choices")), {}) if "choices" in output else {}
    content, reasoning = _content(where, sample, _object(where, choice, "message"))
    answer = (text(where, output, "completion") if "completion" in output else None) or content
    file_formats.check_texts(where, {"completion": answer, "reasoning": reasoning})
    stop, reason = _stop(sample, choice.get("stop_reason"), answer, reasoning)
    usage = _usage(where, sample, output)
    read = [_count(usage, f"input_tokens{cached}") for cached in ("", "_cache_read", "_cache_write")]
    return GradedProof(
        answer,
        sample["eval"].get("model") if isinstance(sample["eval"].get("model"), str) else None,
        grade,
        max_points,
        tokens=_count(usage, "output_tokens"),
        reasoning=reasoning,
        stop_reason=stop,
        reason=reason,
        prompt_tokens=None if read[0] is None else sum(filter(None, read)),
        reasoning_tokens=_count(usage, "reasoning_tokens"),
    )


def _stop(sample: Mapping[str, Any], why: Any, answer: str, reasoning: str | None) -> tuple[StopReason, Reason | None]:
    """Return the stop reason, and without an answer the reason why there is nothing to grade."""
    limit = sample.get("limit")
    tokens = isinstance(limit, Mapping) and limit.get("type") in ("token", "context")
    cut = tokens or why in ("max_tokens", "model_length", "length") or (bool(limit) and not answer.strip())
    if cut or answer.strip():
        return StopReason.LENGTH if cut else StopReason.END, None
    if why == "content_filter":
        return StopReason.END, Reason.REFUSED
    if sample.get("error"):
        return StopReason.ERROR, Reason.NO_OUTPUT
    return StopReason.END, Reason.REASONING_ONLY if reasoning else Reason.NO_OUTPUT


def _usage(where: str, sample: Mapping[str, Any], output: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the usage of the single output; of a model with several outputs, its total in the sample."""
    outputs = records(where, sample, "messages") if "messages" in sample else []
    outputs = [m for m in outputs if m.get("role") == "assistant" and m.get("source") != "input"]
    usages = _object(where, sample, "model_usage")
    total = usages.get(str(sample["eval"].get("model")))
    return total if len(outputs) > 1 and isinstance(total, Mapping) else _object(where, output, "usage")


def _count(usage: Mapping[str, Any], name: str) -> int | None:
    value = usage.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _object(where: str, record: Mapping[str, Any], column: str) -> Mapping[str, Any]:
    """Return an object; an empty one if missing."""
    value = record.get(column)
    if value is not None and not isinstance(value, Mapping):
        raise TableError(
            f"{where}: `{column}` is a {record_fields.kind_of(value)} ({shorten(value)}); expected an object."
        )
    return value or {}


# ---------------------------------------------------------------------------------------------------------------- grades

LETTERS = {"c": 1.0, "p": 0.5, "i": 0.0, "n": 0.0, "yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}


def _scores(where: str, sample: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the scores by scorer."""
    return {"score": sample["score"]} if sample.get("score") else _object(where, sample, "scores")


def read_values(where: str, sample: Mapping[str, Any]) -> dict[str, Any]:
    """Return the value of each scorer; of a scorer with an object of values, each as `scorer.key`."""
    values: dict[str, Any] = {}
    for scorer, score in _scores(where, sample).items():
        value = score.get("value") if isinstance(score, Mapping) else None
        parts = value if isinstance(value, Mapping) else {"": value}
        values |= {f"{scorer}.{key}".rstrip("."): part for key, part in parts.items()}
    return values


@dataclass
class _Grades:
    """Reads the grades of one scorer, and counts the scorers and values that occur.

    `scorer` may name a key of an object of values, `grader.rigour`. Without it the first scorer of a log is read. `max_points`
    is a whole number, or the column of a sample with that number.
    """

    scorer: str | None
    max_points: str
    first: dict[str, str] = field(default_factory=dict)  # of each log
    met: set[str] = field(default_factory=set)
    among: set[str] = field(default_factory=set)  # that graded the same sample
    several: int = 0
    unread: list[str] = field(default_factory=list)

    def of(self, where: str, sample: Mapping[str, Any]) -> tuple[float | None, int | None]:
        """Return the grade and its maximum; (None, None) without. Raises TableError if a named scorer's value is invalid."""
        scores = _scores(where, sample)
        self.met.update(scores)
        if len(scores) > 1:
            self.several += 1
            self.among.update(scores)
        scorer = self.scorer or self.first.setdefault(where.rpartition("#samples/")[0], next(iter(scores), ""))
        if not scorer and scores:
            scorer = self.first[where.rpartition("#samples/")[0]] = next(iter(scores))
        value = _value(scores, scorer)
        if value is None or value == "NaN":
            return None, None
        max_points = self._full(where, sample)
        if (grade := _number(value, max_points)) is not None:
            return grade, max_points
        if self.scorer:
            raise TableError(
                f"{where}: `{scorer}` scored {shorten(value)}; expected a grade from 0 to {max_points}, or C, P, I, N. Set another "
                "scorer in `columns` (`given_grade`), or its maximum (`max_points`)."
            )
        self.unread.append(f"{scorer} {shorten(value)}")
        return None, None

    def _full(self, where: str, sample: Mapping[str, Any]) -> int:
        written = self.max_points if self.max_points.isdecimal() else (word(where, sample, self.max_points) or "")
        if not written.isdecimal() or not 0 < int(written) <= file_formats.FIELD_LIMIT:
            raise TableError(
                f"{where}: `max_points` is {shorten(written)}; expected a whole number of at least 1, or its column."
            )
        return int(written)

    def sentence(self) -> str | None:
        """Return the log line about the grades. Raises TableError if the named scorer graded nothing."""
        names = list_names(sorted(self.met))
        if self.scorer and self.met and not {self.scorer, self.scorer.rpartition(".")[0]} & self.met:
            raise TableError(
                f"columns: no sample has a score of `{self.scorer}`; expected one of {names}. Fix `given_grade`."
            )
        texts = []
        if self.several and not self.scorer:
            taken = list_names(sorted(self.among & set(self.first.values())))
            texts.append(
                f"samples with several scorers ({list_names(sorted(self.among))}): {self.several:,}; read: {taken}"
            )
        if self.unread:
            texts.append(
                f"scores that are not grades from 0 to {self.max_points}: {len(self.unread):,}, such as {self.unread[0]}"
            )
        return (
            f"{'; '.join(texts)}. To change: `columns: {{given_grade: <scorer>, max_points: <maximum>}}`"
            if texts
            else None
        )


def _value(scores: Mapping[str, Any], scorer: str) -> Any:
    """Return the value of a scorer, or of a key of its value."""
    name, _, key = (scorer, "", "") if scorer in scores else scorer.rpartition(".")
    score = scores.get(name)
    value = score.get("value") if isinstance(score, Mapping) else None
    return value.get(key) if key and isinstance(value, Mapping) else None if key else value


def _number(value: Any, max_points: int) -> float | None:
    """Convert a value to a grade: letters and booleans are shares of the maximum, numbers are grades."""
    if isinstance(value, bool):
        return float(value) * max_points
    if isinstance(value, str) and value.strip().lower() in LETTERS:
        return LETTERS[value.strip().lower()] * max_points
    try:
        grade = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return grade if 0 <= grade <= max_points else None
