"""Compute scores with confidence intervals.

input:  grades, or problems
output: results/scores/<name>.parquet; score page in results/scores/<name>.md
"""


rule scores:
    """Compute scores with confidence intervals."""
    input:
        parents("scores"),
    output:
        table=f"{RESULTS}/scores/{{name}}.parquet",
        page=report(
            f"{RESULTS}/scores/{{name}}.md",
            caption="../report/scores.rst",
            category="Scores",
            labels={"entry": "{name}"},
        ),
    threads: 1
    resources:
        engine="transformers",
        engine_args="",
        mem_mb=2000,
    params:
        entry=entry("scores"),
    shell:
        job("scores")
