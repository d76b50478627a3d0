"""The JSON Schema of configuration files: what editors accept and refuse."""

import json

import pytest
import yaml
from jsonschema import Draft202012Validator

from mill import ROOT
from proofmill.recipes import config_schema
from proofmill.recipes.lists import LISTS
from proofmill.rewards.rewards import Reward, each

FILES = [ROOT / "config.yaml", *sorted((ROOT / "workflow/recipes").glob("*.yaml"))]


def faults(text: str) -> list[str]:
    """What the schema finds in a configuration."""
    return [fault.message for fault in Draft202012Validator(config_schema.schema()).iter_errors(yaml.safe_load(text))]


def test_schema_file_is_in_step_with_the_code():
    """workflow/config.schema.json says what the dataclasses and lists say; `make docs` rewrites it."""
    assert (ROOT / config_schema.PATH).read_text(encoding="utf-8") == config_schema.text(), "run `make docs`"
    Draft202012Validator.check_schema(json.loads(config_schema.text()))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_schema_accepts_shipped_recipes_which_name_it(file):
    """Every shipped recipe file is valid, and its first line tells an editor where the schema is."""
    text = file.read_text(encoding="utf-8")
    assert faults(text) == []
    named = text.partition("\n")[0].removeprefix("# yaml-language-server: $schema=")
    assert (file.parent / named).resolve() == ROOT / config_schema.PATH


@pytest.mark.parametrize(
    "entry",
    [
        "sft/a: {model: base/b, examples: examples/c, step: 3}",
        "sft/a: {model: problems/b, examples: examples/c}",
        "sft/a: {examples: examples/c}",
        "sft/a: {model: base/b, examples: examples/c, batch: 0}",
        "sft/a: {model: base/b, examples: examples/c, schedule: cosinus}",
        "problems/a: {source: arithmetik}",
        "problems/a: {source: arithmetic, keep: [has-solutions]}",
        "problems/a: {source: arithmetic, keep: [statement-length]}",
        "problems/a: {source: arithmetic, keep: [{statement-length: 20}]}",
        "grpo/a: {model: sft/b, problems: problems/c, grader: rules, unscored: drop, steps: 1, rewards: {grades: 1}}",
        "scores/a: {grades: [grades/b], sampling: {s: {attempt: 2}}}",
        "api/a: {id: x, price: cheap}",
        "stf/a: {model: base/b}",
    ],
)
def test_schema_refuses_what_a_recipe_must_not_say(entry):
    """An unknown key, kind, name or reference, a missing field, a value outside its limits."""
    assert faults(f"mine: {{{entry}}}")


@pytest.mark.parametrize(
    "entry",
    [
        "sft/a: {like: sft/b, steps: 3}",
        "sft/a: {model: base/b, examples: examples/c, last-step: null}",
        "grades/a: {responses: responses/b, grader: final-answer}",
        "api/a: {id: x, price: {input: 1, output: 2.5, cached-input: 0}}",
        "problems/a: {source: problems/b, keep: [has-solution, {statement-length: [20, null]}]}",
    ],
)
def test_schema_accepts_other_ways_of_writing(entry):
    """`like` stands for required fields, null for a default, a name may have an argument."""
    assert faults(f"_anything: 1\nmine: {{with: [other], {entry}}}") == []


def test_schema_knows_the_users_own_parts(monkeypatch):
    """A reward of one's own is as good as ours in what `proofmill manual --schema` prints."""
    entry = "grpo/a: {like: grpo/b, rewards: {brief: 1}}"
    assert faults(f"mine: {{{entry}}}")
    monkeypatch.setitem(LISTS["rewards"], "brief", Reward(each(lambda rollout: 1.0), "1 for all"))
    assert faults(f"mine: {{{entry}}}") == []
