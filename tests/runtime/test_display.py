"""The display of a run on its own: lines that two threads write at once."""

import io
import logging
import sys

from proofmill.runtime.display import Display
from terminal import seen

JOBS = 300


def event(name, **fields):
    return logging.makeLogRecord({"event": name, **fields})


def test_no_line_is_lost_while_the_picture_grows_and_shrinks(tmp_path, monkeypatch, request):
    """Snakemake writes in one thread while the screen reports ends in another: each line of both stays."""
    shown = io.StringIO()
    monkeypatch.setattr(sys, "stderr", shown)
    names = [f"labels/{number}" for number in range(JOBS)]
    often = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    request.addfinalizer(lambda: sys.setswitchinterval(often))
    snakemake = logging.StreamHandler(shown)
    screen = Display(names, tmp_path, lambda: "$0.00", [snakemake])
    for number in range(JOBS):
        screen.emit(event("job_info", jobid=number, rule_name="labels", wildcards={"name": str(number)}))
        screen.emit(event("job_error", jobid=number))
        snakemake.handle(logging.makeLogRecord({"msg": f"Snakemake says {number}"}))
    screen.close()
    lines = seen(shown.getvalue().replace("\n", "\r\n"))
    assert [line for line in lines if line.startswith("Snakemake")] == [f"Snakemake says {n}" for n in range(JOBS)]
    assert sum("failed; log: " in line for line in lines) == JOBS
