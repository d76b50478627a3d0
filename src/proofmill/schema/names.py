"""Names of artifacts: how they are read, and how derived ones are made. Derived names contain `@`, declared ones never do.

sft/cold                            declared: <kind>/<name>
responses/sft-cold@bench@greedy     the cell of a `scores` entry: model, benchmark, way of sampling
sft/cold@seed-1                     the same artifact made with another seed (`repeat`)
"""

import re

NAME = re.compile(r"[a-z]+/[a-z0-9][a-z0-9.-]*\Z")  # of a declared entry
RECIPE = re.compile(r"[A-Za-z][\w.-]*\Z")  # of a recipe or shared block
WAY = re.compile(r"(?!seed-)[A-Za-z0-9][\w.-]*\Z")  # of sampling
RESULTS = re.compile(r"[\w.-]*(/[\w.-]+)*\Z")  # of the folder of all tables
BESIDE = (".parquet", ".log", ".md", ".lock")  # what stands beside the weights of an artifact, by its name
LONGEST = 200  # characters: a file's name may have 255, and the temporary one is longer
TABLES = "-tables"  # at the end of the name of a published repository of tables
_SEED = re.compile(r"@seed-(\d+)")
# Snakemake takes a name that ends in twenty times the same for a circle of rules.
_PERIODIC = re.compile(r"(.+?)\1{19}\Z")


def kind_of(name: str) -> str:
    """`sft` of `sft/cold`."""
    return name.partition("/")[0]


def file_fault(name: str) -> str | None:
    """Why no files can be called by this name of an artifact, or None."""
    last = name.partition("/")[2]
    if ending := next((ending for ending in BESIDE if last.endswith(ending)), None):
        return f"ends in `{ending}`, as files of other artifacts do; expected another end. Rename it."
    if len(last) > LONGEST:
        return f"has {len(last)} characters; expected at most {LONGEST}. Shorten it, or the names that it is made of."
    if part := _PERIODIC.search(last):
        return (
            f"ends in `{part[1]}` twenty times; expected a name that Snakemake does not take for a circle. Rename it."
        )
    return None


def slug(name: str) -> str:
    """`sft/cold` as part of a derived name: `sft-cold`."""
    return name.replace("/", "-")


def model_suffix(name: str) -> str:
    """The end of the name of a model's published repository, where `@` is not allowed; artifacts have no `_`."""
    return f"-{slug(name)}".replace("@", "_")


def cell(kind: str, model: str, problems: str, sampling: str) -> str:
    """The derived name of a kind's artifact for one cell of a `scores` entry."""
    return f"{kind}/{slug(model)}@{problems.partition('/')[2]}@{sampling}"


def sampling_of(name: str) -> str | None:
    """The way of sampling in the name of a cell; None in any other name."""
    return name.split("@")[2] if name.count("@") > 1 else None


def reseeded(name: str, seed: int) -> str:
    """The name of the same artifact, made with another seed."""
    return f"{name}@seed-{seed}"


def seed_of(name: str) -> int:
    """The seed in a derived name; 0 where there is none."""
    found = _SEED.search(name)
    return int(found[1]) if found else 0


def without_seed(name: str) -> str:
    """The name as it was before `repeat` made it again with another seed."""
    return _SEED.sub("", name)


def preference_name(reference: str) -> str:
    """What a preference is called among the rewards: `helpful` for `grader/helpful`."""
    return reference.partition("/")[2]
