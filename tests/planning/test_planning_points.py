"""Published memory and GPU-hours next to the plan's, as docs/performance.md shows them."""

import runpy

from mill import ROOT


def test_table_in_the_docs_is_what_the_benchmark_prints(capsys):
    """Each published time is in its planned range, and memory is comparable or said not to be; the page has the figures."""
    runpy.run_path(str(ROOT / "benchmarks/planning_points.py"))["main"]()
    printed = capsys.readouterr().out
    assert len(printed.splitlines()) > 15
    assert printed in (ROOT / "docs/performance.md").read_text(encoding="utf-8")
