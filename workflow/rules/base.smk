"""Create a base model: from the hub, a folder, or random weights.

input:  nothing, or problems whose text trains a tokenizer
output: results/base/<name>.parquet (a row for each file); the files in results/base/<name>/
"""


rule base:
    """Create a base model: from the hub, a folder, or random weights."""
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
