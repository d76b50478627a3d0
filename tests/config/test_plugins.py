"""Test plugins: loading, naming, identity, and errors with their line."""

import json

import pytest

from mill import REFEREE, SMALL
from proofmill import __main__ as command
from proofmill.config import manual, plugins
from proofmill.config.config import expand
from proofmill.config.identity import identity_of
from proofmill.config.lists import LISTS
from proofmill.config.yaml_files import read
from proofmill.prompts import templates
from proofmill.schema.errors import RecipeError

PARTS = '''
"""My own parts."""

from proofmill.filters.example_filters import each as each_row
from proofmill.graders.program_graders import ProgramGrader, grades
from proofmill.metrics.kernels import OfAttempts
from proofmill.rewards.rewards import Reward, each
from proofmill.schema.registry_items import Named
from proofmill.sources.loaders import Loader

LIMIT = 40  # characters


def brief(rollout, words):
    return float(len(rollout.submission.final.split()) <= words)


def long_statement(row):
    return "too short" if len(row["statement"]) < LIMIT else None


def lines(submission):
    found = submission.final.count(".")
    return min(7, found), f"{found} sentences"


def load(entry):
    for number in range(entry.rows):
        yield {"statement": f"Prove that {number} + 1 > {number}.", "solution": "It is clear.", "question_type": "proof"}


REWARDS = {"brief": Reward(each(brief), "1 for an answer of at most `words` words, else 0", {"words": 100})}
FILTERS = {"long-statement": Named(long_statement, "the statement has 40 characters or more")}
EXAMPLE_FILTERS = {"has-digit": Named(each_row(lambda row: any(map(str.isdigit, row["text"]))), "the text has a digit")}
SCHEME_FILTERS = {"has-text": Named(lambda row: bool(row["scheme"]), "there is a scheme")}
GRADERS = {"sentences": ProgramGrader(7, "a point for each sentence, at most 7", grades(lines))}
METRICS = {"right-digits": Named(OfAttempts(lambda row: float("7" in (row["answer"] or "")), 1.0), "answers with a 7")}
SOURCES = {"successors": Loader(load, "n + 1 > n", frozenset({"rows"}))}
PROMPTS = "prompts"
'''
PROMPT = "---\nneeds: [statement]\n---\nShow it in one line.\n\n<problem>\n{{ statement }}\n</problem>\n"
MINE = {
    "problems/mine": {"source": "successors", "rows": 30},
    "problems/long": {"source": "problems/train", "keep": ["long-statement"]},
    "problems/plain": {"source": "problems/train", "keep": ["has-statement"]},
    "responses/mine": {**SMALL["responses/cold"], "prompt": "one-line"},
    "grades/mine": {"responses": "responses/cold", "grader": "sentences"},
    "examples/mine": {"grades": "grades/mine", "keep": ["has-digit"]},
    "scores/mine": {"grades": ["grades/mine"], "metrics": ["avg-at-k", "right-digits"]},
    "grader/two": {"judges": ["sentences"], "escalate-to": "api/referee"},
    "grades/two": {"responses": "responses/cold", "schemes": "schemes/bench", "grader": "grader/two"},
    "grpo/mine": {
        "model": "sft/cold", "problems": "problems/train", "grader": "sentences", "rewards": {"brief": {"words": 5}},
        "unscored": "drop", "steps": 2, "group-size": 2, "problems-per-step": 2, "max-tokens": 8,
    },
}  # fmt: skip


@pytest.fixture
def parts(tmp_path):
    """Yield a plugin file next to a folder of prompts. Unloads all plugins afterwards."""
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts/one-line.md").write_text(PROMPT)
    (tmp_path / "my_parts.py").write_text(PARTS)
    yield tmp_path / "my_parts.py"
    plugins.use([])


def book(parts, **more):
    api = {"api/referee": {"id": "referee-1", "program": "referee", "price": {"input": 0, "output": 0}}}
    return expand({"plugins": [str(parts)], "test": {**api, **SMALL, **MINE, **more}})


def identities(parts):
    made = book(parts)
    return {name: identity_of(entry, made.declared) for name, entry in made.entries.items()}


def test_parts_are_named_and_checked_like_ours(parts):
    """Plugin parts are known only to a configuration that lists the file."""
    assert "grpo/mine" in book(parts).entries and "one-line" in templates.names()
    with pytest.raises(RecipeError, match="`rewards` names `brief`; expected one of"):
        expand({"test": {**SMALL, "api/referee": {"id": "r", "price": "unknown"}, "grpo/mine": MINE["grpo/mine"]}})
    assert not [name for word in LISTS for name in LISTS[word] if plugins.digest_of(word, name)]
    assert "one-line" not in templates.names()


@pytest.mark.parametrize(
    ("entry", "fault"),
    [
        ({"problems/x": {"source": "problems/train", "keep": [{"long-statement": 3}]}}, "has the argument 3"),
        ({"grpo/x": {**MINE["grpo/mine"], "rewards": {"brief": {"word": 5}}}}, "has the argument `word`"),
        (
            {"grpo/x": {**MINE["grpo/mine"], "rewards": {"brief": {"words": "many"}}}},
            "`brief`: .*not supported between",
        ),
        ({"problems/x": {"source": "successors", "path": "a.jsonl"}}, "`path` is not read by source `successors`"),
        (
            {"grades/x": {**MINE["grades/mine"], "grader-prompt": "grade-strict"}},
            "`grader-prompt` is set and `sentences` has its own",
        ),
    ],
)
def test_arguments_of_parts_are_checked_like_ours(parts, entry, fault):
    """Arguments of plugin parts are checked when the configuration is read."""
    with pytest.raises(RecipeError, match=fault):
        book(parts, **entry)


NAMED = {
    "LIMIT = 40  # characters": ("LIMIT = 41", {"problems/long"}),
    'return "too short"': ('return "too brief"', {"problems/long"}),
    "<= words)": ("< words)", {"grpo/mine"}),
    '{"words": 100}': ('{"words": 99}', {"grpo/mine"}),
    'count(".")': ('count(",")', {"grades/mine", "grades/two", "grpo/mine"}),
    "str.isdigit": ("str.isdecimal", {"examples/mine"}),
    '"7" in': ('"8" in', {"scores/mine"}),
    "It is clear.": ("It is plain.", {"problems/mine"}),
    "# characters": ("# of a statement", set()),
    '"""My own parts."""': ('"""Parts of mine."""', set()),
    "def brief(rollout, words):": ("def brief( rollout,words ):", set()),
}


@pytest.mark.parametrize("old", NAMED)
def test_edit_of_a_part_changes_what_names_it_and_nothing_else(parts, old):
    """An edit changes the identity of the entries that depend on it; a comment changes none."""
    new, expected = NAMED[old]
    before = identities(parts)
    parts.write_text(PARTS.replace(old, new))
    after = identities(parts)
    assert {name for name in before if before[name] != after[name]} == expected


def test_edit_of_an_imported_module_counts(parts):
    """A module next to the file belongs to the parts that import it."""
    module = parts.parent / "my_numbers.py"
    module.write_text("LIMIT = 40\n")
    parts.write_text(PARTS.replace("LIMIT = 40  # characters", "from my_numbers import LIMIT"))
    before = identities(parts)
    module.write_text("LIMIT = 50\n")
    after = identities(parts)
    assert {name for name in before if before[name] != after[name]} == {"problems/long"}


def test_file_that_changes_itself_counts_as_a_whole(parts):
    """Parts depend on the full file if their dictionary is computed, or after a statement with unknown effects."""
    parts.write_text(PARTS + "\nfor name in ['a']:\n    FILTERS[name] = FILTERS['long-statement']\n")
    before = identities(parts)
    parts.write_text(PARTS + "\nfor name in ['b']:\n    FILTERS[name] = FILTERS['long-statement']\n")
    after = identities(parts)
    assert {"problems/long", "grades/mine", "grpo/mine"} <= {name for name in before if before[name] != after[name]}


def test_identity_without_parts_is_as_it_was(parts):
    """Plugins do not change the identity of entries that do not name their parts."""
    with_plugin = identities(parts)
    alone = expand(
        {
            "test": {
                "api/referee": {"id": "referee-1", "program": "referee", "price": {"input": 0, "output": 0}},
                **SMALL,
            }
        }
    )
    assert all(with_plugin[name] == identity_of(entry, alone.declared) for name, entry in alone.entries.items())
    assert set(json.loads(with_plugin["grpo/mine"])["plugins"]) == {"graders/sentences", "rewards/brief"}
    assert set(json.loads(with_plugin["grades/two"])["plugins"]) == {"graders/sentences"}


@pytest.mark.long
def test_stages_with_own_parts_are_made(parts, small, mill):
    """Plugin sources, filters, prompts, graders, metrics and rewards work in a run."""
    made = mill({**SMALL, **MINE}, plugins=[str(parts)])
    made.results = small.results
    made.make(
        "problems/mine", "problems/long", "responses/mine", "grades/mine", "examples/mine", "scores/mine", "grpo/mine"
    )
    assert len(made.table("problems/mine").rows()) == 30
    rows = made.table("problems/long").rows(kept=False)
    assert all((row["dropped"] == "long-statement") == (len(row["statement"]) < 40) for row in rows)
    assert {row["evidence"] for row in rows if row["dropped"]} <= {"too short"}
    assert made.table("responses/mine").rows()[0]["request_messages"][0]["content"].startswith("Show it in one line.")
    grades = made.table("grades/mine").rows()
    assert {(row["max_points"], row["reason"]) for row in grades} <= {(7, "ok"), (7, "empty")}
    assert any("sentences" in row["verdict"] for row in grades)
    metrics = {row["metric"] for row in made.table("scores/mine").rows()}
    assert "right-digits" in metrics
    assert "rewards/brief/mean" in {row["metric"] for row in made.table("grpo/mine").rows()}


def test_parts_stand_in_the_manual(parts):
    """The manual's page includes plugin parts."""
    book(parts)
    pages = manual.pages()
    assert "| `brief` | `words` (100) | 1 for an answer of at most `words` words, else 0 |" in pages["grpo.md"]
    assert "| `long-statement` |" in pages["problems.md"] and "| `sentences` | 7 |" in pages["grades.md"]


def test_manual_is_printed_with_the_parts_of_a_configuration(parts, monkeypatch, capsys):
    """`proofmill manual grpo` includes plugin rewards; an unknown page is refused with a suggestion."""
    monkeypatch.chdir(parts.parent)
    (parts.parent / "config.yaml").write_text("plugins: [my_parts.py]\n")
    monkeypatch.setattr("sys.argv", ["proofmill", "manual", "grpo"])
    command.main()
    assert "| `brief` | `words` (100) |" in capsys.readouterr().out
    monkeypatch.setattr("sys.argv", ["proofmill", "manual", "grop"])
    with pytest.raises(SystemExit, match=r"SettingError: manual grop: no such page; .*Did you mean `grpo`"):
        command.main()


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("def f(:\n", r"my_parts.py:1: is not Python"),
        ("import no_such_module\n", r"my_parts.py:1: `import no_such_module` in <module> raised ModuleNotFoundError"),
        ("x = 1\ny = x / 0\n", r"my_parts.py:2: `y = x / 0` in <module> raised ZeroDivisionError"),
        ("REWARDS = ['brief']\n", r"`REWARDS` is a list; expected a dictionary"),
        ("FILTERS = {'brief': len}\n", r"`FILTERS\['brief'\]` is a builtin_function_or_method; expected a proofmill"),
        (
            "from proofmill.schema.registry_items import Named\nFILTERS = {'is-proof': Named(len, 'x')}\n",
            "`is-proof` of FILTERS exists already",
        ),
        (
            "from proofmill.schema.registry_items import Named\nFILTERS = {'a/b': Named(len, 'x')}\n",
            "`a/b` of FILTERS is not a valid name",
        ),
        (
            "from proofmill.schema.registry_items import Named\nFILTERS = {'a': Named(len, 'x', 1)}\n",
            "my_parts.py:2: .* raised ValueError: `argument` is 1, which is not the form .*`none`, `number`",
        ),
        ("PROMPTS = 'nowhere'\n", "nowhere is not a folder"),
    ],
)
def test_faulty_file_is_named_with_its_line(parts, text, fault):
    """A faulty plugin is refused, and none of its parts is loaded."""
    parts.write_text(text)
    with pytest.raises(RecipeError, match=fault):
        book(parts)
    expand({"test": {"problems/x": {"source": "arithmetic", "rows": 1}}})


def test_missing_file_is_named(tmp_path):
    """A missing plugin file is refused."""
    with pytest.raises(RecipeError, match=r"nothing.py: No such file or directory; expected a Python file"):
        expand({"plugins": [str(tmp_path / "nothing.py")], "test": {"problems/x": {"source": "arithmetic", "rows": 1}}})


def test_file_that_is_named_in_two_ways_is_one(parts, tmp_path):
    """An overlay may list the same plugin by another path or a link."""
    link = tmp_path / "link.py"
    link.symlink_to(parts)
    plugins.use([str(parts), str(link), f"{parts.parent}/../{parts.parent.name}/{parts.name}"])
    assert "brief" in LISTS["rewards"]


def test_error_of_a_part_is_blamed_on_its_line(parts, small, mill):
    """An error in a plugin function is reported with the plugin's line."""
    parts.write_text(
        PARTS.replace(
            'found = submission.final.count(".")', "found = 1 // (len(submission.final) - len(submission.final))"
        )
    )
    made = mill({**SMALL, **MINE}, plugins=[str(parts)])
    made.results = small.results
    blame = r"my_parts.py:2\d: `found = 1 // .*` in lines raised ZeroDivisionError"
    with pytest.raises(RecipeError, match=blame), plugins.blamed():
        made.make("grades/mine")


def test_grade_off_the_scale_is_a_mistake_of_the_grader(parts, small, mill):
    """A grader that exceeds its max points stops the stage, and no table is written."""
    parts.write_text(PARTS.replace("min(7, found)", "8"))
    made = mill({**SMALL, **MINE, "grades/off": MINE["grades/mine"]}, plugins=[str(parts)])
    made.results = small.results
    with pytest.raises(RecipeError, match="grader `sentences` returned 8; expected 0 to 7"):
        made.make("grades/off")
    assert not made.table("grades/off").path.exists()


def test_paths_are_from_the_file_that_names_them(parts, tmp_path):
    """Plugin paths are relative to the recipe file; several plugins are combined."""
    (parts.parent / "recipe.yaml").write_text(
        "plugins: [my_parts.py]\nmine:\n  problems/mine: {source: successors, rows: 3}\n"
    )
    (tmp_path / "config.yaml").write_text(f"recipes: [{parts.parent}/recipe.yaml]\nplugins: []\n")
    assert "problems/mine" in expand(read(tmp_path / "config.yaml")).entries


SCAFFOLD = """
from proofmill.scaffolds.scaffolds import Calls, Scaffold


def first(play, tries):
    steps = yield from play.ask_all([play.solve(f"solve {n}") for n in range(tries)])
    return play.answer(steps[0])


SCAFFOLDS = {"first": Scaffold(first, "The first.", {"tries": 2}, (), ("solve",), lambda tries: Calls({}, {}, 1))}
"""


@pytest.mark.parametrize("config", ["first", {"name": "rsa", "roles": {"solver": {"name": "first", "tries": 3}}}])
def test_edited_scaffold_is_another_entry(tmp_path, config):
    """The code of a plugin scaffold is in the identity of the entries that use it, also in a role; built-in code is not."""

    def identity(code: str, scaffold=config) -> str:
        (tmp_path / "scaffolds.py").write_text(code)
        attempts = {"problems": "problems/train", "model": "sft/cold", "scaffold": scaffold}
        book = expand(
            {
                "plugins": [str(tmp_path / "scaffolds.py")],
                "r": {"api/referee": REFEREE, **SMALL, "responses/x": attempts},
            }
        )
        return identity_of(book.entries["responses/x"], book.declared)

    before = identity(SCAFFOLD)
    assert before == identity(f"# a comment\n{SCAFFOLD}")
    assert before != identity(SCAFFOLD.replace("steps[0]", "steps[1]"))
    assert "plugins" not in json.loads(identity(SCAFFOLD, "rsa"))


# --------------------------------------------------------------------------------------------- modules that plugins import

NUMBER = "from proofmill.schema.registry_items import Named\n{}\nFILTERS = {{'long': Named(lambda row: {}, 'x')}}\n"
# How a plugin comes to LIMIT of a module in its folder: its import and expression, the files, and the one with LIMIT.
IMPORTS = {
    "a module": ("from near import LIMIT", "LIMIT", {"near.py": "LIMIT = 1\n"}),
    "by its name": ("import near", "near.LIMIT", {"near.py": "LIMIT = 1\n"}),
    "a star": ("from near import *", "LIMIT", {"near.py": "LIMIT = 1\n"}),
    "a package": ("from pack import LIMIT", "LIMIT", {"pack/__init__.py": "LIMIT = 1\n"}),
    "a module of a package": (
        "from pack.sub import LIMIT", "LIMIT", {"pack/sub.py": "LIMIT = 1\n", "pack/__init__.py": ""},
    ),
    "a dotted name": (
        "import pack.sub.deep", "pack.sub.deep.LIMIT",
        {"pack/sub/deep.py": "LIMIT = 1\n", "pack/__init__.py": "", "pack/sub/__init__.py": ""},
    ),
    "a folder without __init__": ("import pack.sub", "pack.sub.LIMIT", {"pack/sub.py": "LIMIT = 1\n"}),
    "through __init__": (
        "import pack", "pack.LIMIT", {"pack/sub.py": "LIMIT = 1\n", "pack/__init__.py": "from .sub import LIMIT\n"},
    ),
    "a submodule by a star": (
        "from pack import *", "sub.LIMIT", {"pack/sub.py": "LIMIT = 1\n", "pack/__init__.py": "__all__ = ['sub']\n"},
    ),
    "relative to the package above": (
        "from pack.inner.a import LIMIT", "LIMIT",
        {
            "pack/sub.py": "LIMIT = 1\n", "pack/__init__.py": "", "pack/inner/__init__.py": "",
            "pack/inner/a.py": "from ..sub import LIMIT\n",
        },
    ),
    "a cycle": (
        "from one import LIMIT", "LIMIT", {"two.py": "LIMIT = 1\nimport one\n", "one.py": "import two\nLIMIT = two.LIMIT\n"},
    ),
    "a cycle with the plugin": (
        "SIZE = 1\nfrom near import LIMIT", "LIMIT()", {"near.py": "import my_parts\ndef LIMIT(): return 1\n"},
    ),
    "late": ("def late():\n    from near import LIMIT\n    return LIMIT", "late()", {"near.py": "LIMIT = 1\n"}),
    "a name in quotes": (
        "import importlib\nnear = importlib.import_module('near')", "near.LIMIT", {"near.py": "LIMIT = 1\n"},
    ),
    "through a name that is bound inside": ("x = (y := __import__('near'))", "y.LIMIT", {"near.py": "LIMIT = 1\n"}),
    "through text": ("import near as n", "eval('n').LIMIT", {"near.py": "LIMIT = 1\n"}),
}  # fmt: skip


def of_long(parts):
    """Return the digest of the filter `long`, and its result."""
    plugins.use([str(parts)])
    return plugins.digest_of("filters", "long"), LISTS["filters"]["long"].apply({})


@pytest.mark.parametrize(("imports", "value", "files"), IMPORTS.values(), ids=IMPORTS)
def test_module_of_the_folder_counts_and_runs_as_it_is_now(parts, imports, value, files):
    """An edit of an imported module changes the identity, and the edited code runs, for every form of import.

    The edit has the same size and the same second, so that cached bytecode would hide it.
    """
    for name, text in files.items():
        (parts.parent / name).parent.mkdir(exist_ok=True, parents=True)
        (parts.parent / name).write_text(text)
    parts.write_text(NUMBER.format(imports, value))
    before, first = of_long(parts)
    assert first == 1 and of_long(parts)[0] == before
    name = next(iter(files))
    (parts.parent / name).write_text(files[name].replace("1", "2"))
    after, second = of_long(parts)
    assert second == 2 and after != before
    (parts.parent / name).write_text(f"# a comment\n{files[name]}")
    assert of_long(parts) == (before, 1)


def test_module_that_a_part_does_not_reach_does_not_count(parts):
    """Other parts' modules and unused files do not change an identity; shared code does."""
    for name in ("near.py", "far.py", "spare.py"):
        (parts.parent / name).write_text("LIMIT = 1\n")
    parts.write_text(NUMBER.format("import near, sys\nimport far\nOTHER = far.LIMIT", "near.LIMIT"))
    before, _ = of_long(parts)
    for name in ("far.py", "spare.py"):
        (parts.parent / name).write_text("LIMIT = 2\n")
        assert of_long(parts)[0] == before
    parts.write_text(parts.read_text() + "if far.LIMIT:\n    print\n")
    before, _ = of_long(parts)
    (parts.parent / "far.py").write_text("LIMIT = 3\n")
    assert of_long(parts)[0] != before


def test_entry_that_is_laid_over_counts_as_a_whole_file(parts):
    """Parts of a dictionary with computed keys depend on the full file."""
    text = NUMBER.format("A = 1\nOTHERS = {}", "1").replace("'x')}", "'x'), **OTHERS}")
    parts.write_text(text)
    before, _ = of_long(parts)
    parts.write_text(text.replace("A = 1", "A = 2"))
    assert of_long(parts)[0] != before


@pytest.mark.parametrize("name", ["random", "polars", "yaml"])
def test_module_that_hides_another_is_refused(parts, name):
    """A module with the name of a standard or installed module is refused."""
    (parts.parent / f"{name}.py").write_text("LIMIT = 1\n")
    parts.write_text(NUMBER.format(f"import {name}", f"{name}.LIMIT"))
    with pytest.raises(RecipeError, match=rf"{name}.py: another module has the name `{name}`; expected a unique name"):
        of_long(parts)


def test_modules_of_two_folders_are_told_apart(parts, tmp_path):
    """Two plugins whose modules have the same name are refused together, and work in sequence."""
    (tmp_path / "other").mkdir()
    for folder, limit in ((parts.parent, 1), (tmp_path / "other", 2)):
        (folder / "near.py").write_text(f"LIMIT = {limit}\n")
        (folder / "my_parts.py").write_text(NUMBER.format("import near", "near.LIMIT"))
    assert (of_long(parts)[1], of_long(tmp_path / "other/my_parts.py")[1], of_long(parts)[1]) == (1, 2, 1)
    (tmp_path / "other/more.py").write_text(NUMBER.format("import near", "near.LIMIT").replace("'long'", "'longer'"))
    with pytest.raises(RecipeError, match="another module has the name `near`"):
        plugins.use([str(parts), str(tmp_path / "other/more.py")])


def test_dataclass_of_a_plugin_is_made(parts):
    """Dataclasses in a plugin find their module."""
    parts.write_text(
        NUMBER.format(
            "from __future__ import annotations\nfrom dataclasses import dataclass, KW_ONLY\n\n@dataclass\nclass A:\n    _: KW_ONLY\n    x: int = 1",
            "A(x=1).x",
        ).replace(
            "from proofmill.schema.registry_items import Named\nfrom __future__ import annotations\n",
            "from __future__ import annotations\nfrom proofmill.schema.registry_items import Named\n",
        )
    )
    assert of_long(parts)[1] == 1
