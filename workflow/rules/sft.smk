"""Fine-tune a model on examples.

input:  a model and examples
output: results/sft/<name>.parquet (metrics by step); the weights in results/sft/<name>/
"""


rule sft:
    """Fine-tune a model on examples."""
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
