"""A 0-7 marking scheme for each problem.

from:  problems
makes: results/schemes/<name>.parquet; the journal in results/calls/schemes/<name>
"""


rule schemes:
    """A 0-7 marking scheme for each problem."""
    input:
        parents("schemes"),
        shards("schemes"),
    output:
        f"{RESULTS}/schemes/{{name}}.parquet",
    threads: 1
    resources:
        engine="transformers",
        engine_args="",
        mem_mb=2000,
    params:
        entry=entry("schemes"),
    shell:
        job("schemes")
