"""Self-play: a model proposes tasks and solves them, judged by execution.

from:  a model, and first tasks if there are any
makes: results/selfplay/<name>.parquet (numbers by step); weights, rollouts and tasks in results/selfplay/<name>/
"""


rule selfplay:
    """Self-play: a model proposes tasks and solves them, judged by execution."""
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
