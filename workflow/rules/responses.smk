"""Attempts at problems.

from:  problems and a model
makes: results/responses/<name>.parquet; the journal in results/calls/responses/<name>
"""


rule responses:
    """Attempts at problems."""
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
