"""Shards: the questions of a stage, asked by several jobs, each its share of the rows (src/proofmill/calls/shards.py).

How many is said by PROOFMILL_SHARDS and is no part of an entry. A shard leaves its answers in a journal beside the
artifact's, and an empty file that the artifact's own job waits for; that job writes the table.
"""

for kind in SPLIT:

    rule:
        name:
            f"{kind}_shard"
        input:
            parents(kind),
        output:
            temp(f"{RESULTS}/unfinished/{{kind}}/{{name}}/shard-{{shard}}-of-{{shards}}"),
        wildcard_constraints:
            kind=kind,
            shard=r"\d+",
            shards=r"\d+",
        params:
            entry=entry(kind),
        shell:
            job("{wildcards.kind}", shard=True)

    # It runs as its kind does, by the rule and the profile, but for what is set for `<kind>_shard` itself.
    of, shard = workflow.get_rule(kind), workflow.get_rule(f"{kind}_shard")
    said = workflow.resource_settings
    own = {*said.overwrite_resources.get(shard.name, {})}
    own |= {"_cores"} if shard.name in said.overwrite_threads else set()
    given = {name: resource for name, resource in of.resources.items() if name not in own}
    shard.resources.update(type(of.resources)(given))
    shard.docstring = f"A share of the questions of a `{kind}` (PROOFMILL_SHARDS)."
