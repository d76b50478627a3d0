"""Parse the names of artifacts and build derived ones. Derived names contain `@`, declared names never do.

sft/cold                            declared: <kind>/<name>
responses/sft-cold@bench@greedy     a cell of a `scores` entry: model, benchmark, sampling setting
sft/cold@seed-1                     the same artifact with another seed (`repeat`)
"""

import re

NAME = re.compile(r"[a-z]+/[a-z0-9][a-z0-9.-]*\Z")  # of a declared entry
ARTIFACT = re.compile(rf"{NAME.pattern[:-2]}(@[A-Za-z0-9][\w.-]*)*\Z")  # declared or derived
RECIPE = re.compile(r"[A-Za-z][\w.-]*\Z")  # of a recipe or shared block
WAY = re.compile(r"(?!seed-)[A-Za-z0-9][\w.-]*\Z")  # of a sampling setting
RESULTS = re.compile(r"[\w.-]*(/[\w.-]+)*\Z")  # of the results folder
ENDINGS = (".parquet", ".log", ".md", ".lock")  # endings of files next to the weights of an artifact
LONGEST = 200  # characters; file systems allow 255, and temporary names are longer
TABLES = "-tables"  # suffix of published repositories of tables
_SEED = re.compile(r"@seed-(\d+)")
# Snakemake mistakes a name that ends in twenty repetitions for a cycle of rules.
_PERIODIC = re.compile(r"(.+?)\1{19}\Z")


def kind_of(name: str) -> str:
    """Return the kind in a name: `sft` of `sft/cold`."""
    return name.partition("/")[0]


def file_fault(name: str) -> str | None:
    """Return why this name cannot be a file name, or None."""
    last = name.partition("/")[2]
    if ending := next((ending for ending in ENDINGS if last.endswith(ending)), None):
        return f"ends in `{ending}`, like files of other artifacts; expected another ending. Rename it."
    if len(last) > LONGEST:
        return (
            f"has {len(last)} characters; expected at most {LONGEST}. Shorten it, or the names that it is derived from."
        )
    if part := _PERIODIC.search(last):
        return (
            f"ends in `{part[1]}` twenty times, which Snakemake mistakes for a cycle; expected another end. Rename it."
        )
    return None


def slug(name: str) -> str:
    """Return a name as part of a derived name: `sft-cold` for `sft/cold`."""
    return name.replace("/", "-")


def model_suffix(name: str) -> str:
    """Return the suffix of a model's published repository. `@` is not allowed there and becomes `_`, which artifacts lack."""
    return f"-{slug(name)}".replace("@", "_")


def cell(kind: str, model: str, problems: str, sampling: str) -> str:
    """Return the name of a kind's artifact for one cell of a `scores` entry."""
    return f"{kind}/{slug(model)}@{problems.partition('/')[2]}@{sampling}"


def sampling_of(name: str) -> str | None:
    """Return the sampling setting in the name of a cell; None for other names."""
    return name.split("@")[2] if name.count("@") > 1 else None


def reseed(name: str, seed: int) -> str:
    """Return the name of the same artifact with another seed."""
    return f"{name}@seed-{seed}"


def parse_seed(name: str) -> int:
    """Return the seed in a derived name; 0 for other names."""
    match = _SEED.search(name)
    return int(match[1]) if match else 0


def without_seed(name: str) -> str:
    """Return the name without the seed that `repeat` added."""
    return _SEED.sub("", name)


def preference_name(reference: str) -> str:
    """Return the name of a preference among the rewards: `helpful` for `grader/helpful`."""
    return reference.partition("/")[2]
