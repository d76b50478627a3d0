"""Which rows of one table also stand in another, with the text they share.

from:  problems, and problems they are compared with
makes: results/overlaps/<name>.parquet
"""


rule overlaps:
    """Which rows of one table also stand in another, with the text they share."""
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
