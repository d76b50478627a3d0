"""A user's own parts: loaded from a file, named like ours, part of the identity of what names them, blamed by their line."""

import json

import pytest

from mill import REFEREE, SMALL
from proofmill import __main__ as command
from proofmill.prompts import templates
from proofmill.recipes import manual, plugins
from proofmill.recipes.book import expand
from proofmill.recipes.identity import identity_of
from proofmill.recipes.lists import LISTS
from proofmill.recipes.yaml_files import read
from proofmill.schema.errors import RecipeError

PARTS = '''
"""My own parts."""

from proofmill.filters.examples import each as each_row
from proofmill.graders.programs import Program, marks
from proofmill.measures.measures import OfAttempts
from proofmill.rewards.rewards import Reward, each
from proofmill.schema.named import Named
from proofmill.sources.loaders import Source

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
        yield {"statement": f"Prove that {number} + 1 > {number}.", "solution": "It is clear.", "asks": "proof"}


REWARDS = {"brief": Reward(each(brief), "1 for an answer of at most `words` words, else 0", {"words": 100})}
FILTERS = {"long-statement": Named(long_statement, "the statement has 40 characters or more")}
SELECTORS = {"has-digit": Named(each_row(lambda row: any(map(str.isdigit, row["text"]))), "the text has a digit")}
DEMANDS = {"has-text": Named(lambda row: bool(row["scheme"]), "there is a scheme")}
GRADERS = {"sentences": Program(7, "a mark for each sentence, at most 7", marks(lines))}
MEASURES = {"right-digits": Named(OfAttempts(lambda row: float("7" in (row["answer"] or "")), 1.0), "answers with a 7")}
SOURCES = {"successors": Source(load, "n + 1 > n", frozenset({"rows"}))}
PROMPTS = "prompts"
'''
PROMPT = "---\nneeds: [statement]\n---\nShow it in one line.\n\n<problem>\n{{ statement }}\n</problem>\n"
MINE = {
    "problems/mine": {"source": "successors", "rows": 30},
    "problems/long": {"source": "problems/train", "keep": ["long-statement"]},
    "problems/plain": {"source": "problems/train", "keep": ["has-problem"]},
    "responses/mine": {**SMALL["responses/cold"], "prompt": "one-line"},
    "grades/mine": {"responses": "responses/cold", "grader": "sentences"},
    "examples/mine": {"grades": "grades/mine", "keep": ["has-digit"]},
    "scores/mine": {"grades": ["grades/mine"], "measures": ["avg-at-k", "right-digits"]},
    "grader/two": {"judges": ["sentences"], "escalate-to": "api/referee"},
    "grades/two": {"responses": "responses/cold", "schemes": "schemes/bench", "grader": "grader/two"},
    "grpo/mine": {
        "model": "sft/cold", "problems": "problems/train", "grader": "sentences", "rewards": {"brief": {"words": 5}},
        "unscored": "drop", "steps": 2, "group": 2, "problems-per-step": 2, "max-tokens": 8,
    },
}  # fmt: skip


@pytest.fixture
def parts(tmp_path):
    """A file of parts beside a folder of prompts; nobody's parts are in use afterwards."""
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
    """A file's parts are known while a configuration lists it, and by no other configuration."""
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
            {"grades/x": {**MINE["grades/mine"], "prompt": "grade-strict"}},
            "`prompt` is given and `sentences` has its own",
        ),
    ],
)
def test_arguments_of_parts_are_checked_like_ours(parts, entry, fault):
    """What config gives a user's part is tried before anything runs."""
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
    """One edited line changes the identity of the entries that rest on it; a comment changes none."""
    new, expected = NAMED[old]
    before = identities(parts)
    parts.write_text(PARTS.replace(old, new))
    after = identities(parts)
    assert {name for name in before if before[name] != after[name]} == expected


def test_edit_beside_a_part_counts_where_it_is_imported(parts):
    """A module beside the file is part of what imports it."""
    beside = parts.parent / "my_numbers.py"
    beside.write_text("LIMIT = 40\n")
    parts.write_text(PARTS.replace("LIMIT = 40  # characters", "from my_numbers import LIMIT"))
    before = identities(parts)
    beside.write_text("LIMIT = 50\n")
    after = identities(parts)
    assert {name for name in before if before[name] != after[name]} == {"problems/long"}


def test_file_that_changes_itself_counts_as_a_whole(parts):
    """Parts of a dictionary that is not written out, or after a statement that may do anything, rest on the whole file."""
    parts.write_text(PARTS + "\nfor name in ['a']:\n    FILTERS[name] = FILTERS['long-statement']\n")
    before = identities(parts)
    parts.write_text(PARTS + "\nfor name in ['b']:\n    FILTERS[name] = FILTERS['long-statement']\n")
    after = identities(parts)
    assert {"problems/long", "grades/mine", "grpo/mine"} <= {name for name in before if before[name] != after[name]}


def test_identity_without_parts_is_as_it_was(parts):
    """Entries that name no part of the user's have the identity that they have without any plugin."""
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


def test_stages_with_own_parts_are_made(parts, small, mill):
    """A source, a filter, a prompt, a grader, a selector, a measure and a reward of one's own do their work."""
    made = mill({**SMALL, **MINE}, plugins=[str(parts)])
    made.results = small.results
    made.make(
        "problems/mine", "problems/long", "responses/mine", "grades/mine", "examples/mine", "scores/mine", "grpo/mine"
    )
    assert len(made.table("problems/mine").rows()) == 30
    rows = made.table("problems/long").rows(kept=False)
    assert all((row["dropped"] == "long-statement") == (len(row["statement"]) < 40) for row in rows)
    assert {row["evidence"] for row in rows if row["dropped"]} <= {"too short"}
    assert made.table("responses/mine").rows()[0]["history"][0]["content"].startswith("Show it in one line.")
    grades = made.table("grades/mine").rows()
    assert {(row["out_of"], row["reason"]) for row in grades} <= {(7, "ok"), (7, "empty")}
    assert any("sentences" in row["verdict"] for row in grades)
    measures = {row["measure"] for row in made.table("scores/mine").rows()}
    assert "right-digits" in measures
    assert "rewards/brief/mean" in {row["measure"] for row in made.table("grpo/mine").rows()}


def test_parts_stand_in_the_manual(parts):
    """What a user's part says of itself is in the manual's page, beside ours."""
    book(parts)
    pages = manual.pages()
    assert "| `brief` | `words` (100) | 1 for an answer of at most `words` words, else 0 |" in pages["grpo.md"]
    assert "| `long-statement` |" in pages["problems.md"] and "| `sentences` | 7 |" in pages["grades.md"]


def test_manual_is_printed_with_the_parts_of_a_configuration(parts, monkeypatch, capsys):
    """`proofmill manual grpo` has the rewards of the user's file; an unknown page is answered with the nearest."""
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
        ("def f(:\n", r"my_parts.py:1: no Python"),
        ("import no_such_module\n", r"my_parts.py:1: `import no_such_module` in <module> ended in ModuleNotFoundError"),
        ("x = 1\ny = x / 0\n", r"my_parts.py:2: `y = x / 0` in <module> ended in ZeroDivisionError"),
        ("REWARDS = ['brief']\n", r"`REWARDS` is a list; expected a dictionary"),
        ("FILTERS = {'brief': len}\n", r"`FILTERS\['brief'\]` is a builtin_function_or_method; expected a proofmill"),
        (
            "from proofmill.schema.named import Named\nFILTERS = {'is-proof': Named(len, 'x')}\n",
            "`is-proof` of FILTERS is there",
        ),
        (
            "from proofmill.schema.named import Named\nFILTERS = {'a/b': Named(len, 'x')}\n",
            "`a/b` of FILTERS is no name",
        ),
        (
            "from proofmill.schema.named import Named\nFILTERS = {'a': Named(len, 'x', 1)}\n",
            "my_parts.py:2: .* ended in ValueError: the argument is 1; expected one of none, number",
        ),
        ("PROMPTS = 'nowhere'\n", "nowhere is no folder"),
    ],
)
def test_faulty_file_is_named_with_its_line(parts, text, fault):
    """A file that cannot be used stops the configuration, and leaves no half of it in use."""
    parts.write_text(text)
    with pytest.raises(RecipeError, match=fault):
        book(parts)
    expand({"test": {"problems/x": {"source": "arithmetic", "rows": 1}}})


def test_missing_file_is_named(tmp_path):
    """A file that is not there is a mistake of the configuration."""
    with pytest.raises(RecipeError, match=r"nothing.py: No such file or directory; expected a Python file"):
        expand({"plugins": [str(tmp_path / "nothing.py")], "test": {"problems/x": {"source": "arithmetic", "rows": 1}}})


def test_file_that_is_named_in_two_ways_is_one(parts, tmp_path):
    """An overlay may list the plugin that the configuration lists, by another path or by a link."""
    link = tmp_path / "link.py"
    link.symlink_to(parts)
    plugins.use([str(parts), str(link), f"{parts.parent}/../{parts.parent.name}/{parts.name}"])
    assert "brief" in LISTS["rewards"]


def test_error_of_a_part_is_blamed_on_its_line(parts, small, mill):
    """What goes wrong in a user's function is said with the file's own line, whoever called it."""
    parts.write_text(
        PARTS.replace(
            'found = submission.final.count(".")', "found = 1 // (len(submission.final) - len(submission.final))"
        )
    )
    made = mill({**SMALL, **MINE}, plugins=[str(parts)])
    made.results = small.results
    blame = r"my_parts.py:2\d: `found = 1 // .*` in lines ended in ZeroDivisionError"
    with pytest.raises(RecipeError, match=blame), plugins.blamed():
        made.make("grades/mine")


def test_mark_off_the_scale_is_a_mistake_of_the_grader(parts, small, mill):
    """A grader that gives more than its full marks ends the stage, and no table is written."""
    parts.write_text(PARTS.replace("min(7, found)", "8"))
    made = mill({**SMALL, **MINE, "grades/off": MINE["grades/mine"]}, plugins=[str(parts)])
    made.results = small.results
    with pytest.raises(RecipeError, match="grader `sentences` gives 8 marks; expected 0 to 7"):
        made.make("grades/off")
    assert not made.table("grades/off").path.exists()


def test_paths_are_from_the_file_that_names_them(parts, tmp_path):
    """A recipe file of its own folder names its parts by their place beside it; several files' parts add up."""
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
    """The code of a scaffold of one's own is in the identity of what plays it, in a role too; ours is not."""

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


# ----------------------------------------------------------------------------------------------- modules beside a plugin

NUMBER = "from proofmill.schema.named import Named\n{}\nFILTERS = {{'long': Named(lambda row: {}, 'x')}}\n"
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
    """The digest of the filter `long`, and what it returns."""
    plugins.use([str(parts)])
    return plugins.digest_of("filters", "long"), LISTS["filters"]["long"].apply({})


@pytest.mark.parametrize(("imports", "value", "files"), IMPORTS.values(), ids=IMPORTS)
def test_module_of_the_folder_counts_and_runs_as_it_is_now(parts, imports, value, files):
    """However a part comes to a module of its folder, an edit of it is another identity, and the edited one runs.

    The edit has the same size within the same second, which a cached bytecode would hide.
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
    """Another part's module, and a file that nothing imports, change nothing; what every part rests on does."""
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
    """A dictionary whose keys are not written out may hold another record than the one that stands there."""
    text = NUMBER.format("A = 1\nOTHERS = {}", "1").replace("'x')}", "'x'), **OTHERS}")
    parts.write_text(text)
    before, _ = of_long(parts)
    parts.write_text(text.replace("A = 1", "A = 2"))
    assert of_long(parts)[0] != before


@pytest.mark.parametrize("name", ["random", "polars", "yaml"])
def test_module_that_hides_another_is_refused(parts, name):
    """A module of the folder that is called like one of Python's or of a package would be taken for it everywhere."""
    (parts.parent / f"{name}.py").write_text("LIMIT = 1\n")
    parts.write_text(NUMBER.format(f"import {name}", f"{name}.LIMIT"))
    with pytest.raises(RecipeError, match=rf"{name}.py: another module is called `{name}`; expected a name of its own"):
        of_long(parts)


def test_modules_of_two_folders_are_told_apart(parts, tmp_path):
    """Two plugins whose modules have one name are refused; one after the other, each has its own."""
    (tmp_path / "other").mkdir()
    for folder, limit in ((parts.parent, 1), (tmp_path / "other", 2)):
        (folder / "near.py").write_text(f"LIMIT = {limit}\n")
        (folder / "my_parts.py").write_text(NUMBER.format("import near", "near.LIMIT"))
    assert (of_long(parts)[1], of_long(tmp_path / "other/my_parts.py")[1], of_long(parts)[1]) == (1, 2, 1)
    (tmp_path / "other/more.py").write_text(NUMBER.format("import near", "near.LIMIT").replace("'long'", "'longer'"))
    with pytest.raises(RecipeError, match="another module is called `near`"):
        plugins.use([str(parts), str(tmp_path / "other/more.py")])


def test_dataclass_of_a_plugin_is_made(parts):
    """A plugin is a module like any other while it is imported: dataclasses look their module up."""
    parts.write_text(
        NUMBER.format(
            "from __future__ import annotations\nfrom dataclasses import dataclass, KW_ONLY\n\n@dataclass\nclass A:\n    _: KW_ONLY\n    x: int = 1",
            "A(x=1).x",
        ).replace(
            "from proofmill.schema.named import Named\nfrom __future__ import annotations\n",
            "from __future__ import annotations\nfrom proofmill.schema.named import Named\n",
        )
    )
    assert of_long(parts)[1] == 1
