"""What a site gives jobs: a small YAML file beside config.yaml, laid over the one of a profile, by sort of job and by kind.

A profile (profiles/slurm, profiles/kubernetes) asks `set_resources` for Snakemake's setting of that name. The words are
those of Snakemake and of its executor plugins; what is laid over what, the later the stronger:

    every     all jobs
    cpu       jobs that compute, on no GPU: problems, base, examples, scores
    ask       jobs that wait for the answers of remote models: overlaps, labels, schemes, responses, grades
    serve     the same kinds where a model's weights are served by the job itself
    train     sft, grpo, selfplay
    <kind>    jobs of one kind; GPUs of a kind that asks are for those of its jobs that serve
"""

import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from proofmill.schema.errors import SettingError

FILE = "site.yaml"
SORTS = {
    "cpu": ("problems", "base", "examples", "scores"),
    "ask": ("overlaps", "labels", "schemes", "responses", "grades"),
    "train": ("sft", "grpo", "selfplay"),
}
KINDS = {kind: sort for sort, kinds in SORTS.items() for kind in kinds}
LAYERS = ("every", *SORTS, "serve", *KINDS)
OURS = {"engine": "transformers", "engine_args": "", "launch": None}  # ours, with what stands for one that is not given
SBATCH = ("notice", "exclusive")  # ours, and options of sbatch to SLURM: seconds before the walltime, whole nodes
LONGEST_NOTICE = 65535  # of sbatch's --signal
GPUS = ("gpu", "gpu_model", "engine", "launch")  # for jobs that serve or train, as are a GPU by `gres` and many nodes
SIZED = ("mem_mb", "disk_mb")  # of which Snakemake takes no expression that gives None
SNAKEMAKE = (*SIZED, "runtime", "gpu")
SLURM = (
    *("slurm_account", "slurm_partition", "slurm_extra", "clusters", "constraint", "qos", "gres", "gpu_model"),
    *("cpus_per_task", "cpus_per_gpu", "mem_mb_per_cpu", "nodes", "tasks", "tasks_per_gpu"),
)
KUBERNETES = ("gpu_manufacturer", "machine_type", "scale")
WORDS = (*OURS, *SBATCH, *SNAKEMAKE, *SLURM, *KUBERNETES)
WEIGHTS = ("base", "sft", "grpo", "selfplay")
# In the words of Snakemake's expressions, which see the tables that a job reads and import nothing.
SERVES = "__import__('proofmill.runtime.cluster.site', fromlist=['']).serves(input)"
AFTER = (
    "__import__('proofmill.runtime.cluster.slurm', fromlist=[''])"
    ".after({kind!r}, wildcards.name, wildcards.get('shard'), wildcards.get('shards'))"
)


def set_resources(profile: str | Path) -> dict[str, dict[str, Any]]:
    """Snakemake's `set-resources`: for each kind the words of the profile's site file and of the user's own.

    Raises SettingError for a file that is no such mapping, a word that nobody reads, or a size for half of a kind's jobs.
    """
    layers = _read(Path(profile) / FILE)
    if Path(FILE).exists():
        layers = {layer: _over([layers.get(layer, {}), own]) for layer, own in (layers | _read(Path(FILE))).items()}
    return {kind: _of(kind, layers) for kind in KINDS}


def serves(tables: Iterable[Any]) -> bool:
    """Whether the weights of a model are among the tables that a job reads."""
    return any(Path(table).parent.name in WEIGHTS for table in tables)


def _of(kind: str, layers: Mapping[str, Mapping]) -> dict[str, Any]:
    """What Snakemake is told of a kind: values, or expressions that look at a job's tables."""
    given, served = (_over(layers.get(layer, {}) for layer in ("every", sort, kind)) for sort in (KINDS[kind], "serve"))
    asks = KINDS[kind] == "ask"
    plain = _whole({word: value for word, value in given.items() if not (asks and _wants_gpus(word, value))})
    served = _whole(served)
    if not asks:
        said = {word: repr(value) if isinstance(value, str) else value for word, value in plain.items()}
    else:
        _require_both(kind, plain, served)
        said = {
            # None: not given, as far as an executor can tell.
            word: f"({served.get(word, OURS.get(word))!r} if {SERVES} else {plain.get(word, OURS.get(word))!r})"
            for word in {**plain, **served}
        }
    # A second Snakemake, or one that was started again, waits for the jobs of the first.
    return {**said, "slurm_extra": f"({said.get('slurm_extra')} or '') + {AFTER.format(kind=kind)}"}


def _require_both(kind: str, plain: Mapping[str, Any], served: Mapping[str, Any]) -> None:
    """Raise SettingError for a size that only the jobs of a kind which serve weights have, or only the others."""
    for word in SIZED:
        if (word in plain) != (word in served):
            has, lacks = ("ask", "serve") if word in plain else ("serve", "ask")
            raise SettingError(
                f"{FILE}: {has}: has {word}, and {lacks} has none; expected both or neither, because {kind} has jobs of both "
                f"sorts. Say {word} in {lacks}, too."
            )


def _wants_gpus(word: str, value: Any) -> bool:
    """Whether a word is for jobs on GPUs: those that serve weights, and those that train."""
    return word in GPUS or (word == "gres" and "gpu" in str(value)) or (word == "nodes" and value > 1)


def _over(layers: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Layers over one another, word by word."""
    return {word: value for layer in layers for word, value in layer.items()}


def _whole(words: dict[str, Any]) -> dict[str, Any]:
    """The words, with those without which the SLURM plugin would do something else than what is meant.

    Without `tasks_per_gpu: 0` it runs a job once for each GPU. Without `nodes` SLURM may spread the GPUs over several,
    where the plugin's step, which wants all of them on one, never starts. A job on several nodes starts its own step on
    each (launching.py), which the plugin leaves to it only if it is called one of MPI.
    """
    one = {"nodes": 1} if words.get("gpu") else {}
    several = {"mpi": "srun", "tasks": words["nodes"]} if words.get("nodes", 1) > 1 else {}
    return {"tasks_per_gpu": 0, **one, **several, **_to_sbatch(words)}


def _to_sbatch(words: dict[str, Any]) -> dict[str, Any]:
    """The words, those for sbatch itself among its further options; of two that differ sbatch takes the last."""
    options = [f"--signal=USR1@{words['notice']}"] if words.get("notice") else []
    options += ["--exclusive"] * bool(words.get("exclusive"))
    options += [str(words["slurm_extra"])] if words.get("slurm_extra") else []
    others = {word: value for word, value in words.items() if word not in SBATCH}
    return {**others, "slurm_extra": " ".join(options)} if options else others


def _read(path: Path) -> dict[str, dict[str, Any]]:
    import yaml

    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise SettingError(f"{path}: cannot be read ({error}); expected YAML such as `train: {{gpu: 8}}`.") from error
    if not isinstance(found, dict):
        raise SettingError(f"{path}: is no mapping; expected some of {', '.join(LAYERS)}.")
    for layer, words in found.items():
        if layer not in LAYERS:
            raise SettingError(f"{path}: `{layer}`; expected one of {', '.join(LAYERS)}.{_near(layer, LAYERS)}")
        if not isinstance(words, dict):
            raise SettingError(f"{path}: {layer}: is `{words}`; expected a mapping such as {{runtime: 240}}.")
        for word, value in words.items():
            if word not in WORDS:
                raise SettingError(
                    f"{path}: {layer}: `{word}`; expected one of {', '.join(WORDS)}.{_near(word, WORDS)}"
                )
            if expected := _expected(word, value):
                raise SettingError(f"{path}: {layer}: {word} is `{value}`; expected {expected}.")
            if (layer in ("every", "cpu", "ask") or KINDS.get(layer) == "cpu") and _wants_gpus(word, value):
                raise SettingError(
                    f"{path}: {layer}: {word} is `{value}`, and this holds for jobs that never have a GPU; expected it in serve, "
                    "train or one of their kinds. Move it there."
                )
    return found


def _expected(word: str, value: Any) -> str:
    """What was expected of a word in the place of its value; empty for one that is right."""
    if word == "nodes":
        return "" if type(value) is int and value >= 1 else "one or more"
    if word == "notice":
        return "" if type(value) is int and 0 <= value <= LONGEST_NOTICE else f"seconds, 0 to {LONGEST_NOTICE}"
    if word == "exclusive":
        return "" if type(value) is bool else "true or false"
    return "" if type(value) in (int, str) else "a whole number or a text"


def _near(word: str, words: tuple[str, ...]) -> str:
    """The known word that is most like another one, as a question."""
    near = difflib.get_close_matches(str(word), words, 1)
    return f" Did you mean `{near[0]}`?" if near else ""
