"""Test the words of the project: prose, names, docstrings, class and module names."""

import re
import sys
import tomllib
from collections import Counter, defaultdict
from itertools import pairwise

import pytest

import language
from language import Hit, definitions, docstring_faults, hits, lower
from mill import ROOT

HITS = {"words": language.word_hits, "docstrings": language.docstring_hits}
MOST_TWICE = 10  # class names that two files of src define


@pytest.mark.parametrize("kind", HITS)
def test_hits_are_at_their_ceilings(kind):
    """No folder has more words or docstrings to change than its ceiling. A ceiling above the number must be lowered."""
    found = HITS[kind]()
    present = language.count(found)
    ceilings = {folder: row[kind] for folder, row in language.ceilings().items()}
    over = {folder for folder, number in present.items() if number > ceilings.get(folder, 0)}
    assert not over, "\n".join(str(hit) for hit in found if language.folder(hit.path) in over)
    low = {folder: present[folder] for folder, most in ceilings.items() if present[folder] < most}
    assert not low, f"lower the ceilings with `python tests/fixtures/language.py --lower`: {low}"


def test_ceilings_are_sorted_and_name_folders():
    """Each row of ceilings.csv has a folder that exists, in alphabetical order, and allows a hit."""
    ceilings = language.ceilings()
    assert all(before < after for before, after in pairwise(ceilings))
    assert all((ROOT / folder).exists() and any(row.values()) for folder, row in ceilings.items())


@pytest.mark.parametrize("where", ["prose", "key", "identifier"])
def test_rules_of_the_word_list_can_match(where):
    """Patterns are lower case, as the text they are searched in, and each has a replacement."""
    _, rules = language.rules()[where]
    assert rules and len({rule.pattern for rule, _, _ in rules}) == len(rules)
    for rule, _, _ in rules:
        assert rule.replacement and not re.search(r"(?<!\\)[A-Z]", rule.pattern), rule


@pytest.mark.parametrize(
    "path, text, lines",
    [
        ("a.py", "x = 1  # goes on\n", [1]),
        ("a.py", 'raise ValueError("nobody is here")\n', [1]),
        ("a.py", 'def f():\n    """Return x.\n\n    It stands there."""\n', [4]),
        ("a.py", 'f"{nobody is}: all is well"\n', []),
        ("a.py", '"# `goes on` is an old word"\n', []),
        ("a.py", 'raise ValueError(f"`requeries` is {requeries}")\n', [1]),
        ("a.py", "'requeries'\nparse_retries\n", [1]),
        ("a.py", "full_marks = my_lag\n", [1, 1]),
        ("a.py", "flag = lagrange = ('flag', 'stands for it', 'it is None')\n", []),
        ("a.py", "'a \\' b' # anew\n", [1]),
        ("a.md", "A quotation mark.\nA mark.\n", [2]),
        ("a.md", "`goes on`\n\n```yaml\nrequeries: 2  # twice\n```\n", [4]),
        ("a.md", "[text](stands.md) and\n<!-- goes on -->\n", []),
        ("a.yaml", "max-parked: 0.1\nfoo: Nobody is here\nbar: 1 # anew\nbaz: a#b\n", [1, 2, 3]),
        ("a.html", "<p class='mark'>{{ mark }}\nIt stands</p><script>mark</script>\n", [2]),
    ],
)
def test_words_are_found_where_they_are_wrong(path, text, lines):
    """Prose is comments, docstrings and strings with a blank; names are found in keys and identifiers."""
    assert sorted(hit.line for hit in hits(path, text)) == lines


def test_hit_names_its_place_and_the_word_to_use():
    """A report can be followed without the word list."""
    assert [str(hit) for hit in hits("docs/a.md", "It works.\nThen it goes on.\n")] == [
        "docs/a.md:2: 'goes on'; use: continues, resumes"
    ]


def test_definitions_have_the_first_words_of_their_docstrings():
    """Signatures over several lines, decorators, classes, and functions in functions are read."""
    text = '''class A(B):
    """Text: "x" and more."""

    @property
    def b(self) -> dict[str, int]:
        """The value."""

    @staticmethod
    async def c(
        x: str = ")",  # a comment: with a colon
        *y,
    ) -> None:
        """Write `x`."""
        def d(): return 1

def e(): # no docstring
    x = """Text."""
'''
    read = [(one.kind, one.name, one.line, one.first, one.is_property) for one in definitions(text)]
    assert read == [
        ("class", "A", 1, "Text", False),
        ("def", "b", 5, "The", True),
        ("def", "c", 9, "Write", False),
        ("def", "d", 14, None, False),
        ("def", "e", 16, None, False),
    ]


@pytest.mark.parametrize(
    "definition, fault",
    [
        ('def f():\n    """Return x."""', False),
        ('def f():\n    """Returns x."""', True),
        ('def f():\n    """`x` is returned."""', True),
        ('def f():\n    """return x."""', True),
        ('def test_f():\n    """The value is x."""', False),
        ('def test_f():\n    """What is x."""', True),
        ('class F:\n    """A value."""', False),
        ('class F:\n    """Whether it is so."""', True),
        ('@cached_property\ndef f():\n    """The value."""', False),
        ('"""What it does."""', True),
        ('@property\ndef f():\n    """How many."""', True),
    ],
)
def test_docstrings_begin_with_a_verb(definition, fault):
    """A function's docstring begins with a verb in its base form. No docstring begins with a question word."""
    assert bool(list(docstring_faults("a.py", f"{definition}\n"))) is fault


def test_ruff_checks_that_docstrings_are_imperative():
    """D401 is on for the whole tree and ignored nowhere."""
    lint = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["ruff"]["lint"]
    assert "D401" in lint["select"] and "D401" not in lint["ignore"] and "per-file-ignores" not in lint


def test_class_names_are_found_in_one_place():
    """No three files of src define a class of one name, and few names are defined in two."""
    places = defaultdict(set)
    for path, text in language.files(("src",), (".py",)):
        for one in definitions(text):
            if one.kind == "class":
                places[one.name].add(path)
    several = Counter({name: len(files) for name, files in places.items() if len(files) > 1})
    assert not {name: sorted(places[name]) for name, number in several.items() if number > 2}
    assert len(several) <= MOST_TWICE, sorted(several)


def test_no_module_is_called_like_one_of_the_standard_library():
    """An import in an editor or a traceback leads to one module."""
    package = ROOT / "src/proofmill"
    names = {path.stem for path in package.rglob("*.py")} | {path.parent.name for path in package.rglob("__init__.py")}
    assert not names & sys.stdlib_module_names


def test_modules_named_in_prose_exist():
    """A docstring or comment of src names files of this project; those of other projects are in backticks."""
    ours = [path for folder in ("src", "workflow", "tests", "benchmarks") for path in (ROOT / folder).rglob("*")]
    names = {"setup.py", "my_parts.py", *(path.name for path in ours)}  # the second is an example of a user's file
    stale = [
        f"{path}: {name}"
        for path, text in language.files(("src",), (".py",))
        for where, _, piece in language.pieces(path, text)
        if where == "prose" and (piece[0] == "#" or piece.startswith('"""'))
        for name in re.findall(r"(?<![\w/.{}-])\w+\.(?:py|smk)\b", piece)
        if name not in names
    ]
    assert not stale, "\n".join(stale)


def test_verbs_are_sorted_and_in_lower_case():
    """Each verb is listed once, in order."""
    lines = language.VERBS.read_text(encoding="utf-8").splitlines()
    words = [word for line in lines if not line.startswith("#") for word in line.split()]
    assert words == sorted(set(words)) and all(word.islower() for word in words)


def test_ceilings_are_lowered_and_never_raised():
    """Fewer hits lower a ceiling, none remove its row, more are an error."""
    ceilings = {"a": {"words": 3, "docstrings": 1}, "b": {"words": 1, "docstrings": 0}}
    present = {"words": Counter({"a": 2}), "docstrings": Counter({"a": 1})}
    assert lower(ceilings, present) == {"a": {"words": 2, "docstrings": 1}}
    for counts in (Counter({"a": 4}), Counter({"c": 1})):
        with pytest.raises(ValueError, match="more hits of words than its ceiling allows; fix them first"):
            lower(ceilings, {"words": counts, "docstrings": Counter()})


def test_hits_are_counted_by_folder():
    """Folders of src/proofmill have ceilings of their own; its modules share one."""
    paths = ("src/proofmill/grpo.py", "src/proofmill/calls/services/a.py", "docs/kinds/b.md", "README.md", "docs/c.md")
    assert language.count(Hit(path, 1, "mark", "grade") for path in paths) == {
        "src/proofmill": 1,
        "src/proofmill/calls": 1,
        "docs": 2,
        "README.md": 1,
    }


def test_functions_are_named_by_verbs():
    """No function of src has a participle as its name; properties are values and may have one."""
    found = [
        f"{path}:{one.line} {one.name}"
        for path, text in language.files(("src",), (".py",))
        for one in definitions(text)
        if one.kind != "class" and not one.is_property and language.is_participle(one.name)
    ]
    assert not found, "\n".join(found)
    assert language.is_participle("_shown") and language.is_participle("sorted_rows")
    assert not language.is_participle("feed") and not language.is_participle("sort")
