"""Find problems that are also in another table, with the text they share.

input:  problems, and problems they are compared with
output: results/overlaps/<name>.parquet
"""


rule overlaps:
    """Find problems that are also in another table, with the text they share."""
    input:
        parents("overlaps"),
    output:
        f"{RESULTS}/overlaps/{{name}}.parquet",
    threads: 1
    resources:
        engine="transformers",
        engine_args="",
        mem_mb=2000,
    params:
        entry=entry("overlaps"),
    shell:
        job("overlaps")
