"""Problems, kept or dropped with the reason.

from:  a source file, a hub dataset, a generator or another `problems`; labels and grades that filters ask
makes: results/problems/<name>.parquet
"""


rule problems:
    """Problems, kept or dropped with the reason."""
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
