"""Select conversations to train on; dropped ones have a reason.

input:  problems, responses, grades or other examples
output: results/examples/<name>.parquet
"""


rule examples:
    """Select conversations to train on; dropped ones have a reason."""
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
