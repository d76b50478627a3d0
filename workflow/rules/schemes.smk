"""Write a 0-7 grading scheme for each problem.

input:  problems
output: results/schemes/<name>.parquet; the journal in results/calls/schemes/<name>
"""


rule schemes:
    """Write a 0-7 grading scheme for each problem."""
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
