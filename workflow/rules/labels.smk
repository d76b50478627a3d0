"""A judge's classification of each problem.

from:  problems
makes: results/labels/<name>.parquet; the journal in results/calls/labels/<name>
"""


rule labels:
    """A judge's classification of each problem."""
    input:
        parents("labels"),
        shards("labels"),
    output:
        f"{RESULTS}/labels/{{name}}.parquet",
    threads: 1
    resources:
        engine="transformers",
        engine_args="",
        mem_mb=2000,
    params:
        entry=entry("labels"),
    shell:
        job("labels")
