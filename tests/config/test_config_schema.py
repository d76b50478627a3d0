"""Test the JSON Schema of configuration files."""

import json

import pytest
import yaml
from jsonschema import Draft202012Validator

from mill import ROOT
from proofmill.config import config_schema
from proofmill.config.lists import LISTS
from proofmill.rewards.rewards import Reward, each

FILES = [ROOT / "config.yaml", *sorted((ROOT / "workflow/recipes").glob("*.yaml"))]


def faults(text: str) -> list[str]:
    """Return the schema's errors for a configuration, as editors find them: a date is a text."""
    read = json.loads(json.dumps(yaml.safe_load(text), default=str))
    return [fault.message for fault in Draft202012Validator(config_schema.schema()).iter_errors(read)]


def test_schema_file_is_in_step_with_the_code():
    """workflow/config.schema.json matches the dataclasses and registries; `make docs` regenerates it."""
    assert (ROOT / config_schema.PATH).read_text(encoding="utf-8") == config_schema.text(), "run `make docs`"
    Draft202012Validator.check_schema(json.loads(config_schema.text()))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_schema_accepts_shipped_recipes_which_name_it(file):
    """Every shipped recipe file is valid, and its first line has the path of the schema."""
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
        "sft/a: {model: base/b, examples: examples/c, batch-size: 0}",
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
    """Unknown keys, kinds, names and references, missing fields, and values outside limits are refused."""
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
    """`like` replaces required fields, null is a default, and a name may have an argument."""
    assert faults(f"_anything: 1\nmine: {{with: [other], {entry}}}") == []


def test_schema_knows_the_users_own_parts(monkeypatch):
    """The schema of `proofmill manual --schema` accepts plugin rewards."""
    entry = "grpo/a: {like: grpo/b, rewards: {brief: 1}}"
    assert faults(f"mine: {{{entry}}}")
    monkeypatch.setitem(LISTS["rewards"], "brief", Reward(each(lambda rollout: 1.0), "1 for all"))
    assert faults(f"mine: {{{entry}}}") == []
