"""Train a model by self-play: it proposes tasks and solves them, graded by execution.

input:  a model, and optional seed tasks
output: results/selfplay/<name>.parquet (metrics by step); weights, rollouts and tasks in results/selfplay/<name>/
"""


rule selfplay:
    """Train a model by self-play: it proposes tasks and solves them, graded by execution."""
    input:
        parents("selfplay"),
    output:
        f"{RESULTS}/selfplay/{{name}}.parquet",
    threads: 1
    resources:
        engine="transformers",
        engine_args="",
        mem_mb=4000,
        launch=LAUNCH,
    params:
        entry=entry("selfplay"),
    shell:
        job("selfplay", "{resources.launch}")
