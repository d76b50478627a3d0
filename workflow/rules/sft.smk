"""Supervised fine-tuning.

from:  a model and examples
makes: results/sft/<name>.parquet (numbers by step); the weights in results/sft/<name>/
"""


rule sft:
    """Supervised fine-tuning."""
    input:
        parents("sft"),
    output:
        f"{RESULTS}/sft/{{name}}.parquet",
    threads: 1
    resources:
        engine="transformers",
        engine_args="",
        mem_mb=4000,
        launch=LAUNCH,
    params:
        entry=entry("sft"),
    shell:
        job("sft", "{resources.launch}")
