"""Conversations to learn, kept or dropped with the reason.

from:  problems, responses, grades or other examples
makes: results/examples/<name>.parquet
"""


rule examples:
    """Conversations to learn, kept or dropped with the reason."""
    input:
        parents("examples"),
    output:
        f"{RESULTS}/examples/{{name}}.parquet",
    threads: 1
    resources:
        engine="transformers",
        engine_args="",
        mem_mb=2000,
    params:
        entry=entry("examples"),
    shell:
        job("examples")
