"""`proofmill invalidate` makes a stage repeat its calls; no paid output is lost."""

import json
import sys

import pytest

from mill import Mill
from proofmill import __main__ as command
from proofmill.artifacts.maintenance.invalidation import invalidate
from proofmill.artifacts.states import States
from proofmill.calls import budget, journal, merging, records
from proofmill.planning.plan import RunPlan
from proofmill.schema.errors import SettingError
from served import GOOD, good, server

JUDGE = {"id": "j", "price": {"input": 1, "output": 10}, "price-source": "x, 2026-01-01", "max-tokens": 512}
ENTRIES = {
    "api/judge": JUDGE,
    "api/dear": {**JUDGE, "id": "d"},
    "grader/pair": {"judges": ["api/judge"], "prompt": "grade-imo", "escalate-to": "grader/dear", "parse-retries": 1},
    "grader/dear": {"judges": ["api/dear"], "prompt": "grade-imo", "parse-retries": 1},
    "problems/p": {"source": "arithmetic", "rows": 5},
    "responses/own": {"problems": "problems/p", "model": "solutions"},
    "responses/asked": {"problems": "problems/p", "model": "api/judge", "attempts": 2, "max-tokens": 100},
    "grades/g": {"responses": "responses/own", "grader": "grader/pair"},
    "labels/p": {"problems": "problems/p", "model": "api/judge", "parse-retries": 0},
}
MARK = good("Fine.\n<points>6 out of 7</points>")


@pytest.fixture
def mill(tmp_path):
    return Mill(tmp_path / "results", **ENTRIES)


@pytest.fixture
def made(mill, monkeypatch):
    """Return `made(name, reply)`, which builds a table with a server that replies so; it returns rows and requests."""

    def make(name, reply):
        def replied(request, number):
            body = reply(request, number)
            return body if isinstance(body, tuple) else (200, body, {})

        with server(replied) as (url, served):
            for model in ("JUDGE", "DEAR"):
                monkeypatch.setenv(f"PROOFMILL_{model}_URL", url)
            mill.make(name)
        return mill.table(name).rows(kept=False), served.requests

    mill.make("problems/p", "responses/own")
    return make


def state(mill, name):
    return States(mill.config, mill.results)[name].name


def test_fixed_judge_gets_only_the_unparsable_rows(mill, made):
    """All calls of a row are repeated, retries and the expensive judge included; other rows keep their outputs."""
    garbled = mill.table("problems/p").rows("problem", "statement")[2]

    def broken(request, _):
        return good("I like it.") if garbled["statement"] in request["messages"][0]["content"] else MARK

    rows, asked = made("grades/g", broken)
    assert [row["reason"] for row in rows].count("no-verdict") == 1 and len(asked) == 4 + 2 + 2
    paid = budget.sum_costs(mill.results / "calls")
    table = mill.table("grades/g")
    done = invalidate(mill.config, table)
    assert (done.answers, done.rows, state(mill, "grades/g")) == (4, 1, "make")
    stage = RunPlan(mill.config, "grades/g", mill.results).stages["grades/g"]
    assert (stage.why, stage.rows, stage.cached) == (["its invalidated calls are repeated"], 5, 4)
    rows, asked = made("grades/g", lambda *_: MARK)
    assert [row["grade"] for row in rows] == [6] * 5 and len(asked) == 1
    assert garbled["statement"] in asked[0]["messages"][0]["content"]
    assert budget.sum_costs(mill.results / "calls") == pytest.approx(paid * 9 / 8, rel=0.01)  # prompts differ in length
    assert [row.answer.text for row in records.all_rows(table.calls)].count("I like it.") == 4
    assert [path.suffix for path in (mill.results / "archive/grades/g").iterdir()].count(".invalidated") == 1
    assert state(mill, "grades/g") == "done" and invalidate(mill.config, table).answers == 0


@pytest.mark.parametrize(
    ("where", "everything", "asked_again"),
    [([], False, 2), (["reason=ok"], False, 3), (["reason=ok", "difficulty=7"], False, 1), ([], True, 5)],
)
def test_rows_are_chosen_by_their_columns(mill, made, where, everything, asked_again):
    """Without a word the unsettled rows, else those where all conditions hold, or all; the same again sets no more aside."""
    flags = dict.fromkeys(("incomplete", "gaps", "wrong", "disagreement", "computational"), False)

    def label(_, number):
        return good(json.dumps({**flags, "difficulty": 5 + number})) if number < 3 else good("no idea")

    made("labels/p", label)
    table = mill.table("labels/p")
    assert invalidate(mill.config, table, where, everything).answers == asked_again
    _, asked = made("labels/p", lambda *_: good(json.dumps({**flags, "difficulty": 1})))
    assert len(asked) == asked_again


def test_attempt_of_a_problem_is_asked_alone(mill, made):
    """Of several attempts at a problem only the refused one is repeated."""
    filtered = good("", finish_reason="content_filter")
    rows, _ = made("responses/asked", lambda _, number: filtered if number == 4 else good("proof"))
    refused = [row["response"] for row in rows if row["reason"] == "refused"]
    assert invalidate(mill.config, mill.table("responses/asked")).answers == len(refused) == 1
    rows, asked = made("responses/asked", lambda *_: good("another proof"))
    assert len(asked) == 1
    assert [row["response"] for row in rows if row["text"] == "another proof"] == refused


def test_row_whose_call_failed_is_repeated(mill, made):
    """It has no output to invalidate; its table is due all the same."""
    rows, _ = made(
        "responses/asked", lambda _, number: (400, {"error": {"message": "no"}}, {}) if number == 4 else good("proof")
    )
    assert [row["reason"] for row in rows].count("provider") == 1
    done = invalidate(mill.config, mill.table("responses/asked"))
    assert (done.answers, done.rows, state(mill, "responses/asked")) == (0, 1, "make")


def test_kill_before_the_answers_are_set_aside_loses_nothing(mill, made, monkeypatch):
    """The table goes first. Whatever a kill leaves, the stage is due, and the same command resumes."""
    made("grades/g", lambda *_: good("I like it."))

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(journal.Journal, "add", killed)
        with pytest.raises(KeyboardInterrupt):
            invalidate(mill.config, mill.table("grades/g"))
    assert state(mill, "grades/g") == "make"
    assert invalidate(mill.config, mill.table("grades/g")).rows == 5
    rows, _ = made("grades/g", lambda *_: MARK)
    assert {row["grade"] for row in rows} == {6}


@pytest.mark.parametrize("built", [True, False])
def test_reverted_edit_brings_no_invalidated_verdict_back(mill, made, built):
    """Invalidated under an edited entry, whether built or not, the calls are repeated under the earlier one, too."""
    made("grades/g", lambda *_: good("I like it."))
    edited = Mill(mill.results, **{**ENTRIES, "grader/pair": {**ENTRIES["grader/pair"], "parse-retries": 0}})
    if built:
        edited.make("grades/g")
    assert invalidate(edited.config, edited.table("grades/g"), everything=True).answers == 20
    for one in (edited, mill):
        stage = RunPlan(one.config, "grades/g", mill.results).stages["grades/g"]
        assert (state(one, "grades/g"), stage.why) == ("make", ["its invalidated calls are repeated"])
    rows, asked = made("grades/g", lambda *_: MARK)
    assert [row["grade"] for row in rows] == [6] * 5 and len(asked) == 5
    edited.make("grades/g")  # from the same answers: no server is set


def test_answers_that_are_set_aside_stay_so_under_another_name(mill, made):
    """A journal that moves to another artifact brings no answer back."""
    made("grades/g", lambda *_: MARK)
    invalidate(mill.config, mill.table("grades/g"), everything=True)
    assert merging.move(mill.table("grades/g").calls, mill.results / "calls/grades/new") == 0
    assert set(records.frame(mill.results / "calls/grades/new")["reason"]) == {"invalidated"}


def test_faulty_words_set_nothing_aside(mill, made):
    """An unknown column, a missing journal, and single rows of a training are mistakes."""
    made("grades/g", lambda *_: MARK)
    with pytest.raises(SettingError, match=r"--where reasn=ok: .*Did you mean `reason`\?"):
        invalidate(mill.config, mill.table("grades/g"), ["reasn=ok"])
    with pytest.raises(SettingError, match="has no journal"):
        invalidate(mill.config, mill.table("labels/p"))
    assert state(mill, "grades/g") == "done"


def test_command_says_what_it_did_and_how_to_go_on(tmp_path, monkeypatch, capsys):
    """The name may be a table's path; the last lines name the next command and where the old answers are."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.yaml").write_text(json.dumps({"mine": ENTRIES}))
    mill = Mill(tmp_path / "results", **ENTRIES)
    mill.make("problems/p", "responses/own")
    with server(lambda *_: (200, GOOD, {})) as (url, _):
        for model in ("JUDGE", "DEAR"):
            monkeypatch.setenv(f"PROOFMILL_{model}_URL", url)
        mill.make("grades/g")
    for words, said in (
        (["results/grades/g.parquet"], "grades/g  20 old outputs stay in results/calls/grades/g"),
        (["grades/x"], "`grades/g`?"),
    ):
        monkeypatch.setattr(sys, "argv", ["proofmill", "invalidate", *words])
        try:
            command.main()
        except SystemExit as stop:
            print(stop.code, file=sys.stderr)
        assert said in capsys.readouterr().err
