"""proofmill: from raw forum threads to proof-writing models and honest benchmark numbers.

A target is a recipe of config.yaml (`snakemake nano`) or one artifact (`snakemake sft/cold`), by its name or its table.
Without a target: the first recipe. `snakemake --list` shows kinds, recipes and artifacts.
"""

from snakemake.utils import min_version

min_version("9.0")


include: "workflow/common.smk"


# A rule for each kind: problems, overlaps, labels, schemes, base, responses, grades, examples, sft, grpo, selfplay, scores.
for kind in KINDS:

    include: f"workflow/rules/{kind}.smk"


include: "workflow/shards.smk"


# Every recipe is a target, and every artifact by its name; the first recipe of config.yaml is made when none is named.
# They show what was made, each time they are asked for.
for target in [*BOOK.recipes, *BOOK.entries]:

    rule:
        name:
            target
        default_target: target == next(iter(BOOK.recipes))
        input:
            targeted(target),
        localrule: True
        params:
            names=BOOK.targeted(target) if target not in BOOK.faults else [],
        shell:
            f"{PYTHON} proofmill show {{params.names}} --results {RESULTS}"

    if target in BOOK.recipes:
        workflow.get_rule(target).docstring = f"Recipe with {len(BOOK.recipes[target])} tables."


# A target that nothing declares has a rule all the same, which says what there is.
rule unknown:
    input:
        lambda wildcards: refused(wildcards.target),
    output:
        "{target}",
    wildcard_constraints:
        target=r"[^/.]+|(" + "|".join(KINDS) + r")/[^/]+",


# What is to be published is (docs/publishing.md).
onsuccess:
    SCREEN.close()
    if "PROOFMILL_PUBLISH" in os.environ:
        from proofmill.publishing.hub import at_end

        asked = workflow.dag_settings.targets or [next(iter(BOOK.recipes))]
        at_end([str(target) for target in asked], Path(RESULTS), BOOK)


# What stopped, and why, once more at the end: other jobs have gone on meanwhile.
onerror:
    SCREEN.close()
    for line in stopped():
        print(line, file=sys.stderr)
