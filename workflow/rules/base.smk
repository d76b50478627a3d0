"""A model's first weights: from the hub, a folder, or random.

from:  nothing, or problems whose text trains a tokenizer
makes: results/base/<name>.parquet (a row for each file); the files in results/base/<name>/
"""


rule base:
    """A model's first weights: from the hub, a folder, or random."""
    input:
        parents("base"),
    output:
        f"{RESULTS}/base/{{name}}.parquet",
    threads: 1
    resources:
        engine="transformers",
        engine_args="",
        mem_mb=4000,
    params:
        entry=entry("base"),
    shell:
        job("base")
