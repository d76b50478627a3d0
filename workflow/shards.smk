"""Shards: several jobs make the calls of a stage, each for its share of the rows (src/proofmill/calls/shards.py).

PROOFMILL_SHARDS sets their number, which does not affect the fingerprint. A shard writes its outputs to a journal next
to the artifact's, and creates an empty file. The artifact's own job waits for these files and writes the table.
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

    # Resources and threads are those of the kind, unless the profile sets some for `<kind>_shard`.
    of, shard = workflow.get_rule(kind), workflow.get_rule(f"{kind}_shard")
    settings = workflow.resource_settings
    own = {*settings.overwrite_resources.get(shard.name, {})}
    own |= {"_cores"} if shard.name in settings.overwrite_threads else set()
    inherited = {name: resource for name, resource in of.resources.items() if name not in own}
    shard.resources.update(type(of.resources)(inherited))
    shard.docstring = f"Make a share of the calls of a `{kind}` (PROOFMILL_SHARDS)."
