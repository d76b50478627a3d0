"""Grade each response.

input:  responses, their problems, and schemes
output: results/grades/<name>.parquet; the journal in results/calls/grades/<name>
"""


rule grades:
    """Grade each response."""
    input:
        parents("grades"),
        shards("grades"),
    output:
        f"{RESULTS}/grades/{{name}}.parquet",
    threads: 1
    resources:
        engine="transformers",
        engine_args="",
        mem_mb=2000,
    params:
        entry=entry("grades"),
    shell:
        job("grades")
