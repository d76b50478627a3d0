"""Sample responses to problems.

input:  problems and a model
output: results/responses/<name>.parquet; the journal in results/calls/responses/<name>
"""


rule responses:
    """Sample responses to problems."""
    input:
        parents("responses"),
        shards("responses"),
    output:
        f"{RESULTS}/responses/{{name}}.parquet",
    threads: 1
    resources:
        engine="transformers",
        engine_args="",
        mem_mb=4000,
    params:
        entry=entry("responses"),
    shell:
        job("responses")
