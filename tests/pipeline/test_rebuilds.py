"""Edits of thirty kinds: what would be rebuilt is what differs when the edited project is built from nothing."""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from mill import MAINS, REFEREE, ROOT
from proofmill.artifacts import jobs
from proofmill.artifacts.states import States
from proofmill.artifacts.tables import Table
from proofmill.config import plugins
from proofmill.config.config import expand
from proofmill.config.identity import identity_of
from proofmill.config.yaml_files import read
from proofmill.schema.names import kind_of

ENTRIES = {
    "api/referee": REFEREE,
    "problems/file": {"source": "table", "path": "${LAB}/corpus", "columns": {"statement": "statement", "solution": "solution"}},
    "problems/train": {"source": "problems/file", "keep": [{"shorter": "MOST"}]},
    "problems/other": {"source": "problems/file", "keep": ["any"]},
    "schemes/train": {"problems": "problems/train", "model": "api/referee"},
    "responses/given": {"problems": "problems/train", "model": "solutions"},
    "grades/given": {
        "responses": "responses/given", "schemes": "schemes/train", "grader": "api/referee", "grader-prompt": "prompts/mine.md",
    },
    "grades/counted": {"responses": "responses/given", "grader": "counted"},
    "examples/given": {"grades": "grades/given", "keep": ["one-per-problem"]},
}  # fmt: skip
NAMES = [name for name in ENTRIES if not name.startswith("api/")]
JUDGED = {"grades/given", "examples/given"}
COUNTED = {"grades/counted"}
TRAIN = {"problems/train", "schemes/train", "responses/given", *JUDGED, *COUNTED}
FILE = {"problems/file", "problems/other", *TRAIN}
FILES = {
    "parts.py": '''"""My parts."""

import loop_one
import pack.sub
from near import limit
from proofmill.graders.program_graders import ProgramGrader, grades
from proofmill.schema.registry_items import Named
from stars import *


def shorter(row, most):
    """Refuse a long statement."""
    # counted in characters
    return None if len(row["statement"]) < most + limit() + pack.sub.MORE + EXTRA + loop_one.value() else "long"


def counted(submission):
    return len(submission.final) % 3, "by characters"


FILTERS = {"shorter": Named(shorter, "short", "count"), "any": Named(lambda row: None, "all")}
GRADERS = {"counted": ProgramGrader(7, "characters", grades(counted))}
''',
    "near.py": "def limit():\n    return 0\n",
    "pack/__init__.py": "",
    "pack/sub.py": "from .deep import MORE\n",
    "pack/deep.py": "MORE = 0\n",
    "stars.py": "EXTRA = 0\n",
    "loop_one.py": "import loop_two\n\n\ndef value():\n    return loop_two.VALUE\n",
    "loop_two.py": "import loop_one\n\nVALUE = 0\n",
    "spare.py": "VALUE = 0\n",
}


@dataclass
class Lab:
    """A project whose tables are made in this process."""

    folder: Path

    @property
    def results(self) -> Path:
        return self.folder / "results"

    def config(self):
        os.chdir(self.folder)
        os.environ["LAB"] = str(self.folder)
        return expand(read("config.yaml"))

    def build(self, results: Path, only: set[str] | None = None) -> dict[str, str]:
        """Make what is due, or all in an empty folder; return the content of each table."""
        book = self.config()
        for name in NAMES if only is None else [name for name in NAMES if name in only]:
            identity = identity_of(book.entries[name], book.declared)
            jobs.make(MAINS[kind_of(name)], name, identity, results, book.terms)
        return {name: Table(name, results).content for name in NAMES}

    def due(self) -> set[str]:
        """Return the artifacts that Snakemake and `proofmill plan`, which use these states, would make or restore."""
        states = States(self.config(), self.results)
        return {name for name in NAMES if states[name].name != "done"}

    def text(self, name: str, old: str, new: str) -> None:
        path = self.folder / name
        before = path.read_text()
        assert old in before
        path.write_text(before.replace(old, new, 1))

    def entry(self, name: str, **fields) -> None:
        path = self.folder / "config.yaml"
        config = json.loads(path.read_text())
        config["lab"][name].update(fields)
        path.write_text(json.dumps(config))


@pytest.fixture(scope="module")
def made(tmp_path_factory, request):
    """Return the lab, built, with the content of each table."""
    here = Path.cwd()
    request.addfinalizer(lambda: (os.chdir(here), os.environ.pop("LAB", None), plugins.use([])))
    folder = tmp_path_factory.mktemp("lab") / "lab"
    lab = Lab(folder)
    family = {"source": "arithmetic", "split": "test", "rows": 8}
    (folder / "corpus").mkdir(parents=True)
    (folder / "config.yaml").write_text(json.dumps({"lab": {"problems/file": family}}))
    book = lab.config()
    jobs.make(MAINS["problems"], "problems/file", identity_of(book.entries["problems/file"], {}), folder / "family")
    rows = Table("problems/file", folder / "family").rows("statement", "solution")
    shutil.rmtree(folder / "family")
    for name, some in (("a", rows[:4]), ("b", rows[4:])):
        (folder / f"corpus/{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in some))
    lengths = sorted(len(row["statement"]) for row in rows)
    entries = json.loads(json.dumps(ENTRIES).replace('"MOST"', str(lengths[-1] + 1)))
    (folder / "config.yaml").write_text(json.dumps({"plugins": ["parts.py"], "budget": 5.0, "lab": entries}))
    (folder / "less").write_text(str(lengths[4] - lengths[-1] - 1))
    for name, text in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    (folder / "prompts").mkdir()
    shutil.copy(ROOT / "src/proofmill/prompts/grade-strict.md", folder / "prompts/mine.md")
    return lab, lab.build(lab.results)


def text(name: str, old: str, new: str) -> Callable[[Lab], None]:
    """Edit the lab; LESS is a number with which the filter drops about half of the problems."""
    return lambda lab: lab.text(name, old, new.replace("LESS", (lab.folder / "less").read_text()))


def rename(old: str, new: str) -> Callable[[Lab], None]:
    return lambda lab: (lab.folder / old).rename(lab.folder / new)


def swap(lab: Lab) -> None:
    rename("corpus/a.jsonl", "corpus/c")(lab)
    rename("corpus/b.jsonl", "corpus/a.jsonl")(lab)
    rename("corpus/c", "corpus/b.jsonl")(lab)


def move(lab: Lab) -> None:
    lab.folder = lab.folder.rename(lab.folder.with_name("elsewhere"))


def add(lab: Lab) -> None:
    row = {"statement": "Prove that $1+1=2$.", "solution": "It is."}
    (lab.folder / "corpus/c.jsonl").write_text(json.dumps(row))


def environment(lab: Lab) -> None:
    os.environ.update(PROOFMILL_JUDGE_URL="http://127.0.0.1:9/v1", PROOFMILL_GRACE_SECONDS="3", LAB_UNUSED="1")


def reorder(lab: Lab) -> None:
    config = json.loads((lab.folder / "config.yaml").read_text())
    config["lab"] = dict(reversed([(name, dict(reversed(fields.items()))) for name, fields in config["lab"].items()]))
    (lab.folder / "config.yaml").write_text(json.dumps(config))


NO_READER = "the referee is a program and reads no rubric"
SAME_LENGTH = "the docstring of a function may be read by the function"
# The edit, what would be rebuilt, and of this what has the same rows, with the reason.
EDITS: dict[str, tuple] = {
    "nothing": (lambda lab: None, set()),
    "a source renamed": (rename("corpus/a.jsonl", "corpus/z.jsonl"), FILE),
    "a source renamed, order kept": (
        rename("corpus/a.jsonl", "corpus/0.jsonl"), FILE, FILE - {"problems/file", "problems/train", "problems/other"},
        "the origin of a row is in tables of problems alone",
    ),
    "a source disabled": (rename("corpus/a.jsonl", "corpus/a.jsonl.off"), FILE),
    "two sources swapped": (swap, FILE),
    "a source added": (add, FILE),
    "a source removed": (lambda lab: (lab.folder / "corpus/b.jsonl").unlink(), FILE),
    "one byte of a source": (
        text("corpus/a.jsonl", "Show", "show"), FILE, {"responses/given", *COUNTED},
        "an id ignores the case of a statement, and an attempt does not repeat it",
    ),
    "a source in another format": (rename("corpus/a.jsonl", "corpus/a.ndjson"), FILE, TRAIN - {"problems/train"},
        "the origin of a row is in tables of problems alone"),
    "a note in the folder": (
        lambda lab: (lab.folder / "corpus/README.txt").write_text("mine"), FILE, FILE,
        "which files of a folder are read is known to the source alone",
    ),
    "a source touched": (lambda lab: os.utime(lab.folder / "corpus/a.jsonl", (1e9, 1e9)), set()),
    "the folder moved": (move, set()),
    "a prompt's text": (
        text("prompts/mine.md", "# ", "# The "),
        JUDGED,
        {"examples/given"},
        "what a call took is in the table of grades alone",
    ),
    "a prompt's header": (text("prompts/mine.md", "\nabout: ", "\nabout: Or "), set()),
    "a prompt's fields": (text("prompts/mine.md", "optional: [", "optional: [answer, "), JUDGED, JUDGED, NO_READER),
    "a prompt renamed": (
        lambda lab: (rename("prompts/mine.md", "prompts/ours.md")(lab), lab.entry("grades/given", **{"grader-prompt": "prompts/ours.md"})),
        JUDGED, JUDGED, "the name of a prompt is in the entry",
    ),
    "a part's body": (text("parts.py", "< most +", "< most + LESS +"), TRAIN),
    "another part's body": (text("parts.py", "% 3", "% 2"), COUNTED),
    "a comment": (text("parts.py", "# counted in characters", "# in characters"), set()),
    "the file's docstring": (text("parts.py", '"""My parts."""', '"""Mine."""'), set()),
    "a function's docstring": (text("parts.py", "Refuse a long", "Refuse any long"), TRAIN, TRAIN, SAME_LENGTH),
    "a module": (text("near.py", "return 0", "return LESS"), TRAIN),
    "a module's comment": (text("near.py", "return 0", "return 0  # none"), set()),
    "a module of a package": (text("pack/deep.py", "MORE = 0", "MORE = LESS"), TRAIN),
    "a star import": (
        text("stars.py", "EXTRA = 0", "EXTRA = LESS"), TRAIN | COUNTED | {"problems/other"}, {"problems/other"},
        "a star import may bring any name to any part",
    ),
    "a cycle": (text("loop_two.py", "VALUE = 0", "VALUE = LESS"), TRAIN),
    "a module that nothing imports": (text("spare.py", "0", "1"), set()),
    "a number of an entry": (lambda lab: lab.entry("problems/train", rows=5), TRAIN),
    "a setting of a model": (
        lambda lab: lab.entry("api/referee", **{"max-tokens": 1025}), {"schemes/train", *JUDGED}, {"schemes/train", *JUDGED},
        "a longer limit cuts nothing off that was not cut off before",
    ),
    "a field for readers": (lambda lab: lab.entry("api/referee", **{"max-failed": 0.2}), set()),
    "the budget": (text("config.yaml", '"budget": 5.0', '"budget": 6.0'), set()),
    "the order of entries": (reorder, set()),
    "the environment": (environment, set()),
}  # fmt: skip


@pytest.mark.sampled(6, "a prompt's text", "a star import")
@pytest.mark.parametrize("case", EDITS.values(), ids=EDITS)
def test_what_is_rebuilt_is_what_differs(made, tmp_path, monkeypatch, case):
    """An edit rebuilds the tables whose rows differ from those before, and others only for the reason that is given.

    What comes of the rebuilding is what a build from nothing gives: no table that stays is out of date.
    """
    monkeypatch.setattr(os, "environ", os.environ)
    edit, expected, equal, *reason = (*case, set()) if len(case) == 2 else case
    assert bool(equal) == bool(reason)
    before, contents = made
    lab = Lab(shutil.copytree(before.folder, tmp_path / "lab", symlinks=True))
    for name in ("PROOFMILL_JUDGE_URL", "PROOFMILL_GRACE_SECONDS", "LAB_UNUSED"):
        monkeypatch.delenv(name, raising=False)
    edit(lab)
    due = lab.due()
    assert due == expected
    anew = lab.build(lab.folder / "new results")
    assert {name for name in NAMES if anew[name] != contents[name]} == expected - equal
    assert lab.build(lab.results, only=due) == anew
    for name in ("PROOFMILL_JUDGE_URL", "PROOFMILL_GRACE_SECONDS", "LAB_UNUSED"):
        os.environ.pop(name, None)


def test_there_are_thirty_kinds_of_edit():
    """The list is as long as it is promised to be."""
    assert len(EDITS) >= 30
