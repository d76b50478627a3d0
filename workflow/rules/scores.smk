"""Measured numbers with their intervals.

from:  grades, or problems
makes: results/scores/<name>.parquet; the same as a page in results/scores/<name>.md
"""


rule scores:
    """Measured numbers with their intervals."""
    input:
        parents("scores"),
    output:
        table=f"{RESULTS}/scores/{{name}}.parquet",
        page=report(f"{RESULTS}/scores/{{name}}.md", category="Marks"),
    threads: 1
    resources:
        engine="transformers",
        engine_args="",
        mem_mb=2000,
    params:
        entry=entry("scores"),
    shell:
        job("scores")
