"""Read or generate problems; dropped ones have a reason.

input:  a source file, a hub dataset, a generator or another `problems`; labels and grades that filters read
output: results/problems/<name>.parquet
"""


rule problems:
    """Read or generate problems; dropped ones have a reason."""
    input:
        parents("problems"),
    output:
        f"{RESULTS}/problems/{{name}}.parquet",
    threads: 1
    resources:
        engine="transformers",
        engine_args="",
        mem_mb=2000,
    params:
        entry=entry("problems"),
    shell:
        job("problems")
