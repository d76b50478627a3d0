"""A judge's classification of each problem.

from:  problems
makes: results/labels/<name>.parquet; the journal in results/calls/labels/<name>
"""


rule labels:
    """A judge's classification of each problem."""
    input:
        parents("labels"),
    output:
        "results/labels/{name}.parquet",
    log:
        "results/labels/{name}.log",
    threads: 1
    resources:
        engine="transformers",
        engine_args="",
        mem_mb=2000,
    params:
        entry=entry("labels"),
    shell:
        JOB
