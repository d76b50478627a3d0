"""The plan: what would run and why, what is cached, and what it would cost, without running or asking anything."""

import json
import random
import sys
from collections import Counter

import polars as pl
import pytest

from mill import SMALL, Mill
from project import snapshot
from proofmill import __main__ as command
from proofmill import labels
from proofmill.artifacts.jobs import Job
from proofmill.calls.journal import Journal
from proofmill.calls.model_requests import ModelOutput
from proofmill.config.config import expand
from proofmill.metrics import estimates, metrics
from proofmill.planning import plan
from proofmill.planning._expected_costs import Range, predict, read_outputs
from proofmill.planning._power import warn_of_shared_rows
from proofmill.planning.plan import RunPlan
from proofmill.prompts import templates
from proofmill.prompts.templates import PROMPTS
from proofmill.schema.entries.grpo_entry import Grpo
from proofmill.schema.entries.response_entries import Grades
from proofmill.schema.errors import RecipeError

PAID = {
    "id": "judge-1",
    "price": {"input": 2.0, "output": 8.0},
    "price-source": "made up, 2026-11-20",
    "expected-tokens": {"input": 1000, "output": 500},
}
LABELS = {"labels/paid": {"problems": "problems/train", "model": "api/paid"}}


def book(budget=None, **entries):
    config = {"test": {**SMALL, "api/referee": {"id": "referee-1", "program": "referee", "price": {"input": 0, "output": 0},
              "temperature": 0, "max-tokens": 1024}, "api/paid": PAID, **entries}}  # fmt: skip
    return expand(config if budget is None else {**config, "budget": budget})


def planned(small, target, **more):
    return RunPlan(book(**more), target, small.results)


def answer_some(results, made, answered, failed, cost=0.01):
    """Write the journal of labels/paid as a killed run leaves it."""
    table = Mill.table(type("Here", (), {"results": results})(), "labels/paid")
    entry = made.entries["labels/paid"]
    job = Job(table, made.declared, "", {"parents": {entry.problems: ""}})
    asked = list(labels.requests(entry, job)["api/paid"])
    with Journal(table.calls) as journal:
        for request in asked[:answered]:
            journal.add(request, ModelOutput("x", "end", prompt_tokens=900, tokens=100, cost=cost))
        for request in asked[answered : answered + failed]:
            journal.add(request, ModelOutput("", "error", "provider", detail="bug"))
    return len(asked)


@pytest.fixture
def copied(small, tmp_path):
    """Return a copy of the small chain's results that a test may change."""
    import shutil

    shutil.copytree(small.results, tmp_path / "results")
    return Mill(tmp_path / "results", **SMALL)


def test_finished_target_has_nothing_to_do(small):
    """Of a target that is made every stage is done, and nothing is asked."""
    made = planned(small, "grades/cold")
    assert {stage.state for stage in made.stages.values()} == {"done"}
    assert (made.totals.calls, made.totals.dollars.value) == (0, 0.0)


def test_plan_changes_nothing(small, capsys):
    """Planning writes no file, and takes a recipe, a name or a path."""
    before = snapshot(small.results)
    for target in ("grades/cold", "results/grades/cold.parquet"):
        list(planned(small, target, **LABELS).lines(verbose=True))
    list(planned(small, "test", **LABELS).lines(verbose=True))
    assert before == snapshot(small.results)


def test_edit_names_the_field_and_touches_descendants_only(small):
    """A changed field is named with both values; its descendants wait for it; all else is done."""
    made = planned(small, "grades/cold", **{"responses/cold": {**SMALL["responses/cold"], "temperature": 0.5}})
    assert made.stages["responses/cold"].why == ["`temperature` 1.0 -> 0.5"]
    assert made.stages["grades/cold"].why == ["responses/cold will be made"]
    others = set(made.stages) - {"responses/cold", "grades/cold"}
    assert {made.stages[name].state for name in others} == {"done"}
    assert (made.stages["responses/cold"].exact, made.stages["grades/cold"].exact) == (True, False)
    assert made.stages["grades/cold"].calls == 24


def test_edit_of_a_long_list_shows_what_differs(copied):
    """Of a long list the elements that differ are shown, and not two beginnings that are the same."""
    kept = ["has-statement", "no-image", "has-solution", {"statement-length": [1, 4000]}, {"not-near-duplicate": 0.9}]
    entry = {**SMALL["problems/bench"], "keep": kept}
    Mill(copied.results, **{**SMALL, "problems/bench": entry}).make("problems/bench")
    edited = {**entry, "keep": [*kept[:4], {"not-near-duplicate": 0.95}]}
    made = RunPlan(book(**{"problems/bench": edited}), "problems/bench", copied.results)
    why = '`keep` {"not-near-duplicate": 0.9} -> {"not-near-duplicate": 0.95}'
    assert made.stages["problems/bench"].why == [why]
    added = {**entry, "keep": ["not-spam", *kept[:4]]}
    made = RunPlan(book(**{"problems/bench": added}), "problems/bench", copied.results)
    assert made.stages["problems/bench"].why == ['`keep` "not-spam" is new, {"not-near-duplicate": 0.9} was removed']


def test_many_parents_that_will_be_made_are_a_few_and_a_number(small):
    """A table of many parents names the first of them."""
    tables = {f"problems/p{n}": {"source": "arithmetic", "rows": 4, "seed": n} for n in range(9)}
    many = {**tables, "scores/many": {"problems": list(tables), "metrics": ["shared-problems"]}}
    why = planned(small, "scores/many", **many).stages["scores/many"].why
    assert why == ["problems/p0, problems/p1, problems/p2 and 6 more will be made"]


def test_edited_prompt_is_named(small, monkeypatch, tmp_path):
    """A prompt whose text changed is the reason that is given."""
    for file in PROMPTS.glob("*.md"):
        (tmp_path / file.name).write_text(file.read_text() + ("!" if file.stem == "grade-strict" else ""))
    monkeypatch.setattr(templates, "PROMPTS", tmp_path)
    assert planned(small, "grades/cold").stages["grades/cold"].why == ["prompt `grade-strict` was edited"]


def test_edited_prompt_of_a_path_is_named(copied, tmp_path):
    """So is a prompt or a system prompt in a file of the user's own, by its path."""
    files = tmp_path / "mine.md", tmp_path / "system.md"
    for file in files:
        file.write_text("---\nneeds: [statement]\n---\n{{ statement }}\n")
    entry = {**SMALL["responses/cold"], "prompt": str(files[0]), "system": str(files[1]), "max-tokens": 4}
    made = Mill(copied.results, **SMALL, **{"responses/mine": entry})
    made.make("responses/mine")
    assert planned(copied, "responses/mine", **{"responses/mine": entry}).stages["responses/mine"].state == "done"
    for file in files:
        file.write_text(file.read_text() + "Now.")
    why = planned(copied, "responses/mine", **{"responses/mine": entry}).stages["responses/mine"].why
    assert sorted(why) == [f"prompt `{file}` was edited" for file in files]


def test_revision_and_model_are_named(small, monkeypatch):
    """So are a kind's revision, and a remote model that is declared otherwise."""
    before = Grades.revision
    monkeypatch.setattr(Grades, "revision", before + 7)
    assert planned(small, "grades/cold").stages["grades/cold"].why == [f"revision {before} -> {before + 7}"]
    referee = {
        "id": "referee-2",
        "program": "referee",
        "price": {"input": 0, "output": 0},
        "temperature": 0,
        "max-tokens": 1024,
    }
    why = planned(small, "schemes/bench", **{"api/referee": referee}).stages["schemes/bench"].why
    assert why == ['api/referee: `id` "referee-1" -> "referee-2"']


def test_rows_are_counted_in_the_journal(copied):
    """Cached rows, rows to do, and failed rows are counted separately, request by request."""
    made = book(**LABELS)
    rows = answer_some(copied.results, made, answered=10, failed=3)
    stage = RunPlan(made, "labels/paid", copied.results).stages["labels/paid"]
    assert (stage.rows, stage.cached, stage.calls, stage.failed, stage.exact) == (rows, 10, rows - 10, 3, True)
    assert stage.tokens.value == pytest.approx(1000 * (rows - 10))
    assert stage.dollars.value == pytest.approx((900 * 2 + 100 * 8) / 1e6 * (rows - 10)), "by the price as it is now"
    assert stage.learned == "predicted from its 10 outputs"


def test_guess_is_used_and_said_where_nothing_was_answered(small):
    """Without answers a stage costs its rows times the guess: 1000 x 2 + 500 x 8 millionths of a dollar a call."""
    made = planned(small, "labels/paid", **LABELS)
    stage = made.stages["labels/paid"]
    assert stage.dollars.value == pytest.approx(stage.calls * 0.006)
    assert stage.learned == "from `expected-tokens` of api/paid"
    assert f"${stage.calls * 0.006:.2f}" in "\n".join(made.lines(verbose=True))


def test_unknown_cost_is_said_not_guessed(small):
    """Without answers and without a guess the cost is unknown, in the stage and in the sum; it is not 0."""
    silent = {key: value for key, value in PAID.items() if key != "expected-tokens"}
    made = planned(small, "labels/paid", **LABELS, **{"api/paid": silent})
    assert made.stages["labels/paid"].dollars.value is made.totals.dollars.value is None
    assert "unknown tokens, unknown (no outputs yet, and no `expected-tokens` in api/paid)" in "\n".join(
        made.lines(verbose=True)
    )


def test_other_stages_teach_what_a_call_costs(copied):
    """A stage that never ran is predicted from another of its kind with the same model, and says so."""
    made = book(**LABELS, **{"labels/again": {"problems": "problems/bench", "model": "api/paid"}})
    answer_some(copied.results, made, answered=10, failed=0)
    stage = RunPlan(made, "labels/again", copied.results).stages["labels/again"]
    assert stage.dollars.value == pytest.approx(12 * 0.0026)
    assert stage.learned == "predicted from 10 outputs of other labels of api/paid"


def test_interval_covers_the_sum_it_predicts():
    """Of sums of skewed costs, predicted from a sample, about 95 % fall into their interval."""
    rng, covered, trials = random.Random(3), 0, 600
    for _ in range(trials):
        known = pl.Series([rng.gammavariate(2, 1) for _ in range(60)])
        found = predict(known, 200)
        covered += found.low <= sum(rng.gammavariate(2, 1) for _ in range(200)) <= found.high
    assert 0.92 <= covered / trials <= 0.98


def test_sum_of_stages_adds_deviations_by_squares():
    """Independent stages err independently: the interval of their sum is narrower than the sum of intervals."""
    total = Range(10, 7, 13) + Range(20, 16, 24)
    assert (total.value, total.low, total.high) == (30, 25, 35)


def test_reverted_edit_is_restored(copied):
    """A stage whose table was made before, as the entry now says, is brought back, and its descendants are planned by it."""
    other = {**SMALL, "responses/cold": {**SMALL["responses/cold"], "temperature": 0.5}}
    Mill(copied.results, **other).make("responses/cold")
    made = RunPlan(book(), "grades/cold", copied.results)
    assert (made.stages["responses/cold"].state, made.stages["grades/cold"].state) == ("restore", "done")


def test_budget_that_may_not_suffice_is_said(small):
    """The plan names what was spent, the budget, and what is missing."""
    text = "\n".join(planned(small, "labels/paid", budget=0.1, **LABELS).lines(verbose=True))
    assert "$0.00 spent so far of a budget of $0.10" in text
    assert "the budget may be too low" in text
    assert "no budget is set" in "\n".join(planned(small, "labels/paid", **LABELS).lines(verbose=True))


def test_unknown_target_says_what_there_is(small):
    """An unknown target is a message with the recipes."""
    with pytest.raises(RecipeError, match="neither a recipe nor an artifact; expected one of test"):
        planned(small, "nonsense")


def run(monkeypatch, folder, *arguments):
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", ["proofmill", *arguments])
    command.main()


def test_command_prints_text_and_json_without_keys(small, copied, tmp_path, monkeypatch, capsys):
    """`proofmill plan` reads config.yaml; as JSON it has the same numbers; a key of the environment is in neither."""
    monkeypatch.setenv("PROOFMILL_PAID_KEY", "sk-very-secret-0123456789")
    config = {"test": {**SMALL, "api/referee": {"id": "referee-1", "price": "unknown"}, "api/paid": PAID, **LABELS}}
    (tmp_path / "config.yaml").write_text(json.dumps(config))
    run(monkeypatch, tmp_path, "plan", "labels/paid")
    text = capsys.readouterr().out
    assert "labels/paid" in text
    run(monkeypatch, tmp_path, "plan", "labels/paid", "--json")
    data = capsys.readouterr().out
    assert json.loads(data)["totals"]["calls"] == 48
    assert "sk-very-secret" not in text + data


def test_renamed_artifact_keeps_its_answers(copied, tmp_path, monkeypatch, capsys):
    """After `proofmill rename` the new name has the answers of the old one, which are paid once and asked no more."""
    made = book(**LABELS, **{"labels/again": LABELS["labels/paid"]})
    answer_some(copied.results, made, answered=10, failed=2)
    run(monkeypatch, tmp_path, "rename", "labels/paid", "labels/again")
    assert "labels/again  has 10 model outputs now" in capsys.readouterr().err
    stages = [RunPlan(made, name, copied.results).stages[name] for name in ("labels/paid", "labels/again")]
    assert [(stage.cached, stage.failed) for stage in stages] == [(0, 0), (10, 2)]
    for arguments, said in (
        (("labels/nothing", "labels/again"), "expected the calls of a renamed"),
        (("labels/paid", "labels/again"), "expected the calls of a renamed"),
        (("labels/paid", "grades/y"), "one kind"),
        (("labels/again", "labels/again"), "both the old and the new name"),
        (("labels/again", "labels/../../x"), "is no artifact's name"),
        (("labels/again", "labels/"), "is no artifact's name"),
        (("labels/again", "labels/a.parquet"), "ends in `.parquet`"),
    ):
        with pytest.raises(SystemExit, match=said):
            run(monkeypatch, tmp_path, "rename", *arguments)
    run(monkeypatch, tmp_path, "rename", "labels/again", "labels/again@set_1@seed-2")
    assert [path.name for path in (copied.results / "calls/labels").glob("*@*")] == ["again@set_1@seed-2"]


MEASURED = {
    "scores/new": {
        "models": ["sft/cold"], "problems": ["problems/bench"], "schemes": ["schemes/bench"], "grader": "api/referee",
        "sampling": {"sampled": {"attempts": 4}}, "metrics": ["avg-at-k"],
    }
}  # fmt: skip


def test_plan_says_which_difference_a_benchmark_will_show(small, tmp_path):
    """From the variance of grades of the same problems; without any, from the worst case."""
    (said,) = planned(small, "scores/new", **MEASURED).stages["scores/new"].shows
    rows = [{**row, "seed": 0, "writer": None} for row in small.table("grades/cold").rows()]
    error = estimates.difference_error(metrics.split_variance(rows), 12, 4)
    assert (
        f"12 problems x 4 attempts of problems/bench: a difference of {estimates.detectable(error, 12, 7):.2f} of 7 points"
        in said
    )
    assert "variance of grades/cold" in said
    (worst,) = RunPlan(book(**MEASURED), "scores/new", tmp_path / "nothing").stages["scores/new"].shows
    margin = (2.200985 + 0.875530) * (2 * 49 / 4 / 12) ** 0.5  # t of 11 degrees of freedom
    assert f"a difference of {margin:.2f} of 7 points" in worst and "worst case" in worst


def test_jury_is_counted_by_judge_and_may_ask_more(small):
    """Each judge's first round is counted and priced separately; that outputs decide about further rounds is said."""
    judges = {
        "api/one": {**PAID, "id": "one"},
        "api/two": {**PAID, "id": "two", "expected-tokens": {"input": 10, "output": 10}},
    }
    jury = {"grader/jury": {"judges": ["api/one", "api/two", "api/two"], "rounds": 1}}
    grades = {"grades/jury": {"responses": "responses/cold", "schemes": "schemes/bench", "grader": "grader/jury"}}
    stage = planned(small, "grades/jury", **judges, **jury, **grades).stages["grades/jury"]
    asked = sum(row["text"].strip() != "" for row in small.table("responses/cold").rows())
    assert stage.exact and stage.further and 0 < stage.calls <= 3 * asked
    assert any(
        " calls or more, " in line
        for line in planned(small, "grades/jury", **judges, **jury, **grades).lines(verbose=True)
    )


def test_program_first_makes_no_certain_call(small):
    """Verdicts of a program need no call: the plan counts none, and says that there may be some."""
    graders = {
        "grader/first": {"judges": ["final-answer"], "escalate-to": "grader/then"},
        "grader/then": {"judges": ["api/referee"], "prompt": "answer-equivalence"},
        "grades/first": {"responses": "responses/cold", "grader": "grader/first"},
    }
    stage = planned(small, "grades/first", **graders).stages["grades/first"]
    assert (stage.state, stage.calls) == ("make", 0)


def test_training_counts_whom_it_asks_besides_its_grader(small):
    """Grades of all rollouts, preferences from a step on, audit samples, summaries; given rollouts need no calls."""
    guess = {"expected-tokens": {"input": 10, "output": 10}}
    apis = {f"api/{name}": {**PAID, "id": name, **guess} for name in ("marker", "taste", "second", "summarizer")}
    training = {
        "model": "sft/cold", "problems": "problems/train", "schemes": "schemes/train", "grader": "api/marker", "rewards": {"grade": 1},
        "preferences": {"api/taste": {"weight": 1, "from-step": 7, "prompt": "prefer-helpful"}}, "unscored": "drop", "group-size": 4,
        "problems-per-step": 2, "steps": 10, "audit": "api/second", "audit-every": 5, "audit-rows": 3,
        "summarizer": "api/summarizer", "turns": 3, "summaries": 2,
    }  # fmt: skip
    entries = {
        "grpo/asking": training,
        "responses/taken": {"problems": "problems/train", "model": "grpo/asking", "rollouts": True},
    }
    plan = planned(small, "responses/taken", **apis, **entries)
    graded, tasted, sampled, summed = 10 * 2 * 4, 4 * 2 * 4, 2 * 3, 10 * 2 // 2 * 3
    assert plan.stages["grpo/asking"].calls == graded + tasted + sampled + summed
    assert plan.stages["grpo/asking"].tokens.value == 20 * plan.stages["grpo/asking"].calls
    assert plan.stages["responses/taken"].calls == 0


@pytest.mark.parametrize(
    ("block", "audits"), [({"iterations": 4}, 6), ({"mini-batches": 4}, 6), ({"iterations": 10}, 4)]
)
def test_training_audits_each_rollout_batch_at_most_once(block, audits):
    """The plan counts the batches whose steps include a multiple of `audit-every`, and full batches of rollouts."""
    entry = Grpo(
        **{"model": "base/x", "problems": "problems/x", "grader": "final-answer", "rewards": {"grade": 1}, "steps": 34},
        **{"unscored": "drop", "audit": "api/second", "audit_every": 6, "audit_rows": 3},
        **{"problems_per_step": 2, "group_size": 4, **{name.replace("-", "_"): steps for name, steps in block.items()}},
    )
    first = range(1, 35, entry.block)
    due = [step for step in first if (step + entry.block - 1) // 6 > (step - 1) // 6]
    assert len(due) == audits and entry.other_calls(lambda _: None) == {("api/second", None): 3 * audits}
    assert entry.estimate_rows(lambda _: None) == len(first) * entry.mini_batches * 2 * 4


# ------------------------------------------------------------------------------------------------------------ as a screen


def test_plan_is_a_line_for_each_stage_that_is_not_done(small):
    """Stages that would be made, with rows, calls, tokens, dollars and why; finished ones are only counted."""
    made = planned(small, "labels/paid", **LABELS)
    lines = list(made.lines(width=100))
    table = lines[: lines.index("")]
    names = [name for name, stage in made.stages.items() if stage.state != "done"]
    assert [line.split()[0] for line in table[1:-1]] == names
    assert max(map(len, table)) <= 100
    assert "problems/train" in made.stages and not any(line.startswith("problems/train") for line in table)
    stage = made.stages["labels/paid"]
    (line,) = [line for line in table if line.startswith("labels/paid")]
    assert line.split()[1:4] == ["make", str(stage.rows), str(stage.calls)] and line.endswith("never made")
    assert "--verbose" in table[-1]


def test_finished_target_has_no_table(small):
    """Nothing would be made: the sums alone."""
    lines = list(planned(small, "grades/cold").lines())
    assert lines[1].startswith("0 to make, 0 to restore, ")


def test_reason_that_is_another_stage_is_its_name(small):
    """`after sft/x`, where that is made first; a long reason is cut to the screen."""
    more = {
        "sft/longer": {"model": "sft/cold", "examples": "examples/cold", "steps": 9, "batch-size": 4},
        "responses/longer": {"problems": "problems/bench", "model": "sft/longer"},
    }
    made = planned(small, "responses/longer", **more)
    (line,) = [line for line in made.lines(width=200) if line.startswith("responses/longer")]
    assert line.endswith("after sft/longer") and "  ?  " in line
    assert all(len(line) <= 90 for line in list(made.lines(width=60))[:3])


def test_one_artifact_is_planned_in_full(small, monkeypatch, tmp_path, capsys):
    """A target that is one artifact, or --verbose, prints all details."""
    full = "\n".join(planned(small, "labels/paid", **LABELS).lines(verbose=True))
    assert "cached" in full and "to do" in full
    brief = "\n".join(planned(small, "labels/paid", **LABELS).lines())
    assert "cached" not in brief


def test_each_journal_is_read_once(copied, monkeypatch):
    """Stages with one model are predicted from each other's outputs, and each journal is read once."""
    many = {f"labels/paid{n}": {"problems": "problems/train", "model": "api/paid"} for n in range(30)}
    answer_some(copied.results, book(**LABELS), 10, 0)
    read = Counter()

    def counted(folder):
        read[folder] += 1
        return read_outputs(folder)

    monkeypatch.setattr(plan, "read_outputs", counted)
    made = RunPlan(book(**LABELS, **many), "test", copied.results)
    learned = {made.stages[name].learned for name in many}
    assert learned == {"predicted from 10 outputs of other labels of api/paid"}
    assert max(read.values()) == 1


def test_plan_forecasts_idle_groups_from_attempts_of_the_policy(small):
    """The attempts are those of the policy or of a model that it was trained from; without any, nothing is forecast."""
    grpo = {
        "problems": "problems/bench",
        "grader": "arithmetic",
        "unscored": "drop",
        "rewards": {"grade": 1},
        "steps": 1,
    }
    further = {**SMALL["sft/cold"], "model": "sft/cold"}
    made = planned(small, "grpo/x", **{"sft/more": further, "grpo/x": {**grpo, "model": "sft/more", "group-size": 4}})
    (sentence,) = made.stages["grpo/x"].shows
    assert sentence.startswith("idle groups at the start, by grades alone: ")
    assert "% of 4 or" in sentence and "% of 8 rollouts (2 attempts at each of 12 of 12 problems" in sentence
    assert sentence.endswith("by sft/cold: grades/cold)")
    other = planned(small, "grpo/x", **{"grpo/x": {**grpo, "model": "base/tiny"}})
    assert other.stages["grpo/x"].shows == []


def test_plan_warns_of_a_benchmark_that_is_trained_on():
    """Only if both tables are of the same rows, without a division by statements, and neither is decontaminated."""
    config = {
        "problems/all": {"source": "arithmetic", "rows": 20},
        "problems/bench": {"source": "problems/all", "keep": [{"first": 4}]},
        "problems/cleaned": {"source": "problems/all", "decontaminate": ["problems/bench"]},
        "problems/low": {"source": "problems/all", "keep": [{"statement-share": [0, 0.5]}]},
        "problems/high": {"source": "problems/all", "keep": [{"statement-share": [0.5, 1]}]},
        "problems/other": {"source": "arithmetic", "split": "test", "rows": 4},
        "base/b": {"source": "scratch", "problems": "problems/all"},
    }
    for name, table in {"seen": "all", "cleaned": "cleaned", "low": "low"}.items():
        config[f"examples/{name}"] = {"problems": f"problems/{table}"}
        config[f"sft/{name}"] = {"model": "base/b", "examples": f"examples/{name}", "steps": 1, "learning-rate": 1e-3}
    score = {"sampling": {"greedy": {"temperature": 0}}, "grader": "arithmetic", "metrics": ["avg-at-k"]}
    cases = {"seen": ["bench", "other"], "cleaned": ["bench"], "low": ["high"]}
    for name, tables in cases.items():
        config[f"scores/{name}"] = {**score, "models": [f"sft/{name}"], "problems": [f"problems/{t}" for t in tables]}
    warned = [*warn_of_shared_rows(expand({"test": config}), [f"scores/{name}" for name in cases])]
    assert len(warned) == 1 and "problems/bench scores sft/seen, which is trained on problems/all" in warned[0]
    assert "`decontaminate: [problems/bench]` in problems/all" in warned[0]
