"""proofmill: from raw forum threads to proof-writing models and honest benchmark numbers.

A target is a recipe of config.yaml (`snakemake nano`) or one table (`snakemake results/sft/cold.parquet`).
Without a target: `nano`. `snakemake --list` shows the kinds of artifact and the recipes.
"""

from pathlib import Path

from snakemake.utils import min_version

min_version("9.0")


include: "workflow/common.smk"


# A rule for each kind: problems, overlaps, labels, schemes, base, responses, grades, examples, sft, grpo, scores.
for kind in KINDS:

    include: f"workflow/rules/{kind}.smk"


# Every recipe is a target of its own; the first one of config.yaml is made when none is named.
for recipe in BOOK.recipes:

    rule:
        name:
            recipe
        default_target: recipe == next(iter(BOOK.recipes))
        input:
            targets(recipe),

    workflow.get_rule(recipe).docstring = f"Recipe with {len(BOOK.recipes[recipe])} tables."


# The final screen: the page of every table that was asked for and has one. What is to be published is (docs/publishing.md).
onsuccess:
    asked = workflow.dag_settings.targets or [next(iter(BOOK.recipes))]
    tables = [table for target in asked for table in (targets(target) if target in BOOK.recipes else [target])]
    for page in filter(os.path.exists, (table.replace(".parquet", ".md") for table in map(str, tables))):
        print(open(page, encoding="utf-8").read(), file=sys.stderr)
    if "PROOFMILL_PUBLISH" in os.environ:
        from proofmill.publishing.hub import at_end

        at_end([str(target) for target in asked], Path("results"), BOOK)
