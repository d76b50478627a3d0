"""A power cut at any moment: nothing that was paid for is lost, no row is wrong, and the same command finishes the run."""

import random
import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "fixtures/power"))
import subjects

from mill import SMALL, Mill
from power_cut import Recording, recorded, recorder
from proofmill.calls import journal as journals
from proofmill.calls import merging, records
from proofmill.runtime import durable
from proofmill.schema.reasons import StopReason
from proofmill.training import checkpoints

pytestmark = pytest.mark.pipeline

CUTS = {"journal": 60, "stages": 15, "training": 25}
SEED = 25


def record(subject: str, folder: Path, place: Path, **environment: str) -> Recording:
    """Record a subject of subjects.py, in a folder that may have files."""
    folder.mkdir(exist_ok=True)
    command = [sys.executable, subjects.__file__, subject, str(folder)]
    return recorded(command, folder, place / f"{subject}.log", recorder(place), **environment)


def cuts(recording: Recording, number: int, place: Path):
    """Yield moments from equal parts of a recording, each with the folder as a cut may leave it, deleted afterwards."""
    draw = random.Random(f"{SEED}/{recording.root.name}")
    for cut in range(number):
        end = 1 + int((cut + draw.random()) / number * recording.end)
        recording.cut(end, draw, place)
        yield end, place
        shutil.rmtree(place)


@pytest.fixture(autouse=True)
def undisturbed(monkeypatch):
    """Skip syncs: files written after a cut need not be on this disk."""
    monkeypatch.setattr(durable, "sync", lambda path: None)


def test_journal_after_a_cut_has_every_answer_that_was_synced_once(tmp_path, monkeypatch):
    """All synced answers are there as they were, each once and with its dollars; missing ones can be repeated."""
    recording = record("journal", tmp_path / "journal", tmp_path)
    monkeypatch.setattr(journals, "SEGMENT_BYTES", 2**14)
    every = range(subjects.ANSWERS)
    for end, folder in cuts(recording, CUTS["journal"], tmp_path / "cut"):
        promised = range(max(map(int, recording.marked(end)), default=-1) + 1)
        with merging.whole(folder / "calls") as journal:
            there = [number for number in every if subjects.request(number).key in journal.keys]
            assert set(promised) <= set(there), end
            assert journal.spent == pytest.approx(0.01 * len(there)), end
            for number in there:
                known, expected = journal[subjects.request(number)], subjects.answer(number)
                assert (known.text, known.stop_reason, known.reason) == (
                    expected.text,
                    expected.stop_reason,
                    expected.reason,
                )
            for number in set(every) - set(there):
                journal.add(subjects.request(number), subjects.answer(number))
        rows = list(records.all_rows(folder / "calls"))
        assert sorted(row.key for row in rows) == [subjects.request(number).key for number in every], end


@pytest.mark.long
def test_stages_after_a_cut_end_with_the_same_tables_and_pay_for_no_synced_answer_again(tmp_path):
    """The same command finishes; its tables are those of an unbroken run, and synced answers are those that were paid."""
    recording = record("stages", tmp_path / "stages", tmp_path)
    unbroken = Mill(tmp_path / "stages", **subjects.STAGES)
    contents = {name: unbroken.table(name).content for name in subjects.STAGES}
    for end, folder in cuts(recording, CUTS["stages"], tmp_path / "cut"):
        paid = answers(recording, end, tmp_path / "paid")
        made = Mill(folder, **subjects.STAGES)
        made.make(*subjects.STAGES)
        for name, content in contents.items():
            made.table(name).check(deep=True)
            assert made.table(name).content == content, (end, name)
        known = {row.key: row.answer for row in records.all_rows(made.table("labels/l").calls)}
        assert all(known.get(key) == answer for key, answer in paid.items()), end


def answers(recording: Recording, end: int, place: Path) -> dict:
    """Return the outputs in the lines that a journal had synced up to a moment; older ones are in its segments too."""
    found = {}
    for content in recording.synced(end, "calls.jsonl"):
        place.write_bytes(content)
        found |= {row.key: row.answer for row in records.whole_rows(place)}
    return {key: answer for key, answer in found.items() if answer.stop_reason != StopReason.ERROR}


@pytest.mark.long
def test_training_after_a_cut_resumes_from_a_complete_checkpoint_and_ends_with_the_same_weights(
    small, tmp_path, monkeypatch
):
    """The same command finishes with the table and weights of an unbroken run; at most one checkpoint is lost.

    Cuts that leave the same files for the training to read are finished once.
    """
    monkeypatch.setenv("PROOFMILL_SAVE_STEPS", "2")
    before = tmp_path / "training"
    for name in ("examples/cold", "base/tiny", "problems/train"):
        table = small.table(name)
        for path in (table.path, table.folder):
            if path.exists():
                target = before / path.relative_to(small.results)
                target.parent.mkdir(parents=True, exist_ok=True)
                (shutil.copytree if path.is_dir() else shutil.copy2)(path, target)
    recording = record("training", before, tmp_path)
    content = Mill(before, **SMALL).table("sft/cold").content
    finished = set()
    for end, folder in cuts(recording, CUTS["training"], tmp_path / "cut"):
        made = Mill(folder, **SMALL)
        kept = any(folder.glob("archive/sft/cold/*/table.parquet"))
        stands = made.table("sft/cold").path.exists()
        state = step_of_newest(folder), stands, kept
        steps = [int(said) for said in recording.marked(end) if said != "made"]
        assert stands or step_of_newest(folder) >= max(steps, default=0), end
        assert stands or "made" not in recording.marked(end), end
        if state in finished:
            continue
        finished.add(state)
        made.make("sft/cold")
        made.table("sft/cold").check(deep=True)
        assert made.table("sft/cold").content == content, end
    assert len(finished) >= 5


def step_of_newest(folder: Path) -> int:
    """Return the step of the newest usable checkpoint; 0 without one."""
    found = folder.glob("unfinished/sft/cold/*/checkpoint-*")
    usable = [path for path in found if not isinstance(checkpoints.unseal(path), str)]
    return max((int(path.name.rpartition("-")[2]) for path in usable), default=0)
