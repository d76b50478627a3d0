"""Classify each problem with a judge.

input:  problems
output: results/labels/<name>.parquet; the journal in results/calls/labels/<name>
"""


rule labels:
    """Classify each problem with a judge."""
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
