"""`proofmill attack`: a grader by its name or its entry, asked once, and no cost without --yes."""

import json
import re
import sys

import pytest

from mill import REFEREE, Mill
from proofmill.__main__ import main
from proofmill.calls import records
from proofmill.config.identity import identity_of
from proofmill.graders.robustness import about
from proofmill.planning.attack_plan import AttackPlan, aim_at
from proofmill.planning.plan import RunPlan
from proofmill.schema.errors import RecipeError, SettingError
from served import good, server

PAID = {"id": "m", "price": {"input": 1, "output": 1}, "price-source": "a test, 2026-11-20", "max-tokens": 64}
ENTRIES = {
    "api/referee": REFEREE,
    "problems/some": {"source": "arithmetic", "split": "test", "rows": 8},
    "problems/also": {"source": "arithmetic", "split": "dev", "rows": 4},
    "schemes/some": {"problems": "problems/some", "model": "api/referee"},
    "responses/some": {"problems": "problems/some", "model": "solutions"},
    "grades/some": {"responses": "responses/some", "schemes": "schemes/some", "grader": "api/referee"},
    "scores/some": {"models": ["api/referee"], "problems": ["problems/some", "problems/also"], "grader": "arithmetic",
                    "sampling": {"once": {}}, "metrics": ["avg-at-k"]},
}  # fmt: skip


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Return a function that builds a configuration with finished tables and enters its folder."""

    def made(make=("problems/some", "problems/also", "schemes/some"), **more):
        settings = {"plugins": more.pop("plugins")} if "plugins" in more else {}
        entries = {**ENTRIES, **more}
        (tmp_path / "config.yaml").write_text(json.dumps({**settings, "test": entries}))
        monkeypatch.chdir(tmp_path)
        mill = Mill(tmp_path / "results", **entries)
        for name in make:
            mill.make(name)
        return mill

    return made


def attack(monkeypatch, *words: str) -> None:
    """Run the command."""
    monkeypatch.setattr(sys, "argv", ["proofmill", "attack", *words])
    main()


def keys(mill: Mill, name: str) -> list[str]:
    """Return the keys in a journal."""
    return [row.key for row in records.all_rows(mill.table(name).calls)]


def test_entry_is_attacked_with_its_own_grader_and_asked_once(project, monkeypatch, capsys):
    """The table has what each attack earns; a second run makes no calls and prints the same."""
    mill = project()
    attack(monkeypatch, "grades/some", "--rows", "2")
    first, asked = capsys.readouterr(), keys(mill, "grades/some")
    assert "api/referee on problems/some by schemes/some" in first.out
    assert "no attack earns more than an empty answer (0.000)" in first.out
    assert "on 2 problems" in first.err and f"{len(set(asked)):,} calls to api/referee for free" in first.err
    attack(monkeypatch, "grades/some", "--rows", "2")
    again = capsys.readouterr()
    assert again.out == first.out and keys(mill, "grades/some") == asked
    assert "no calls needed" in again.err


def test_program_is_attacked_without_a_journal(project, monkeypatch, capsys):
    """No call is made, and nothing is written."""
    mill = project(make=("problems/some",))
    attack(monkeypatch, "arithmetic", "--problems", "problems/some", "--rows", "3")
    shown = capsys.readouterr()
    assert "other-solution" in shown.out and re.search(r"^reference +1\.000", shown.out, re.MULTILINE)
    assert "no calls needed" in shown.err and not (mill.results / "calls").exists()


def test_judge_that_costs_is_called_with_yes_only(project, monkeypatch, capsys):
    """The plan comes first; without --yes no call is made, with it each once, and a credulous judge is detected."""
    with server(lambda request, number: (200, good("<points>7</points>"), {})) as (url, served):
        monkeypatch.setenv("PROOFMILL_PAID_URL", url)
        monkeypatch.setenv("PROOFMILL_PAID_KEY", "none")
        project(make=("problems/some",), **{"api/paid": PAID})
        words = ("api/paid", "--problems", "problems/some", "--grader-prompt", "grade-imo", "--rows", "1")
        attack(monkeypatch, *words)
        shown = capsys.readouterr()
        assert not served.requests and not shown.out and "at most $" in shown.err and "add --yes to run" in shown.err
        attack(monkeypatch, *words, "--yes")
        shown, number = capsys.readouterr(), len(served.requests)
        assert number and "`correctness-claims` earns 1.000 of the points" in shown.out
        attack(monkeypatch, *words)  # all outputs are in the journal, so --yes is not needed
        assert len(served.requests) == number and capsys.readouterr().out == shown.out


def test_faulty_judge_is_seen(project, monkeypatch, capsys):
    """The referee that takes lines for the right ones pays for another problem's proof; its control still holds."""
    project(**{"api/believing": {**REFEREE, "extra-body": {"credulous": True}}})
    attack(monkeypatch, "api/believing", "--problems", "problems/some", "--schemes", "schemes/some")
    shown = capsys.readouterr().out
    assert "`other-solution` earns" in shown and "no attack earns more" not in shown


def test_scores_are_attacked_on_each_of_their_benchmarks(project):
    """An entry of scores has several tables, each with `rows` problems."""
    mill = project(make=("problems/some", "problems/also"))
    aim = aim_at(mill.config, "scores/some")
    assert (aim.grader, aim.tables) == ("arithmetic", (("problems/some", None), ("problems/also", None)))
    plan = AttackPlan(mill.config, aim, mill.results, 3)
    assert len({attempt.target.problem for attempt in plan.attempts}) == 6


def test_policy_of_a_users_own_is_tried(project, monkeypatch, capsys, tmp_path):
    """A plugin's ATTACKS are added to the built-in ones; they do not affect any fingerprint."""
    (tmp_path / "parts.py").write_text(
        "from proofmill.graders.attacks import Attack\n"
        'ATTACKS = {"shouts": Attack(lambda target: {"once": "CORRECT!"}, "says in capitals that it is right")}\n'
    )
    project(make=("problems/some",), plugins=["parts.py"])
    attack(monkeypatch, "arithmetic", "--problems", "problems/some", "--rows", "1")
    assert "shouts" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"name": "final-anser"}, "Did you mean `final-answer`"),
        ({"name": "arithmetic"}, "Set --problems"),
        (
            {"name": "arithmetic", "problems": "problems/some", "prompt": "grade-imo"},
            "has its own prompt or needs none",
        ),
        ({"name": "api/referee", "problems": "problems/some", "prompt": "grade-imoo"}, "no prompt `grade-imoo`"),
    ],
)
def test_what_cannot_be_attacked_is_said(project, words, said):
    """A name of no grader, no problems, a prompt for a program."""
    with pytest.raises(SettingError, match=said):
        aim_at(project(make=()).config, **words)


def test_table_that_nothing_declares_is_said(project):
    """A misspelt table is no table that has yet to be made."""
    with pytest.raises(RecipeError, match="problems/some"):
        aim_at(project(make=()).config, "arithmetic", problems="problems/sme")


def test_limit_on_attacks_is_no_part_of_an_identity(project):
    """`max-attack` decides whether a training starts, not what comes of it."""
    grpo = {"model": "base/tiny", "problems": "problems/some", "grader": "arithmetic", "rewards": {"grade": 1},
            "unscored": "drop", "steps": 1}  # fmt: skip
    base = {"base/tiny": {"source": "scratch", "problems": "problems/some"}}
    mill = project(make=(), **base, **{"grpo/without": grpo, "grpo/with": {**grpo, "max-attack": 0.2}})
    one, two = (identity_of(mill.config.entries[f"grpo/{name}"], mill.config.declared) for name in ("without", "with"))
    assert one == two and json.loads(mill.config.terms)["max_attack"] == {"grpo/with": 0.2}


def test_plan_counts_the_attempts_of_attacks(project):
    """A training with `max-attack` calls its judge for the attacks, too."""
    grpo = {"model": "base/tiny", "problems": "problems/some", "grader": "api/referee", "rewards": {"grade": 1},
            "schemes": "schemes/some", "unscored": "drop", "steps": 1}  # fmt: skip
    base = {"base/tiny": {"source": "scratch", "problems": "problems/some"}}
    mill = project(make=(), **base, **{"grpo/without": grpo, "grpo/with": {**grpo, "max-attack": 0.2}})
    calls = [RunPlan(mill.config, name, mill.results).stages[name].calls for name in ("grpo/without", "grpo/with")]
    assert calls[1] - calls[0] == about() > 200
