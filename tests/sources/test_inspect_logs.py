"""Logs of inspect_ai: samples are problems, epochs attempts, scores grades; damage is reported."""

import json
import tracemalloc
import zipfile

import pytest

import eval_logs
from dirty import dirty_records
from eval_logs import header, members, sample, write_eval, write_json
from proofmill.schema.entries.problem_entries import Problems
from proofmill.schema.errors import ProofmillError, RecipeError, TableError
from proofmill.sources import file_formats
from proofmill.sources.loaders import SOURCES

SOURCE = SOURCES["inspect-logs"]


def entry(path, **fields):
    return Problems(source="inspect-logs", path=str(path), **fields)


def attempt(path, one, **fields):
    """Return the single attempt of a log with one sample."""
    ((_, found),) = SOURCE.attempts(entry(write_json(path / "log.json", one), **fields))
    return found


def statement(path, **fields):
    (row,) = SOURCE.load(entry(write_json(path / "log.json", sample(**fields))))
    return row["statement"]


# ------------------------------------------------------------------------------------------------------ through the mill


def test_log_becomes_problems_responses_and_grades(mill, tmp_path):
    """A problem per sample, an attempt per epoch with separate reasoning, and the logged grades next to ours."""
    samples = [
        sample(1, 2, "\\boxed{3}", scores={"match": {"value": "I"}}),  # epochs may end in any order
        sample("b", 1, error={"message": "boom"}, output={"model": "gpt-x", "choices": []}, scores=None),
        sample(1, 1, "\\boxed{2}"),
    ]
    path = write_eval(tmp_path / "run.eval", members(*samples))
    entries = {
        "problems/i": {"source": "inspect-logs", "path": str(path)},
        "responses/i": {"problems": "problems/i", "model": "given"},
        "grades/logged": {"responses": "responses/i", "grader": "human"},
        "grades/answers": {"responses": "responses/i", "grader": "final-answer"},
        "problems/n": {
            "source": "inspect-logs",
            "path": str(path),
            "columns": {"given_grade": "match", "max_points": "7"},
        },
        "responses/n": {"problems": "problems/n", "model": "given"},
    }
    found = mill(entries)
    found.make(*entries)
    problems = {row["problem"]: row for row in found.table("problems/i").rows()}
    assert list(problems) == ["olympiad-b", "olympiad-1"]
    one = problems["olympiad-1"]
    assert (one["statement"], one["answer"], one["question_type"]) == ("What is 1 + 1?", "2", "answer")
    assert one["origin"] == "run.eval#samples/1_epoch_1.json"
    first, second = (row for row in found.table("responses/i").rows() if row["problem"] == "olympiad-1")
    assert (first["text"], first["reasoning"], first["stop_reason"], first["reason"]) == (
        "\\boxed{2}", "Let me see.", "end", "ok",
    )  # fmt: skip
    assert (first["attempt"], first["writer"], first["given_grade"], first["max_points"]) == (0, "openai/gpt-x", 1, 1)
    assert (first["prompt_tokens"], first["tokens"], first["reasoning_tokens"]) == (25, 90, 70)
    assert (second["attempt"], second["text"], second["given_grade"]) == (1, "\\boxed{3}", 0)
    failed = {"stop_reason": "error", "reason": "no-output", "text": "", "given_grade": None}
    (row,) = (row for row in found.table("responses/i").rows() if row["problem"] == "olympiad-b")
    assert {name: row[name] for name in failed} == failed
    grades = [[row["grade"] for row in found.table(name).rows()] for name in ("grades/logged", "grades/answers")]
    assert grades == [[None, 1, 0], [None, 1, 0]]
    assert [row["given_grade"] for row in found.table("responses/n").rows()] == [None, 7, 0]


def test_given_names_the_sources_that_hold_attempts(mill):
    """The message about a source without attempts lists the sources with attempts."""
    with pytest.raises(
        RecipeError, match="expected one of the sources graded-proofs, arithmetic-graded, qed-nano, inspect-logs"
    ):
        mill(
            {
                "problems/p": {"source": "arithmetic", "rows": 1},
                "responses/g": {"problems": "problems/p", "model": "given"},
            }
        )


# ------------------------------------------------------------------------------------------------------------- the files


@pytest.mark.parametrize(
    "compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA, 93]
)
def test_archives_are_read_however_they_are_compressed(tmp_path, compression):
    """Older logs are deflated; newer ones use zstd, a large sample in several frames."""
    path = write_eval(tmp_path / "a.eval", members(sample(1), sample(2)), compression)
    assert [problem for problem, _ in SOURCE.attempts(entry(path))] == ["olympiad-1", "olympiad-2"]


def test_json_log_is_the_same_as_its_archive(tmp_path):
    """The two forms of a log hold the same problems and attempts."""
    samples = [sample(1), sample(2, completion='Ω\\u00e9 "quoted"'), sample(1, 2)]
    archive = write_eval(tmp_path / "a.eval", members(*samples))
    document = write_json(tmp_path / "a.json", *samples)
    assert list(SOURCE.attempts(entry(archive))) == list(SOURCE.attempts(entry(document)))
    rows = [[{**row, "origin": ""} for row in SOURCE.load(entry(path))] for path in (archive, document)]
    assert rows[0] == rows[1]


def test_folder_of_logs_shares_problems_and_keeps_models_apart(tmp_path):
    """Two models share the problems of one task; ids of another task are other problems; a manifest is not a log."""
    other = {**eval_logs.TASK, "model": "vllm/small"}
    write_eval(tmp_path / "a.eval", members(sample(1)))
    write_json(tmp_path / "b.json", sample(1, completion="No."), eval=other)
    write_json(tmp_path / "c.json", sample(1, input="Prove it."), eval={**other, "task": "proofs"})
    (tmp_path / "logs.json").write_text(json.dumps({"a.eval": header()}))
    assert [row["problem"] for row in SOURCE.load(entry(tmp_path))] == ["olympiad-1", "proofs-1"]
    assert [(problem, found.writer) for problem, found in SOURCE.attempts(entry(tmp_path))] == [
        ("olympiad-1", "openai/gpt-x"), ("olympiad-1", "vllm/small"), ("proofs-1", "vllm/small"),
    ]  # fmt: skip


def test_log_that_was_stopped_has_the_samples_that_were_finished(tmp_path):
    """Without the final header, task and model come from the journal of the log."""
    inside = members(sample(1))
    del inside["header.json"], inside["summaries.json"]
    assert len(list(SOURCE.attempts(entry(write_eval(tmp_path / "a.eval", inside))))) == 1


def test_samples_are_selected(tmp_path):
    """`where` reads fields of a sample; `every` and `rows` count samples."""
    path = write_json(tmp_path / "a.json", *(sample(n, metadata={"level": n % 2}) for n in range(1, 7)))

    def ids(**fields):
        return [problem.removeprefix("olympiad-") for problem, _ in SOURCE.attempts(entry(path, **fields))]

    assert ids(where={"metadata.level": [1]}) == ["1", "3", "5"]
    assert (ids(every=4), ids(rows=2)) == (["1", "5"], ["1", "2"])


@pytest.mark.parametrize("suffix", [".json", ".eval"])
def test_one_sample_at_a_time_is_in_memory(tmp_path, suffix):
    """A log of 60 samples of a megabyte is read in the memory of a few."""
    samples = [sample(n, events=[{"event": "info", "data": "x" * 1_000} for _ in range(1_000)]) for n in range(60)]
    path = tmp_path / f"a{suffix}"
    write_json(path, *samples) if suffix == ".json" else write_eval(path, members(*samples))
    del samples
    tracemalloc.start()
    assert sum(1 for _ in SOURCE.attempts(entry(path))) == 60
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 20_000_000


@pytest.mark.parametrize("chunk", [1, 7, 1 << 20])
def test_values_may_end_anywhere_in_what_is_read(tmp_path, monkeypatch, chunk):
    """Numbers, escapes and names that cross the end of a read are the same values."""
    monkeypatch.setattr(file_formats, "CHUNK", chunk)
    written = {"a": 12.5e3, "list": [], "samples": [{"x": "\U0001f600\\\n"}, 1234, None, []], "b": True, "c": "é"}
    path = tmp_path / "a.json"
    for text in (json.dumps(written), json.dumps(written, ensure_ascii=False, indent=2)):
        path.write_text(f" {text} \n")
        found = list(file_formats.members(path, "samples"))
        assert [value for name, value in found if name == "samples"] == written["samples"]
        assert dict(found) == {**written, "samples": []}
    path.write_text("{}")
    assert list(file_formats.members(path, "samples")) == []


def spoilt(content, at=-200):
    return content[:at] + b"####" + content[at + 4 :]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"log.json: no rows"),
        (b"[]", r"log.json: not JSON after 0 of `samples` \(`\[` instead of `\{`\)"),
        (b"{}", r"log.json: .*not a log of inspect_ai"),
        (b'{"version": 2, "eval": {"task": "t"}, "samples": [{"id": 1', r"not JSON after 1 of `samples`"),
        (b'{"version": 2, "eval": {"task": "t"}, "samples": [\xff]}', r"not JSON after 0 of `samples` \('utf-8'"),
        (b'{"version": 2, "eval": {"task": "t"}, "samples": [{"a": 1, "a": 2}]}', r"the key `a` occurs twice"),
        (b'{"version": 2, "eval": {"task": "t"}, "samples": [7]}', r"log.json#samples/1: is a number"),
        (b'{"version": 2, "eval": {"task": "t"}, "samples": null}', r"log.json: no samples of `t`"),
        (b'{"version": 2, "eval": {"task": "t"}, "samples": [{"id": 1}]}', r"samples/1: no column `input`"),
        (b'{"version": 3, "eval": {"task": "t"}}', r"version 3 of inspect_ai's log format; expected at most 2"),
        (b'{"version": 2, "eval": {"task": "t"}, "samples": ' + b"[" * 5_000, r"not JSON after 1 of `samples`"),
    ],
)
def test_json_that_is_no_log_is_refused(tmp_path, content, message):
    """The message has the file and the sample."""
    (tmp_path / "log.json").write_bytes(content)
    with pytest.raises(TableError, match=message):
        list(SOURCE.load(entry(tmp_path / "log.json")))


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, 93])
def test_damaged_archive_is_refused(tmp_path, compression):
    """Changed bytes, a missing end and a file that is not an archive are each one message with the file."""
    inside = members(sample(1))
    whole = write_eval(tmp_path / "log.eval", inside, compression).read_bytes()
    at = whole.index(b"samples/1_epoch_1.json") + 60
    faults = {
        whole[:at]
        + bytes(byte ^ 255 for byte in whole[at : at + 40])
        + whole[at + 40 :]: r"log.eval#samples/1_epoch_1",
        whole[: len(whole) // 2]: r"log.eval: cannot be read as an archive",
        b"PK\x03\x04 no archive": r"log.eval: cannot be read as an archive",
    }
    for content, message in faults.items():
        (tmp_path / "log.eval").write_bytes(content)
        with pytest.raises(TableError, match=message):
            list(SOURCE.load(entry(tmp_path / "log.eval")))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"samples/1_epoch_1.json": b"{"}, r"log.eval#samples/1_epoch_1.json: cannot be read \(.*; expected JSON"),
        ({"samples/1_epoch_1.json": b"\xff"}, r"samples/1_epoch_1.json: cannot be read \('utf-8'"),
        ({"samples/1_epoch_1.json": b"[]"}, r"samples/1_epoch_1.json: is a list; expected a sample"),
        ({"header.json": b'{"version": 2}'}, r"log.eval: has no task, so it is not a log of inspect_ai"),
        ({"header.json": json.dumps(header(version=3)).encode()}, r"log.eval: has version 3"),
        ({"samples/2_epoch_1/sample.json": b"{}"}, r"log.eval: has version 3"),
    ],
)
def test_archive_with_a_member_that_cannot_be_read_is_refused(tmp_path, change, message):
    """The message has the member; version 3, a sample in many members, is rejected."""
    path = write_eval(tmp_path / "log.eval", {**members(sample(1)), **change})
    with pytest.raises(TableError, match=message):
        list(SOURCE.load(entry(path)))


def test_archive_without_samples_or_log_is_refused(tmp_path):
    """An evaluation that stopped before its first sample, and an archive of something else, are rejected."""
    with pytest.raises(TableError, match=r"no samples of `algebra/olympiad`; expected at least one"):
        list(SOURCE.load(entry(write_eval(tmp_path / "log.eval", members()))))
    with pytest.raises(TableError, match=r"not a log of inspect_ai"):
        list(SOURCE.load(entry(write_eval(tmp_path / "log.eval", {"a.txt": b"x"}))))


def test_sample_that_is_too_large_is_refused(tmp_path, monkeypatch):
    """A sample that would not fit into memory is not unpacked."""
    monkeypatch.setattr(file_formats, "VALUE_LIMIT", 1_000)
    monkeypatch.setattr(file_formats, "CHUNK", 100)
    with pytest.raises(TableError, match="no end of a value after 1,000 characters"):
        list(SOURCE.load(entry(write_json(tmp_path / "log.json", sample(1)))))
    with pytest.raises(TableError, match=r"samples/1_epoch_1.json: cannot be read .*the limit is 1,000"):
        list(SOURCE.load(entry(write_eval(tmp_path / "log.eval", members(sample(1))))))


def test_dirty_sample_gives_an_attempt_or_one_message_that_names_it(tmp_path):
    """Any value in any place of a sample, or a missing one, gives a row or an error with its place."""
    path, refused = tmp_path / "log.json", 0
    for one in dirty_records(sample(1, events=[], metadata={})):
        write_json(path, one)
        try:
            assert len(list(SOURCE.load(entry(path)))) == len(list(SOURCE.attempts(entry(path)))) == (one is not None)
        except ProofmillError as error:
            refused += 1
            assert str(error).startswith(f"{path}#samples/1: ") and "; expected " in str(error), one
    assert refused > 20


# ----------------------------------------------------------------------------------------------------------- the problem


def test_statement_is_what_the_user_said(tmp_path):
    """Texts, messages without the system's, choices with letters, conversations with roles, other content by kind."""
    user, system = {"role": "user", "content": "Which?"}, {"role": "system", "content": "Be brief."}
    assert statement(tmp_path, input=[system, user]) == "Which?"
    assert statement(tmp_path, input="Which?", choices=["one", "two"]) == "Which?\n\nA) one\nB) two"
    assert statement(tmp_path, input=[user, {"role": "assistant", "content": "This."}, user]) == (
        "user: Which?\n\nassistant: This.\n\nuser: Which?"
    )
    parts = [{"type": "text", "text": "See"}, {"type": "image", "image": "attachment://77"}]
    parts += [{"type": "text", "text": "attachment://78"}]
    found = statement(tmp_path, input=[{"role": "user", "content": parts}], attachments={"78": "below."})
    assert found == "See\n[image]\nbelow."


def test_targets_are_answers_unless_columns_say_otherwise(tmp_path):
    """Each of several targets is correct; a target may be a solution; without one the problem requires a proof."""

    def problem(columns=(), **fields):
        (row,) = SOURCE.load(entry(write_json(tmp_path / "log.json", sample(**fields)), columns=dict(columns)))
        return [row.get(name) for name in ("answer", "solution", "guidelines", "question_type")]

    assert problem(target=["2", "two"]) == ["2", None, "Any of these is right: 2; two", "answer"]
    assert problem(target="") == [None, None, None, "proof"]
    columns = {"solution": "target", "guidelines": "metadata.rubric"}
    assert problem(columns, target="Induct.") == [None, "Induct.", "all or nothing", "proof"]
    with pytest.raises(
        TableError, match="columns: `year` is not a column that `inspect-logs` reads; expected some of statement"
    ):
        problem({"year": "metadata.year"})


def test_problem_with_two_statements_is_refused(tmp_path):
    """One id for two problems would mix their attempts."""
    path = write_json(tmp_path / "log.json", sample(1), sample(1, 2, input="Another?"))
    with pytest.raises(TableError, match="problem `olympiad-1` has another statement than before"):
        list(SOURCE.load(entry(path)))


# ----------------------------------------------------------------------------------------------------------- the attempt


def choice(content, stop="stop", completion=""):
    return {
        "choices": [{"message": {"role": "assistant", "content": content}, "stop_reason": stop}],
        "completion": completion,
    }


THOUGHT = [{"type": "reasoning", "reasoning": "hm"}]


@pytest.mark.parametrize(
    ("fields", "text", "reasoning", "stop_reason", "reason"),
    [
        ({"output": choice("plain", completion="submitted")}, "submitted", None, "end", None),
        ({"output": choice("plain")}, "plain", None, "end", None),
        ({"output": choice("cut", "max_tokens")}, "cut", None, "length", None),
        ({"output": choice("cut", "model_length")}, "cut", None, "length", None),
        ({"output": choice(THOUGHT, "max_tokens")}, "", "hm", "length", None),
        ({"output": choice(THOUGHT)}, "", "hm", "end", "reasoning-only"),
        ({"output": choice([])}, "", None, "end", "no-output"),
        ({"output": choice("", "content_filter")}, "", None, "end", "refused"),
        ({"output": {"choices": []}, "error": {"message": "boom"}}, "", None, "error", "no-output"),
        ({"output": {"choices": []}, "limit": {"type": "time", "limit": 60}}, "", None, "length", None),
        ({"output": choice("cut"), "limit": {"type": "token", "limit": 60}}, "cut", None, "length", None),
        ({"output": choice("done"), "error": {"message": "the scorer failed"}}, "done", None, "end", None),
        ({"output": choice([{"type": "reasoning", "reasoning": "sealed", "redacted": True}, *THOUGHT])}, "", "hm", "end", "reasoning-only"),
    ],
)  # fmt: skip
def test_attempt_says_how_it_ended(tmp_path, fields, text, reasoning, stop_reason, reason):
    """Truncated, refused, failed, or only reasoning: the attempt has the reason for the missing answer."""
    found = attempt(tmp_path, sample(**fields))
    assert (found.text, found.reasoning, found.stop_reason, found.reason) == (text, reasoning, stop_reason, reason)


def test_tokens_of_an_agent_are_those_of_all_its_answers(tmp_path):
    """For a model with several outputs the usage of the last one is not the total."""
    spoken = {"role": "assistant", "content": "x", "source": "generate"}
    shown = {**spoken, "source": "input"}
    assert attempt(tmp_path, sample(messages=[shown, shown, spoken])).tokens == 90
    assert attempt(tmp_path, sample(messages=[spoken, spoken])).tokens == 400


# ------------------------------------------------------------------------------------------------------------- the grades


@pytest.mark.parametrize(
    ("value", "given_grade"),
    [("C", 1), ("P", 0.5), ("I", 0), ("N", 0), (True, 1), (0.25, 0.25), ("1", 1), ("no", 0), (float("nan"), None),
     ("NaN", None), (None, None), (5, None), (-1, None), ("fine", None), ({"a": 1}, None), ([1], None)],
)  # fmt: skip
def test_value_is_a_grade_or_none(tmp_path, value, given_grade):
    """Letters and numbers from 0 to 1 are grades, NaN is an unscored sample, other values are not grades."""
    found = attempt(tmp_path, sample(scores={"s": {"value": value}}))
    assert (found.grade, found.max_points) == (given_grade, None if given_grade is None else 1)


SEVERAL = {"match": {"value": "I"}, "judge": {"value": {"rigour": 5, "style": "P"}}}


def test_first_of_several_scorers_is_read_and_said(tmp_path, capsys):
    """One scorer is read in all of a log, also if it skipped a sample, and the job's log lists the others."""
    unscored = sample(3, scores={"judge": {"value": 1}})
    path = write_json(tmp_path / "log.json", sample(1, scores={}), sample(2, scores=SEVERAL), unscored)
    assert [found.grade for _, found in SOURCE.attempts(entry(path))] == [None, 0, None]
    said = capsys.readouterr().err
    assert "inspect-logs  samples with several scorers (judge, match): 1; read: match." in said
    assert "To change: `columns: {given_grade: <scorer>, max_points: <maximum>}`" in said


def test_scorer_and_full_grades_are_named(tmp_path, capsys):
    """`given_grade` is a scorer or a key of its value; `max_points` a number or a column; letters are shares of the maximum."""
    one = sample(scores=SEVERAL)
    named = {"given_grade": "judge.rigour", "max_points": "7"}
    found = [
        attempt(tmp_path, one, columns=columns)
        for columns in (named, {**named, "max_points": "metadata.worth"}, {**named, "given_grade": "judge.style"})
    ]
    assert [(each.grade, each.max_points) for each in found] == [(5, 7), (5, 7), (3.5, 7)]
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"given_grade": "judge.rigour"}, r"`judge.rigour` scored 5; expected a grade from 0 to 1, or C, P, I, N"),
        ({"given_grade": "judge"}, r"samples/1: `judge` scored .*; expected a grade"),
        ({"given_grade": "other"}, r"no sample has a score of `other`; expected one of judge, match"),
        ({"given_grade": "match", "max_points": "0"}, r"`max_points` is '0'; expected a whole number of at least 1"),
        ({"given_grade": "match", "max_points": "metadata.none"}, r"samples/1: no column `metadata.none`"),
    ],
)
def test_scorer_that_gives_no_grades_is_refused_if_it_was_named(tmp_path, columns, message):
    """An invalid value of a named scorer, or an unknown scorer, is an error."""
    with pytest.raises(TableError, match=message):
        attempt(tmp_path, sample(scores=SEVERAL), columns=columns)


def test_scores_that_are_no_grades_are_said(tmp_path, capsys):
    """Values beyond an undeclared scale are ungraded, and the job's log reports them."""
    path = write_json(tmp_path / "log.json", sample(1, scores={"judge": {"value": 5}}))
    assert [found.grade for _, found in SOURCE.attempts(entry(path))] == [None]
    assert "scores that are not grades from 0 to 1: 1, such as judge 5" in capsys.readouterr().err


def test_first_versions_of_the_format_are_read(tmp_path):
    """One `score` instead of several, and reasoning as a field of the message."""
    message = {"role": "assistant", "content": "So.", "reasoning": "hm"}
    one = sample(score={"value": "C"}, output={"choices": [{"message": message, "stop_reason": "length"}]})
    del one["scores"]
    found = attempt(tmp_path, one)
    assert (found.text, found.reasoning, found.grade, found.stop_reason) == ("So.", "hm", 1, "length")
