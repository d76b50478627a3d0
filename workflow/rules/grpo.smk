"""Reinforcement learning with rubric rewards.

from:  a model, problems and schemes
makes: results/grpo/<name>.parquet (numbers by step); weights and rollouts in results/grpo/<name>/
"""


rule grpo:
    """Reinforcement learning with rubric rewards."""
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
