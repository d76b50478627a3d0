"""Test that invalid plugins and prompts give one sentence, whatever their bytes are."""

import os
import random
import re
import sys

import pytest

from own_parts import blocks
from proofmill import __main__ as command
from proofmill.config import plugins
from proofmill.config.lists import LISTS
from proofmill.prompts import templates
from proofmill.schema.errors import ProofmillError, RecipeError

SENTENCE = re.compile(r"^\S.*: .+; expected .+\.$")
NAMED = "from proofmill.schema.registry_items import Named\n"
ODD = {
    "an exit with success": ("import sys\nsys.exit(0)\n", r"odd.py:2: `sys.exit\(0\)` in <module> raised SystemExit: 0"),
    "an exit without a number": ("exit()\n", "odd.py:1: .* raised SystemExit"),
    "an error of its own": ("class E(BaseException): pass\nraise E('x')\n", r"odd.py:2: .* raised odd\.E: x"),
    "an error that cannot be written": (
        "class E(Exception):\n def __str__(self): raise ValueError\nraise E\n", "odd.py:3: .*exception str",
    ),
    "an end of generators": ("raise GeneratorExit\n", "odd.py:1: .* raised GeneratorExit"),
    "an error with a note": ("e = ValueError('a')\ne.add_note('n')\nraise e\n", "odd.py:3: .* raised ValueError: a n"),
    "endless recursion": ("def f(): f()\nf()\n", "odd.py:1: .* raised RecursionError"),
    "too much memory": ("x = 'a' * 10**15\n", "odd.py:1: .* raised MemoryError"),
    "600 brackets": (f"x = {'[' * 600}{']' * 600}\n", "odd.py:1: is not Python"),
    "50,000 signs": (f"x = {'-' * 50_000}1\n", r"odd.py: is not Python \(MemoryError"),
    "20,000 terms": (f"x = {'+'.join(['1'] * 20_000)}\n", "odd.py: is not Python .*recursion"),
    "5,000 branches": ("if 1: pass\n" + "elif 1: pass\n" * 5_000, "odd.py: is not Python"),
    "5,000 digits": (f"x = {'9' * 5_000}\n", "odd.py:1: is not Python .*digits"),
    "a NUL": ("a\0b", "odd.py: is not Python"),
    "a wrong line": ("x = 1\nnonlocal x\n", "odd.py:2: is not Python"),
    "a number for prompts": ("PROMPTS = 3\n", "`PROMPTS` is 3; expected a folder"),
    "a NUL for prompts": ("PROMPTS = 'a\\0'\n", r"`PROMPTS` .*a\\x00 is not a folder"),
    "a disk for prompts": ("PROMPTS = '/'\n", "`PROMPTS` / has 10,000 files or more"),
    "an endless mapping": (
        "from collections.abc import Mapping\nclass M(Mapping):\n __len__ = lambda self: 10**30\n"
        " def __iter__(self):\n  while 1: yield 'a'\n __getitem__ = None\nFILTERS = M()\n", "`FILTERS` is a M",
    ),
    "an endless dictionary": (
        "class D(dict):\n def items(self):\n  while 1: yield ('a', 1)\nFILTERS = D(a=1)\n", "`FILTERS` is a D",
    ),
    "a number for a name": (f"{NAMED}FILTERS = {{3: Named(len, 'x')}}\n", "`3` of FILTERS is not a valid name"),
    "an empty name": (f"{NAMED}FILTERS = {{'': Named(len, 'x')}}\n", "of FILTERS is not a valid name"),
    "a name of two lines": (f"{NAMED}FILTERS = {{'a\\nb': Named(len, 'x')}}\n", r"`a\\nb` of FILTERS is not a valid name"),
    "a name that cannot be shown": (
        f"{NAMED}class K:\n def __repr__(self): raise ValueError\nFILTERS = {{K(): Named(len, 'x')}}\n", "odd.py:3: .* in __repr__",
    ),
    "a record that lies": (f"{NAMED}class L:\n __class__ = Named\nFILTERS = {{'a': L()}}\n", "is a L; expected a proofmill"),
    "a filter that cannot be called": (f"{NAMED}FILTERS = {{'a': Named(5, 'x')}}\n", "its `apply` is 5; expected Callable"),
    "a sentence that is a number": (f"{NAMED}FILTERS = {{'a': Named(len, 5)}}\n", "its `doc` is 5; expected str"),
    "arguments in a list": (
        "from proofmill.rewards.rewards import Reward\nREWARDS = {'a': Reward(len, 'x', [1])}\n", "its `arguments` is",
    ),
    "a source that reads nothing": (
        "from proofmill.sources.loaders import Loader\nSOURCES = {'a': Loader(len, 'x', None)}\n", "its `reads` is None",
    ),
    "points in words": (
        "from proofmill.graders.program_graders import ProgramGrader\nGRADERS = {'a': ProgramGrader('7', 'x', len)}\n", "its `max_points` is '7'",
    ),
    "an import by a variable": ("import importlib\nimportlib.import_module(str(1))\n", "odd.py:2: `import_module` imports a module that"),
    "an import by another name": (
        "from importlib import import_module as load\nload('x')\n", "odd.py:1: `import_module` imports a module that",
    ),
    "an import that is handed on": ("import importlib\nload = importlib.import_module\n", "odd.py:2: `import_module` imports"),
    "a file run as code": ("import runpy\nrunpy.run_path('helper.py')\n", "odd.py:2: `run_path` imports a module that"),
    "an import of no package": ("from . import x\n", "odd.py:1: .* raised ImportError"),
}  # fmt: skip
FILES = {
    "no UTF-8": (lambda path: path.write_bytes(b"\xff\xfe"), "is no text in UTF-8"),
    "a folder": (lambda path: path.mkdir(), "is a folder"),
    "a pipe": (os.mkfifo, "is a pipe, a socket or a device"),
    "/dev/zero": (lambda path: path.symlink_to("/dev/zero"), "is a pipe, a socket or a device"),
    "/dev/full": (lambda path: path.symlink_to("/dev/full"), "is a pipe, a socket or a device"),
    "a link to itself": (lambda path: path.symlink_to(path), "Too many levels of symbolic links"),
    "5 MB": (lambda path: path.write_text("# x\n" * 1_250_000), "has more than 4,194,304 characters"),
}


@pytest.fixture
def odd(tmp_path):
    """Yield the path of a plugin. Unloads all plugins afterwards."""
    yield tmp_path / "odd.py"
    plugins.use([])


@pytest.mark.parametrize(("text", "fault"), ODD.values(), ids=ODD)
def test_odd_plugin_is_refused_with_one_sentence(odd, text, fault):
    """An invalid plugin is refused with one sentence, and none of its parts is loaded."""
    before = {word: set(names) for word, names in LISTS.items()}
    odd.write_text(text)
    with pytest.raises(RecipeError, match=fault) as refused:
        plugins.use([str(odd)])
    assert SENTENCE.match(str(refused.value)), refused.value
    assert before == {word: set(names) for word, names in LISTS.items()}


@pytest.mark.parametrize("read", [lambda path: plugins.use([str(path)]), lambda path: templates.prompt(str(path))])
@pytest.mark.parametrize(("make", "fault"), FILES.values(), ids=FILES)
def test_file_that_is_no_text_is_refused_without_waiting(tmp_path, read, make, fault):
    """Files that are not regular UTF-8 files of limited size are refused without opening them."""
    path = tmp_path / "odd.md"
    make(path)
    with pytest.raises(RecipeError, match=fault):
        read(path)


def test_exit_of_a_plugin_ends_a_command_with_its_line(odd, monkeypatch):
    """A plugin that exits makes `proofmill plan` fail."""
    odd.write_text("import sys\nsys.exit(0)\n")
    (odd.parent / "config.yaml").write_text("plugins: [odd.py]\nr: {problems/x: {source: arithmetic, rows: 2}}\n")
    monkeypatch.chdir(odd.parent)
    monkeypatch.setattr(sys, "argv", ["proofmill", "plan", "r"])
    with pytest.raises(SystemExit, match=r"RecipeError: odd.py:2: `sys.exit\(0\)`"):
        command.main()


def test_exit_of_a_part_is_a_mistake_of_the_part(odd, mill):
    """A filter that exits stops the stage with its line, and no table is written."""
    odd.write_text(f"import sys\n{NAMED}FILTERS = {{'leaves': Named(lambda row: sys.exit(0), 'x')}}\n")
    made = mill({"problems/x": {"source": "arithmetic", "rows": 2, "keep": ["leaves"]}}, plugins=[str(odd)])
    with pytest.raises(RecipeError, match=r"odd.py:3: .* raised SystemExit: 0"), plugins.blamed():
        made.make("problems/x")
    assert not made.table("problems/x").path.exists()


# ---------------------------------------------------------------------------------------------------------- any bytes


def mutations(text: str, seed: int, count: int):
    """Yield mutations of a valid text: truncated, duplicated, swapped, or with special characters."""
    draw = random.Random(seed)
    signs = [
        "[",
        "]",
        "(",
        ")",
        "{",
        "}",
        ":",
        "-",
        "\n",
        " ",
        "\t",
        '"',
        "'",
        "\\",
        "&a ",
        "*a",
        "!!int ",
        "|",
        "%",
        "\0",
        "é",
        "9" * 50,
    ]
    for _ in range(count):
        changed = text
        for _ in range(draw.randint(1, 2)):
            start, end = sorted(draw.randrange(len(changed) + 1) for _ in range(2))
            end = min(end, start + 30)
            changed = draw.choice([
                changed[:start] + changed[end:],
                changed[:end] + changed[start:end] + changed[end:],
                changed[:start] + draw.choice(signs) + changed[start:],
                changed[:start] + draw.choice(signs) + changed[end:],
            ])  # fmt: skip
        yield changed.encode()


def noise(seed: int, count: int):
    draw = random.Random(seed)
    yield from (draw.randbytes(draw.randrange(200)) for _ in range(count))


def outcomes(read, contents, path) -> list[str]:
    """Return the result for each text: `read`, or the sentence that refused it."""
    found = []
    for content in contents:
        path.write_bytes(content)
        try:
            read(str(path))
            found.append("read")
        except ProofmillError as error:
            assert SENTENCE.match(str(error).replace("\n", " ")), (content, error)
            assert "expected" in str(error) and str(error).isprintable(), (content, error)
            found.append("refused")
    return found


def test_any_bytes_as_a_plugin_are_read_or_refused(odd):
    """300 mutations of a valid plugin and 300 random texts give only one-sentence errors."""
    valid = "\n\n".join(blocks("python"))
    found = outcomes(lambda path: plugins.use([path]), mutations(valid, 1, 300), odd)
    assert found.count("refused") > 50 and found.count("read") > 10
    assert "read" in outcomes(lambda path: plugins.use([path]), [valid.encode(), *noise(2, 300)], odd)


HEADER = "---\nabout: x\nneeds: [statement, proof]\noptional: [scheme]\nverdict: points\nscale: [0, 1, 6, 7]\n---\n{{ proof }} {{ scheme }}\n"


def test_any_bytes_as_a_prompt_are_read_or_refused(tmp_path):
    """600 mutations of valid prompts and 300 random texts give only one-sentence errors, also when filled in."""

    def read(path):
        prompt = templates.prompt(path)
        prompt.render(dict.fromkeys((*prompt.needs, *prompt.optional), "x"))

    found = outcomes(read, mutations(HEADER, 3, 600), tmp_path / "mine.md")
    assert found.count("refused") > 100 and found.count("read") > 20
    assert set(outcomes(read, noise(5, 300), tmp_path / "mine.md")) == {"refused"}


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("---\nneeds: []\nabout: 2026-99-99\n---\nx", "its header: cannot be read as YAML"),
        (f"---\nneeds: []\nabout: {'9' * 5_000}\n---\nx", "its header: cannot be read as YAML"),
        (f"---\nneeds: []\nabout: {'[' * 600}{']' * 600}\n---\nx", "its header: is nested too deeply"),
        ("---\nneeds: 3\n---\nx", "`needs` is 3; expected a list of fields"),
        ("---\nneeds: []\nneeds: [proof]\n---\nx", "`needs` is declared twice"),
        ("---\nneeds: []\nverdict: points\nscale: [0, 07]\n---\nx", "`07` is 7 in YAML; expected a decimal number"),
        ("---\nneeds: []\nabout: !!int ''\n---\nx", "its header: cannot be read as YAML"),
        (f"---\nneeds: []\n---\n{{{{ {'(' * 600}1{')' * 600} }}}}", "its text is no template|line 1 of its text"),
        ("---\nneeds: [a]\n---\n{{ a | shout }}", "line 1 of its text is no template"),
    ],
)
def test_odd_prompt_is_refused_with_one_sentence(tmp_path, text, fault):
    """A header or text that cannot be parsed is reported with the file."""
    (tmp_path / "mine.md").write_text(text)
    with pytest.raises(RecipeError, match=fault):
        templates.prompt(str(tmp_path / "mine.md"))


def test_template_that_fails_when_it_is_filled_is_named(tmp_path):
    """A template expression that fails is reported with the file."""
    (tmp_path / "mine.md").write_text("---\nneeds: [a]\n---\n{{ a.b.c }} {{ 1 // 0 }}")
    with pytest.raises(RecipeError, match=r"mine.md: cannot be written out \(.*; expected a template of its fields"):
        templates.fill(str(tmp_path / "mine.md"), {"a": "x"})
