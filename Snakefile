"""proofmill: from raw forum threads to proof-writing models and benchmark scores with intervals.

A target is a recipe of config.yaml (`snakemake nano`) or one artifact (`snakemake sft/cold`), by name or by table path.
The default target is the first recipe. `snakemake --list` lists kinds, recipes and artifacts.
"""

from snakemake.utils import min_version

min_version("9.0")


report: "workflow/report/workflow.rst"


include: "workflow/common.smk"


# One rule per kind.
for kind in KINDS:

    include: f"workflow/rules/{kind}.smk"


include: "workflow/shards.smk"


# Every recipe and every artifact is a target by its name; the first recipe of config.yaml is the default. A target
# prints its results each time it runs.
for target in [*CONFIG.recipes, *CONFIG.entries]:

    rule:
        name:
            target
        default_target: target == next(iter(CONFIG.recipes))
        input:
            RULES.tables_of(target),
        localrule: True
        params:
            names=CONFIG.list_target(target) if target not in CONFIG.faults else [],
        shell:
            f"{PYTHON} proofmill show {{params.names}} --results {RESULTS}"

    if target in CONFIG.recipes:
        workflow.get_rule(target).docstring = f"Recipe with {len(CONFIG.recipes[target])} tables."


# An unknown target exits with the known names.
rule unknown:
    input:
        lambda wildcards: RULES.refuse(wildcards.target),
    output:
        "{target}",
    wildcard_constraints:
        target=r"[^/.]+|(" + "|".join(KINDS) + r")/[^/]+",


include: "workflow/hooks.smk"
