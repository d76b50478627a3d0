"""`proofmill adopt --from`: a project that has made nothing takes what another has made, and has nothing left to do."""

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from damage import zero
from project import CHAIN, Project, copy_of, snapshot
from proofmill.artifacts.tables import Table

pytestmark = pytest.mark.pipeline


@pytest.fixture
def empty(tmp_path) -> Project:
    """The small project before anything was made."""
    return Project(tmp_path / "empty", CHAIN)


def adopt(project: Project, *arguments: object, there: Path) -> subprocess.CompletedProcess:
    return project.run(sys.executable, "-m", "proofmill", "adopt", *map(str, arguments), "--from", str(there))


def test_recipe_is_adopted_and_nothing_is_left_to_do(chain, empty):
    """Snakemake, the plan and `why` agree; the page is shown; an edit remakes what it concerns, from adopted parents."""
    before = snapshot(chain.results)
    done = adopt(empty, "chain", "--calls", there=chain.results)
    assert done.returncode == 0 and f"{len(chain.book.entries)} taken" in done.stdout, done.stdout
    assert snapshot(chain.results) == before
    assert empty.planned("chain") == set() and empty.planned("grpo/cold") == set()
    plan = empty.run(sys.executable, "-m", "proofmill", "plan", "chain", "--json")
    assert {stage["state"] for stage in json.loads(plan.stdout)["stages"]} == {"done"}
    why = empty.run(sys.executable, "-m", "proofmill", "why", "scores/cold")
    assert "is as its entry says" in why.stdout
    assert empty.table("scores/cold").page.read_text() == chain.table("scores/cold").page.read_text()
    assert sorted(empty.journal("grades/cold")) == sorted(chain.journal("grades/cold"))
    assert empty.run(sys.executable, "-m", "proofmill", "check", "--deep").returncode == 0
    again = adopt(empty, "chain", "--calls", there=chain.results)
    assert again.returncode == 0 and f"{len(chain.book.entries)} here already" in again.stdout
    empty.edit("measures: [avg-at-k, full-mark-rate, format-rate]", "measures: [avg-at-k]")
    assert empty.made("chain") == ["scores/cold"]


def test_edited_recipe_takes_what_still_fits(chain, empty):
    """What the edit concerns is refused with the edit, what is made from that waits, all else comes; answers come all the same."""
    empty.edit("steps: 40", "steps: 44")
    done = adopt(empty, "chain", "--calls", there=chain.results)
    assert done.returncode == 1
    assert "sft/cold: refused: " in done.stdout and "`steps` 40 -> 44" in done.stdout
    assert "waits for others: responses/cold" in done.stdout
    assert empty.planned("chain") == empty.with_descendants("sft/cold")
    assert sorted(empty.journal("grades/cold")) == sorted(chain.journal("grades/cold"))


def test_one_artifact_says_what_has_to_come_first(chain, empty):
    """The message has the command that takes the parents along, and that command works."""
    done = adopt(empty, "sft/cold", there=chain.results)
    assert done.returncode == 1 and not empty.table("sft/cold").path.exists()
    command = done.stdout.partition("Take them along: proofmill ")[2].splitlines()[0]
    done = empty.run(sys.executable, "-m", "proofmill", *command.split())
    assert done.returncode == 0, done.stdout
    assert empty.planned("sft/cold") == set() and not empty.table("grades/cold").path.exists()


# Where a process is killed: as it opens, renames or links what these words name.
MOMENTS = {
    "table is copied": ("open", "unfinished/sft/cold/adopting/sft/cold.parquet"),
    "weights are copied": ("open", "unfinished/sft/cold/adopting/sft/cold/model.safetensors"),
    "copy is whole": ("os.rename", "unfinished/sft/cold/adopting/sft/cold"),
    "weights are in place": ("os.rename", "unfinished/sft/cold/adopting/sft/cold.parquet"),
    "table is in place": ("os.link", "results/sft/cold/model.safetensors"),
    "table is kept": ("os.link", "results/sft/cold.parquet"),
    "page is in place": ("os.rename", "adopting/scores/cold.parquet"),
    "answers are copied": ("open", "results/calls/grades/cold/claim.new"),
}
KILLED = """
import os, signal, sys
from proofmill.__main__ import main

event, where = sys.argv[1:3]
del sys.argv[1:3]

def kill(happened, arguments):
    if happened == event and str(arguments[0]).endswith(where):
        os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(kill)
main()
"""


@pytest.mark.parametrize("moment", list(MOMENTS))
def test_kill_at_any_moment_leaves_no_half_table(chain, empty, moment):
    """What stands here after a kill is whole; the same command again takes the rest, and nothing is left to do."""
    arguments = ("adopt", "chain", "--calls", "--from", str(chain.results))
    killed = empty.run(sys.executable, "-c", KILLED, *MOMENTS[moment], *arguments)
    assert killed.returncode == -signal.SIGKILL, killed.stdout
    for path in empty.results.glob("[!cku]*/*.parquet"):
        Table(f"{path.parent.name}/{path.stem}", empty.results).check(deep=True)
    assert empty.run(sys.executable, "-m", "proofmill", "why", "sft/cold").returncode == 0
    done = adopt(empty, "chain", "--calls", there=chain.results)
    assert done.returncode == 0, done.stdout
    assert empty.planned("chain") == set()
    assert [
        path for path in (empty.results / "unfinished").rglob("*") if path.is_file() and path.suffix != ".lock"
    ] == []
    assert sorted(empty.journal("grades/cold")) == sorted(chain.journal("grades/cold"))


def test_copy_of_a_publication_is_a_results_folder(chain, empty, tmp_path):
    """Its tables come with the models that lie beside it; the base, which is not published, is made first."""
    look = tmp_path / "look"
    chain.run(sys.executable, "-m", "proofmill", "publish", "chain", "--to", "me/chain", "--dry-run", str(look))
    results = look / "chain-tables/results"
    done = adopt(empty, "chain", there=results)
    assert done.returncode == 1 and "base/tiny: no weights here" in done.stdout, done.stdout
    assert empty.made("base/tiny") == ["base/tiny"]
    zero(look / "chain-grpo-cold/model.safetensors", 20_000, 400)
    done = adopt(empty, "chain", there=results)
    assert done.returncode == 1 and f"{look}/chain-grpo-cold: its files are not those" in done.stdout, done.stdout
    assert empty.planned("chain") == {"grpo/cold"}
    shutil.copy(chain.table("grpo/cold").folder / "model.safetensors", look / "chain-grpo-cold")
    assert adopt(empty, "chain", there=results).returncode == 0
    assert empty.planned("chain") == set()
    for name in ("sft/cold", "grpo/cold"):
        empty.table(name).check(deep=True)
        assert {path.name for path in empty.table(name).folder.iterdir()} == {
            path.name for path in chain.table(name).folder.iterdir()
        }


def test_faulty_words_are_mistakes(chain, empty, tmp_path):
    """A folder without tables, the own one, an unknown name, and two names without a folder are said to be wrong."""
    twin = copy_of(chain, tmp_path / "twin")
    for arguments, said in (
        (("chain", "--from", str(twin.folder)), f"expected a results folder. Name {twin.results}"),
        (("chain", "--from", str(tmp_path / "nowhere")), "no tables here"),
        (("chain", "--from", str(empty.results)), "no tables here"),
        (("grades/hot", "--from", str(twin.results)), "expected one of"),
        (("grades/cold", "--calls"), "expected --from RESULTS, or two names"),
        (("grades/cold",), "expected --from RESULTS, or two names"),
    ):
        done = empty.run(sys.executable, "-m", "proofmill", "adopt", *arguments)
        assert done.returncode == 1 and said in done.stdout and "Traceback" not in done.stdout, done.stdout
    own = twin.run(sys.executable, "-m", "proofmill", "adopt", "chain", "--from", str(twin.results))
    assert "is the results folder here" in own.stdout
    shutil.rmtree(twin.results / "kept")
    twin.table("problems/bench").path.unlink()
    absent = adopt(empty, "problems/bench", there=twin.results)
    assert absent.returncode == 1 and "problems/bench: not finished there" in absent.stdout
