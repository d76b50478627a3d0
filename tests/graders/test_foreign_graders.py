"""Attacks on graders of others: reward functions and judges, called as their projects call them."""

import sys

import pytest

from proofmill import __main__ as command
from proofmill.graders import foreign_graders as attacked
from proofmill.schema.errors import SettingError
from served import good, server

REWARDS = r"""
import math, re

def exact(completions, answer, **_):
    boxes = [re.findall(r"\\boxed\{(.*)\}", talk[0]["content"]) for talk in completions]
    return [7.0 if len(found) == 1 and found[0] == gold else 0.0 for found, gold in zip(boxes, answer)]

def lenient(completions, answer):
    return [float(gold in text) for text, gold in zip(completions, answer)]

def fragile(completions, answer):
    if any(len(text) > 3000 for text in completions):
        raise RuntimeError("too long")
    return [None if not text.strip() else math.nan if "authority" in text else float(gold in text) for text, gold in zip(completions, answer)]

def broken(completions):
    raise ValueError("never")
"""


@pytest.fixture
def rewards(tmp_path) -> str:
    (tmp_path / "rewards.py").write_text(REWARDS)
    return str(tmp_path / "rewards.py")


def shares(results) -> dict[str, float | None]:
    return {result.attack: result.share for result in results}


def test_exact_reward_pays_for_the_reference_alone(rewards):
    """Points are shares of the largest reward."""
    earned = shares(attacked.attack_reward(f"{rewards}:exact", None, None, 8, talk=True))
    assert earned.pop("reference") == 1.0 and earned.pop("small-integers") == pytest.approx(1 / 8)
    assert set(earned.values()) == {0.0}


def test_lenient_reward_pays_for_several_boxes(rewards):
    """A reward that searches for the answer; it takes texts."""
    earned = shares(attacked.attack_reward(f"{rewards}:lenient", None, None, 8, talk=False))
    assert earned["multiple-boxes"] == earned["reference"] == 1.0 and earned["empty"] == 0.0


def test_failure_and_none_are_no_grades(rewards):
    """An exception costs the texts that raise it; None and NaN have no grade."""
    results = {r.attack: r for r in attacked.attack_reward(f"{rewards}:fragile", None, None, 2, talk=False)}
    assert results["padding"].share is None and results["padding"].unscored == 1.0
    assert results["empty"].unscored == 1.0 and results["reference"].share == 1.0
    with pytest.raises(SettingError, match=r"fails for every text \(ValueError: never\)"):
        attacked.attack_reward(f"{rewards}:broken", None, None, 1, talk=True)


def test_own_problems_are_attacked(rewards, tmp_path):
    """Rows of a file with statements and answers; a file without answers is refused."""
    file = tmp_path / "p.jsonl"
    file.write_text('{"statement": "Name the largest.", "answer": "largest"}\n')
    assert shares(attacked.attack_reward(f"{rewards}:lenient", None, file, 8, talk=False))["restated"] == 1.0
    file.write_text('{"statement": "Name the largest."}\n')
    with pytest.raises(SettingError, match="has no answers"):
        attacked.attack_reward(f"{rewards}:lenient", None, file, 8, talk=False)


def test_commands_name_one_grader(rewards, monkeypatch, capsys, tmp_path):
    """`--reward` prints the table; two graders, or none, are refused; `--endpoint` needs a model."""
    monkeypatch.chdir(tmp_path)

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["proofmill", "attack", *words])
        command.main()
        return capsys.readouterr().out

    assert "`multiple-boxes` earns 1.000 of the points on 8 problems" in run(
        "--reward", f"{rewards}:lenient", "--texts"
    )
    for words in ([], ["final-answer", "--reward", f"{rewards}:exact"]):
        with pytest.raises(SystemExit, match="expected an entry or grader, or one of --reward"):
            run(*words)
    (tmp_path / "config.yaml").write_text("r: {problems/p: {source: arithmetic, rows: 4}}\n")
    with pytest.raises(SystemExit, match="expected --model"):
        run("--endpoint", "http://127.0.0.1:1/v1", "--problems", "problems/p")


def test_judge_at_an_endpoint_is_attacked(monkeypatch, capsys, tmp_path):
    """A judge that gives all points pays for everything; without --yes, no call is made. Another address is another judge."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.yaml").write_text("r: {problems/p: {source: arithmetic, rows: 4}}\n")
    words = ["problems/p", "--rows", "2", "--grader-prompt", "grade-imo"]
    with server(lambda *_: (200, good("<points>7</points>"), {})) as (url, asked):
        monkeypatch.setattr(sys, "argv", ["python", "-m", "x"])
        from proofmill import problems
        from proofmill.artifacts import jobs
        from proofmill.config import yaml_files
        from proofmill.config.config import expand
        from proofmill.config.identity import identity_of

        config = expand(yaml_files.read("config.yaml"))
        identity = identity_of(config.entries["problems/p"], config.declared)
        jobs.make(problems.main, "problems/p", identity, tmp_path / "results")
        line = ["proofmill", "attack", "--endpoint", url, "--model", "m", "--problems", *words]
        monkeypatch.setattr(sys, "argv", line)
        command.main()
        assert not asked.requests
        monkeypatch.setattr(sys, "argv", [*line, "--yes"])
        command.main()
        assert "earns 1.000 of the points" in capsys.readouterr().out
        assert {request["model"] for request in asked.requests} == {"m"}
    with server(lambda *_: (200, good("<points>0</points>"), {})) as (url, asked):
        line[3] = url
        monkeypatch.setattr(sys, "argv", [*line, "--yes"])
        command.main()
        assert asked.requests and "earns 1.000 of the points" not in capsys.readouterr().out
