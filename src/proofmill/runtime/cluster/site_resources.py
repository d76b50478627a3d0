"""The resources of a site's jobs: a small YAML file next to config.yaml, merged onto that of a profile.

A profile (profiles/slurm, profiles/kubernetes) calls `set_resources` for Snakemake's setting of that name. The keys
are those of Snakemake and of its executor plugins. Later layers override earlier ones:

    default        all jobs
    cpu            jobs that compute without a GPU: kinds that neither call models nor train
    remote         jobs that wait for remote models: kinds that call models
    inference      jobs of the same kinds that load a model's weights themselves
    train          trainings
    <kind>         jobs of one kind; GPUs of a kind that calls models are for its `inference` jobs
    <kind>/<name>  the job of one artifact

The record of a kind (schema/kinds.py) decides its layer.
"""

import difflib
import shlex
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from proofmill.schema.errors import SettingError
from proofmill.schema.kinds import KINDS, Kind

FILE = "site.yaml"
SORTS = ("cpu", "remote", "train")
LAYERS = ("default", *SORTS, "inference", *KINDS)
# The command before a training's module; a site may start a process per device instead.
LAUNCH = f"{shlex.quote(sys.executable)} -m"
OURS = {"engine": "transformers", "engine_args": "", "launch": LAUNCH}  # our own words, with their defaults
SBATCH = ("signal_seconds", "exclusive")  # our own words for options of sbatch: seconds before the walltime, full nodes
LONGEST_NOTICE = 65535  # of sbatch's --signal
GPUS = (
    "gpu",
    "gpu_model",
    "engine",
    "launch",
)  # for jobs that serve or train; so are a GPU in `gres` and several nodes
SIZED = ("mem_mb", "disk_mb")  # Snakemake refuses an expression for these that returns None
SNAKEMAKE = (*SIZED, "runtime", "gpu")
SLURM = (
    *("slurm_account", "slurm_partition", "slurm_extra", "clusters", "constraint", "qos", "gres", "gpu_model"),
    *("cpus_per_task", "cpus_per_gpu", "mem_mb_per_cpu", "nodes", "tasks", "tasks_per_gpu"),
)
LOCAL = (*OURS, "gpu")  # words that have an effect without a cluster
KUBERNETES = ("gpu_manufacturer", "machine_type", "scale")
WORDS = (*OURS, *SBATCH, *SNAKEMAKE, *SLURM, *KUBERNETES)
# Snakemake evaluates these expressions for each job. They see its input files and import by hand.
SERVES = "__import__('proofmill.runtime.cluster.site_resources', fromlist=['']).serves(input)"
AFTER = (
    "__import__('proofmill.runtime.cluster.slurm', fromlist=[''])"
    ".after({kind!r}, wildcards.name, wildcards.get('shard'), wildcards.get('shards'))"
)


def set_resources(profile: str | Path, local: bool = False) -> dict[str, dict[str, Any]]:
    """Return Snakemake's `set-resources`: for each kind, the words of the profile's site file and of the user's own.

    local: jobs run on this machine, where each job on GPUs has all of them; its `gpu` is a token of which there is one.
    Raises SettingError for a file that is not such a mapping, an unknown word, or a size for only half of a kind's
    jobs.
    """
    layers = _read(Path(profile) / FILE)
    if Path(FILE).exists():
        layers = {layer: _merge([layers.get(layer, {}), own]) for layer, own in (layers | _read(Path(FILE))).items()}
    if local:
        layers = {
            layer: {word: min(value, 1) if word == "gpu" else value for word, value in words.items() if word in LOCAL}
            for layer, words in layers.items()
        }
    return {kind: _resources(kind, layers) for kind in KINDS}


def sort_of(kind: Kind) -> str:
    """Return the layer of a kind's jobs: `train`, `remote` or `cpu`."""
    return "train" if kind.trains else "remote" if kind.calls_models else "cpu"


def serves(tables: Iterable[Any]) -> bool:
    """Return whether a job reads the weights of a model."""
    return any(kind.weights for table in tables if (kind := KINDS.get(Path(table).parent.name)))


def _resources(kind: str, layers: Mapping[str, Mapping]) -> dict[str, Any]:
    """Return the resources of a kind: values, or expressions that depend on a job's input files."""
    sort = sort_of(KINDS[kind])
    given, served = (_merge(layers.get(layer, {}) for layer in ("default", base, kind)) for base in (sort, "inference"))
    asks = sort == "remote"
    plain = _complete({word: value for word, value in given.items() if not (asks and _wants_gpus(word, value))})
    served = _complete(served)
    if not asks:
        resources = {word: repr(value) if isinstance(value, str) else value for word, value in plain.items()}
    else:
        _require_both(kind, plain, served)
        resources = {  # an executor ignores a resource that is None
            word: f"({served.get(word, OURS.get(word))!r} if {SERVES} else {plain.get(word, OURS.get(word))!r})"
            for word in {**plain, **served}
        }
    resources = _add_artifacts(kind, layers, "inference" if asks else sort, resources)
    # A second or restarted Snakemake waits for the jobs of the first.
    return {**resources, "slurm_extra": f"({resources.get('slurm_extra')} or '') + {AFTER.format(kind=kind)}"}


def _add_artifacts(kind: str, layers: Mapping[str, Mapping], sort: str, resources: Mapping[str, Any]) -> dict[str, Any]:
    """Return the resources of a kind with those of its artifacts that have a section of their own."""
    chains = {layer: ("default", sort, kind, layer) for layer in layers if layer.startswith(f"{kind}/")}
    own = {
        layer.partition("/")[2]: _complete(_merge(layers.get(part, {}) for part in chain))
        for layer, chain in chains.items()
    }
    for layer in chains:
        if lacking := [word for word in SIZED if word in layers[layer] and word not in resources]:
            raise SettingError(
                f"{FILE}: {layer}: has {lacking[0]}, but other jobs of its kind have none; expected both or neither. Set "
                f"{lacking[0]} in {kind}, too."
            )
    given = dict(resources)
    for word in dict.fromkeys(word for words in own.values() for word in (*words, *resources)):
        values = {name: words.get(word, OURS.get(word)) for name, words in own.items()}
        given[word] = f"({values!r}.get(wildcards.name, {resources.get(word, repr(OURS.get(word)))}))"
    return given


def _require_both(kind: str, plain: Mapping[str, Any], served: Mapping[str, Any]) -> None:
    """Raise SettingError for a size that is set only for a kind's jobs that serve weights, or only for the others."""
    for word in SIZED:
        if (word in plain) != (word in served):
            has, lacks = ("remote", "inference") if word in plain else ("inference", "remote")
            raise SettingError(
                f"{FILE}: {has}: has {word}, but {lacks} has none; expected both or neither, because {kind} has jobs of both "
                f"sorts. Set {word} in {lacks}, too."
            )


def _wants_gpus(word: str, value: Any) -> bool:
    """Return whether a word is for jobs on GPUs: those that serve weights, and trainings."""
    return word in GPUS or (word == "gres" and "gpu" in str(value)) or (word == "nodes" and value > 1)


def _merge(layers: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Merge layers; the value of a word is that of the last layer that has it."""
    return {word: value for layer in layers for word, value in layer.items()}


def _complete(words: dict[str, Any]) -> dict[str, Any]:
    """Add the words that the SLURM plugin needs for one task per job.

    Without `tasks_per_gpu: 0` it runs a job once per GPU. Without `nodes` SLURM may spread the GPUs over several nodes,
    but the plugin's step wants all of them on one and never starts. A job on several nodes starts its own step on each
    (launching.py); the plugin allows this only for MPI jobs.
    """
    one = {"nodes": 1} if words.get("gpu") else {}
    several = {"mpi": "srun", "tasks": words["nodes"]} if words.get("nodes", 1) > 1 else {}
    return {"tasks_per_gpu": 0, **one, **several, **_to_sbatch(words)}


def _to_sbatch(words: dict[str, Any]) -> dict[str, Any]:
    """Move words for sbatch into `slurm_extra`; of two options that differ sbatch takes the last."""
    options = [f"--signal=USR1@{words['signal_seconds']}"] if words.get("signal_seconds") else []
    options += ["--exclusive"] * bool(words.get("exclusive"))
    options += [str(words["slurm_extra"])] if words.get("slurm_extra") else []
    others = {word: value for word, value in words.items() if word not in SBATCH}
    return {**others, "slurm_extra": " ".join(options)} if options else others


def _read(path: Path) -> dict[str, dict[str, Any]]:
    """Read and check a site file."""
    import yaml

    try:
        layers = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise SettingError(f"{path}: cannot be read ({error}); expected YAML such as `train: {{gpu: 8}}`.") from error
    if not isinstance(layers, dict):
        raise SettingError(f"{path}: is not a mapping; expected some of {', '.join(LAYERS)}.")
    for layer, words in layers.items():
        kind, _, name = str(layer).partition("/")
        if layer not in LAYERS and not (name and kind in KINDS):
            raise SettingError(f"{path}: `{layer}`; expected one of {', '.join(LAYERS)}.{_near(layer, LAYERS)}")
        if not isinstance(words, dict):
            raise SettingError(f"{path}: {layer}: is `{words}`; expected a mapping such as {{runtime: 240}}.")
        for word, value in words.items():
            _check_word(f"{path}: {layer}", layer, word, value)
    return layers


def _check_word(where: str, layer: str, word: str, value: Any) -> None:
    """Raise SettingError for an unknown word, a value of another type, or a GPU for jobs that never use one."""
    if word not in WORDS:
        raise SettingError(f"{where}: `{word}`; expected one of {', '.join(WORDS)}.{_near(word, WORDS)}")
    if expected := _describe_expected(word, value):
        raise SettingError(f"{where}: {word} is `{value}`; expected {expected}.")
    kind = layer.partition("/")[0]
    computes = layer in ("default", "cpu", "remote") or (kind in KINDS and sort_of(KINDS[kind]) == "cpu")
    if computes and _wants_gpus(word, value):
        raise SettingError(
            f"{where}: {word} is `{value}`, but {layer} has jobs that never use a GPU; expected it in inference, train or one "
            "of their kinds. Move it there."
        )


def _describe_expected(word: str, value: Any) -> str:
    """Return the expected values of a word; empty if `value` is one of them."""
    if word == "nodes":
        return "" if type(value) is int and value >= 1 else "one or more"
    if word == "signal_seconds":
        return "" if type(value) is int and 0 <= value <= LONGEST_NOTICE else f"seconds, 0 to {LONGEST_NOTICE}"
    if word == "exclusive":
        return "" if type(value) is bool else "true or false"
    return "" if type(value) in (int, str) else "a whole number or a text"


def _near(word: str, words: tuple[str, ...]) -> str:
    """Return a question with the known word that is most similar; empty if none is."""
    near = difflib.get_close_matches(str(word), words, 1)
    return f" Did you mean `{near[0]}`?" if near else ""
