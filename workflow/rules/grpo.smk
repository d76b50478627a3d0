"""Train a model by reinforcement learning with rubric rewards (GRPO).

input:  a model, problems and schemes
output: results/grpo/<name>.parquet (metrics by step); weights and rollouts in results/grpo/<name>/
"""


rule grpo:
    """Train a model by reinforcement learning with rubric rewards (GRPO)."""
    input:
        parents("grpo"),
    output:
        f"{RESULTS}/grpo/{{name}}.parquet",
    threads: 1
    resources:
        engine="transformers",
        engine_args="",
        mem_mb=4000,
        launch=LAUNCH,
    params:
        entry=entry("grpo"),
    shell:
        job("grpo", "{resources.launch}")
