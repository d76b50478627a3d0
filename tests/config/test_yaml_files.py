"""Test configuration files: lists of recipe files, relative paths, merging."""

import pytest

from proofmill.config.yaml_files import read
from proofmill.schema.errors import RecipeError


@pytest.fixture
def files(tmp_path):
    """Write files into a folder by name, and return the folder."""

    def write(**texts: str):
        for name, text in texts.items():
            path = tmp_path / f"{name.replace('__', '/')}.yaml"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    return write


def test_listed_files_are_read_as_if_they_stood_there(files):
    """The recipes of listed files follow the file's own, in the order of the list, those of their own lists included."""
    folder = files(
        config="a: {x: 1}\nrecipes: [more/b.yaml, more/c.yaml]\n", more__b="b: {x: 2}\nrecipes: [d.yaml]\n", more__c="c: {}\n",
        more__d="d: {x: 3}\n",
    )  # fmt: skip
    assert list(read(folder / "config.yaml").items()) == [("a", {"x": 1}), ("b", {"x": 2}), ("d", {"x": 3}), ("c", {})]


def test_file_that_is_listed_twice_is_read_once(files):
    """Files that list each other are read once, and plugins are listed once."""
    folder = files(
        config="recipes: [b.yaml, b.yaml]\nplugins: [p.py]\n", b="b: {}\nrecipes: [config.yaml]\nplugins: [p.py]\n"
    )
    assert read(folder / "config.yaml") == {"b": {}, "plugins": [str(folder / "p.py")]}


def test_paths_are_from_the_file_that_lists_them(files, monkeypatch):
    """Plugin paths are relative to the recipe file; absolute paths and variables stay unchanged."""
    files(config="recipes: [more/b.yaml]\n", more__b="plugins: [p.py, ../q.py, /r.py, $PARTS/s.py]\n")
    monkeypatch.chdir(files())
    assert read("config.yaml")["plugins"] == ["more/p.py", "more/../q.py", "/r.py", "$PARTS/s.py"]


def test_prompts_are_relative_to_the_file_that_names_them(files, monkeypatch):
    """Paths of prompts and system prompts are relative to the file; names, texts and other fields stay unchanged.

    The path is the same for a relative and an absolute path of the file, since it is part of the identity.
    """
    folder = files(
        config="recipes: [more/b.yaml]\n",
        more__b="b: {e: {prompt: p.md, turn-prompt: ../q.md, grader-prompt: /r.md, system: s/t.md, about: u.md},"
        " f: {sampling: {s: {prompt: solve, system: Be brief.}}, preferences: {api/x: {prompt: v.md}}},"
        " g: {scaffold: {prompts: {summarize: w.md, solve: solve}, about: x.md}}}\n",
    )
    monkeypatch.chdir(folder)
    expected = {
        "e": {
            "prompt": "more/p.md",
            "turn-prompt": "q.md",
            "grader-prompt": "/r.md",
            "system": "more/s/t.md",
            "about": "u.md",
        },
        "f": {
            "sampling": {"s": {"prompt": "solve", "system": "Be brief."}},
            "preferences": {"api/x": {"prompt": "more/v.md"}},
        },
        "g": {"scaffold": {"prompts": {"summarize": "more/w.md", "solve": "solve"}, "about": "x.md"}},
    }
    assert read("config.yaml")["b"] == expected == read(folder / "config.yaml")["b"]
    monkeypatch.chdir(folder / "more")
    assert read("../config.yaml")["b"]["e"]["turn-prompt"] == str(folder / "q.md")


def test_later_file_lies_over_what_earlier_ones_listed(files):
    """A file of the command line overrides entries of a listed recipe, and adds plugins."""
    folder = files(
        config="recipes: [b.yaml]\nplugins: [p.py]\n",
        b="b: {e: {x: 1, y: 1}}\n",
        over="b: {e: {x: 2}}\nplugins: [q.py]\n",
    )
    config = read(folder / "config.yaml", folder / "over.yaml")
    assert config == {"b": {"e": {"x": 2, "y": 1}}, "plugins": [str(folder / "p.py"), str(folder / "q.py")]}


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("recipes: b.yaml\n", r"config.yaml: `recipes` is 'b.yaml'; expected a list of files"),
        ("recipes: [3]\n", r"`recipes` is \[3\]; expected a list of files"),
        ("recipes: [gone.yaml]\n", r"gone.yaml: No such file or directory; expected a configuration file"),
        ("plugins: {a: 1}\n", r"`plugins` is \{'a': 1\}; expected a list of files"),
        ("[a]: 1\n", r"config.yaml:1: a key is a list or mapping"),
        ("- a\n", r"config.yaml: found a list; expected a mapping of recipes"),
        ("a: " + "[" * 3_000 + "]" * 3_000, r"config.yaml: is nested too deeply; expected a mapping of recipes"),
        (f"a: {'9' * 5_000}\n", r"config.yaml: cannot be read as YAML \(.+\); expected a mapping of recipes"),
        ("a: 2025-99-99\n", r"config.yaml: cannot be read as YAML \(.+\); expected a mapping of recipes"),
        ('recipes: ["b\\0.yaml"]\n', r"`recipes` is \['b\\x00.yaml'\]; expected a list of files"),
        (f"recipes: [{'a/' * 2_500}b.yaml]\n", r"File name too long; expected a configuration file"),
        ("recipes: [/dev/full]\n", r"/dev/full: is a pipe, a socket or a device; expected a configuration file"),
        ("recipes: [/dev/zero]\n", r"/dev/zero: is a pipe, a socket or a device; expected a configuration file"),
        ("recipes: [/]\n", r"/: is a folder; expected a configuration file"),
        ("a: {rows: 0777}\n", r"config.yaml:1: `0777` is 511 in YAML; expected a decimal number"),
        ("a:\n  rows: -0_17\n", r"config.yaml:2: `-0_17` is -15 in YAML; expected a decimal number"),
        ("a: {rows: 1:30}\n", r"config.yaml:1: `1:30` is 90 in YAML; expected a decimal number"),
        ("a: {rows: 1:30.5}\n", r"config.yaml:1: `1:30.5` is 90.5 in YAML; expected a decimal number"),
        ("0777: {}\n", r"config.yaml:1: `0777` is 511 in YAML"),
        ("a: !!int ''\n", r"config.yaml: cannot be read as YAML"),
        ("a: !!timestamp x\n", r"config.yaml: cannot be read as YAML"),
    ],
)
def test_faulty_file_is_named(files, text, fault):
    """A file that cannot be read is reported by name."""
    with pytest.raises(RecipeError, match=fault):
        read(files(config=text) / "config.yaml")


def test_numbers_and_words_are_read_as_they_are_written(files):
    """Decimal and hexadecimal numbers, and quoted texts that look like numbers, keep their value."""
    folder = files(config='a: [7, 0, -3, 1_000, 0x1F, 0.5, 1.5e+3, "0777", "1:30", 08, on, off]\n')
    expected = [7, 0, -3, 1000, 31, 0.5, 1500.0, "0777", "1:30", "08", True, False]
    assert read(folder / "config.yaml")["a"] == expected


def test_large_file_is_not_read(files):
    """A file that is too large is refused."""
    folder = files(config="# x\n" * 1_100_000)
    with pytest.raises(RecipeError, match="has more than 4,194,304 characters; expected a configuration file"):
        read(folder / "config.yaml")


def test_recipe_file_that_is_a_link_to_itself_is_named(files):
    """A cycle of links is refused."""
    folder = files(config="recipes: [b.yaml]\n")
    (folder / "b.yaml").symlink_to("b.yaml")
    with pytest.raises(RecipeError, match=r"b.yaml: Too many levels of symbolic links; expected a configuration file"):
        read(folder / "config.yaml")
