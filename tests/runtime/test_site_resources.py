"""The resources of each kind of job at a site, and the profiles that use them."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from snakemake.cli import get_argument_parser
from snakemake.resources import Resource

from mill import ROOT
from proofmill.runtime.cluster import site_resources, slurm
from proofmill.schema.errors import SettingError
from proofmill.schema.kinds import KINDS

PROFILES = [path.parent for path in sorted(ROOT.glob("profiles/*/config.yaml"))]
WITH_SITES = [path for path in PROFILES if (path / "site.yaml").exists()]
# The options of snakemake-executor-plugin-kubernetes 0.5.1, which is in no lock.
KUBERNETES = {
    f"--kubernetes-{option}"
    for option in (
        "namespace",
        "cpu-scalar",
        "service-account-name",
        "privileged",
        "persistent-volumes",
        "omit-job-cleanup",
    )
}
GPUS = "inference: {gpu: 1, gpu_model: h100, engine: vllm}\ntrain: {gpu: 16, nodes: 2, mem_mb: 900000}\n"


@pytest.fixture
def resources(tmp_path, monkeypatch):
    """Return the resources of SLURM's profile with a user's file of this text; values as Snakemake evaluates them."""

    def given(text: str = "", profile: Path = ROOT / "profiles/slurm") -> dict:
        monkeypatch.chdir(tmp_path)
        Path("site.yaml").write_text(text)
        return site_resources.set_resources(profile)

    return given


def evaluated(word: str, value: object, *tables: str) -> object:
    """Return the value of a resource for a job that reads some tables."""
    return Resource.cli_evaluator(
        word, str(value), wildcards=None, input=list(tables), attempt=1, threads=1, async_run=lambda awaited: awaited
    )


# ---------------------------------------------------------------------------------------------------------- the profiles


@pytest.mark.parametrize("profile", PROFILES, ids=lambda path: path.name)
def test_profile_has_only_options_that_there_are(profile):
    """Each key is an option of Snakemake or of the executor's plugin: an unknown one would end every run."""
    known = {*get_argument_parser()._option_string_actions, *KUBERNETES}
    settings = yaml.safe_load((profile / "config.yaml").read_text())
    assert {f"--{key}" for key in settings if not key.startswith("__")} <= known


def test_kubernetes_options_are_those_of_its_plugin():
    """The list here is that of the installed version, where one is."""
    plugin = pytest.importorskip("snakemake_executor_plugin_kubernetes", reason="is in no lock of this project")
    fields = {f"--kubernetes-{name.replace('_', '-')}" for name in plugin.ExecutorSettings.__dataclass_fields__}
    assert fields == KUBERNETES


@pytest.mark.parametrize("profile", WITH_SITES, ids=lambda path: path.name)
def test_site_of_a_profile_says_what_each_kind_gets(profile, resources):
    """Every kind has its words in the shipped file alone, and no shipped file asks for a GPU."""
    given = resources(profile=profile)
    assert set(given) == set(KINDS)
    assert not [kind for kind, words in given.items() if "gpu" in words]


# -------------------------------------------------------------------------------------------------------------- by sort


def test_gpus_go_to_those_that_serve_and_train(resources):
    """Kinds that compute have no GPU, those that ask one only where weights are among a job's tables."""
    given = resources(GPUS)
    assert all("gpu" not in given[kind] for kind in ("problems", "base", "examples", "scores"))
    assert all(given[kind]["gpu"] == 16 for kind in ("sft", "grpo", "selfplay"))
    for kind in ("overlaps", "labels", "schemes", "responses", "grades"):
        gpu, engine = given[kind]["gpu"], given[kind]["engine"]
        remote, served = ["results/problems/x.parquet"], ["results/problems/x.parquet", "results/sft/y.parquet"]
        assert evaluated("gpu", gpu, *remote) is None and evaluated("engine", engine, *remote) == "transformers"
        assert evaluated("gpu", gpu, *served) == 1 and evaluated("engine", engine, *served) == "vllm"


@pytest.mark.parametrize("layer", ["default", "cpu", "remote", "problems", "scores"])
@pytest.mark.parametrize(
    "word", ["gpu: 1", "gpu_model: h100", "gres: 'gpu:1'", "engine: vllm", "launch: python -m x", "nodes: 2"]
)
def test_gpus_of_jobs_that_never_have_one_are_refused(resources, layer, word):
    """Where a word would give one to jobs that compute or wait, the message says where it belongs."""
    with pytest.raises(
        SettingError, match=f"^site.yaml: {layer}: {word.split(':')[0]} is .* in inference, train or one of"
    ):
        resources(f"{layer}: {{{word}}}\n")
    assert resources("default: {gres: 'lscratch:10', nodes: 1}\n")["problems"]["gres"] == "'lscratch:10'"


def test_gpus_of_a_kind_that_asks_are_for_its_jobs_that_serve(resources):
    """Those of its jobs that ask a remote model hold none, and no node more than one."""
    words = resources("responses: {gpu: 16, nodes: 2, engine: vllm, qos: long}\n")["responses"]
    said = {word: evaluated(word, words[word], "results/sft/y.parquet") for word in ("gpu", "nodes", "engine", "qos")}
    assert said == {"gpu": 16, "nodes": 2, "engine": "vllm", "qos": "long"}
    remote = {word: evaluated(word, words[word], "results/problems/x.parquet") for word in said}
    assert remote == {"gpu": None, "nodes": None, "engine": "transformers", "qos": "long"}


def test_jobs_that_only_ask_have_one_core_and_a_day(resources):
    """They wait for others; so do the shipped words for them."""
    words = resources()["labels"]
    assert evaluated("runtime", words["runtime"], "results/problems/x.parquet") == 1440
    assert evaluated("cpus_per_task", words["cpus_per_task"], "results/problems/x.parquet") == 1


def test_job_with_gpus_is_one_task(resources):
    """Without the word the plugin starts a job once for each GPU; a job of several nodes starts its own steps."""
    given = resources(GPUS)
    assert given["sft"]["tasks_per_gpu"] == 0
    assert given["sft"]["tasks"] == 2 and evaluated("mpi", given["sft"]["mpi"]) == "srun"


def test_gpus_of_a_job_are_on_one_node_unless_it_asks_for_several(resources):
    """Without a word on nodes SLURM may spread them; jobs without a GPU, and those that say a number, are left alone."""
    given = resources("inference: {gpu: 2}\ntrain: {gpu: 4}\ngrpo: {gpu: 16, nodes: 2}\nselfplay: {gpu: 0}\n")
    assert (given["sft"]["nodes"], given["grpo"]["nodes"]) == (1, 2)
    assert not [kind for kind in ("problems", "base", "scores", "selfplay") if "nodes" in given[kind]]
    assert evaluated("nodes", given["responses"]["nodes"], "results/sft/y.parquet") == 1
    assert evaluated("nodes", given["responses"]["nodes"], "results/problems/x.parquet") is None


def test_only_jobs_that_serve_are_on_several_nodes_where_serving_is(resources):
    """Of a kind that asks, those jobs alone start their own steps; the others have one task on one node."""
    words = resources("inference: {gpu: 16, nodes: 2}\n")["responses"]
    said = {word: evaluated(word, words[word], "results/sft/y.parquet") for word in ("nodes", "tasks", "mpi", "gpu")}
    assert said == {"nodes": 2, "tasks": 2, "mpi": "srun", "gpu": 16}
    assert not any(evaluated(word, words[word], "results/problems/x.parquet") for word in said)


@pytest.mark.parametrize("nodes", ["two", "'2'", "0"])
def test_number_of_nodes_is_a_number(resources, nodes):
    """Tasks are counted by it."""
    with pytest.raises(SettingError, match=r"site.yaml: grpo: nodes is `\w+`; expected one or more\.$"):
        resources(f"grpo: {{nodes: {nodes}}}\n")


def options(given: dict, kind: str, *tables: str, monkeypatch) -> str:
    """Return the further options of sbatch for a job that reads some tables, without other jobs in the queue."""
    monkeypatch.setattr(slurm, "after", lambda *_: "")
    names = SimpleNamespace(name="x", get=lambda _: None)
    return Resource.cli_evaluator(
        "slurm_extra", given[kind]["slurm_extra"], wildcards=names, input=list(tables), attempt=1, threads=1,
        async_run=lambda awaited: awaited,
    )  # fmt: skip


def test_training_has_its_node_alone_and_is_told_of_its_walltime(resources, monkeypatch):
    """Both are options of sbatch, and none is a resource of Snakemake."""
    given = resources()
    assert options(given, "grpo", monkeypatch=monkeypatch) == "--signal=USR1@600 --exclusive"
    assert options(given, "problems", monkeypatch=monkeypatch) == "--signal=USR1@120"
    assert not {"signal_seconds", "exclusive"} & {word for words in given.values() for word in words}


def test_further_options_of_sbatch_leave_the_notice_and_whole_nodes(resources, monkeypatch):
    """A user's options for all jobs reach all; a longer notice, or a shared node, is a word of its own."""
    given = resources(
        "default: {slurm_extra: --mail-type=END}\nsft: {signal_seconds: 1800, exclusive: false}\nbase: {signal_seconds: 0}\n"
    )
    said = {kind: options(given, kind, "results/base/x.parquet", monkeypatch=monkeypatch) for kind in KINDS}
    assert all(text.split()[-1] == "--mail-type=END" for text in said.values())
    assert said["grpo"] == "--signal=USR1@600 --exclusive --mail-type=END"
    assert said["sft"] == "--signal=USR1@1800 --mail-type=END" and said["base"] == "--mail-type=END"
    assert said["grades"] == said["problems"] == "--signal=USR1@120 --mail-type=END"


@pytest.mark.parametrize("profile", WITH_SITES, ids=lambda path: path.name)
def test_size_of_one_side_is_refused_or_has_a_counterpart(profile, resources):
    """Snakemake stops at an expression that gives no size: memory is shipped for both sides, a disk has to be said."""
    memory = resources("inference: {mem_mb: 64000}\n", profile)["labels"]["mem_mb"]
    assert evaluated("mem_mb", memory, "results/problems/x.parquet") == 4000
    assert evaluated("mem_mb", memory, "results/sft/y.parquet") == 64000
    with pytest.raises(
        SettingError, match=r"^site.yaml: inference: has disk_mb, but remote has none; .* Set disk_mb in remote"
    ):
        resources("inference: {disk_mb: 9000}\n")
    assert resources("labels: {disk_mb: 9000}\n")["labels"]["disk_mb"]


def test_artifact_has_its_own_settings_and_others_those_of_their_kind(resources):
    """One run has several engines and launch lines; what a section leaves out is that of its kind."""
    given = resources(
        "train: {gpu: 16, nodes: 2, mem_mb: 900000, launch: two}\n"
        "grpo/short: {gpu: 8, nodes: 1, launch: 'one --rollout-gpus 4', engine: vllm-server}\n"
        "inference: {gpu: 1, engine: vllm}\nresponses/large: {gpu: 4, engine_args: --tensor-parallel-size 4}\n"
    )

    def of(kind, name, word):
        return Resource.cli_evaluator(
            word, str(given[kind][word]), wildcards=SimpleNamespace(name=name), input=["results/sft/y.parquet"], attempt=1,
            threads=1, async_run=lambda awaited: awaited,
        )  # fmt: skip

    words = ("gpu", "nodes", "launch", "engine", "mem_mb", "mpi")
    assert [of("grpo", "short", word) for word in words] == [8, 1, "one --rollout-gpus 4", "vllm-server", 900000, None]
    assert [of("grpo", "long", word) for word in words] == [16, 2, "two", "transformers", 900000, "srun"]
    assert [of("responses", "large", word) for word in ("gpu", "engine", "engine_args")] == [
        4, "vllm", "--tensor-parallel-size 4",
    ]  # fmt: skip
    assert [of("responses", "small", word) for word in ("gpu", "engine", "engine_args")] == [1, "vllm", ""]
    assert given["sft"]["gpu"] == 16
    given = resources("sft/two: {launch: two}\n")
    assert [of("sft", name, "launch") for name in ("two", "one")] == ["two", site_resources.LAUNCH]
    with pytest.raises(SettingError, match=r"^site.yaml: grpo/x: has disk_mb, but other jobs of its kind have none"):
        resources("grpo/x: {disk_mb: 9}")
    with pytest.raises(SettingError, match=r"problems/x has jobs that never use a GPU"):
        resources("problems/x: {gpu: 1}")


def test_jobs_on_this_machine_take_turns_on_its_gpus(tmp_path, monkeypatch):
    """A job with GPUs has all of them, so `gpu` is one token; words for SLURM and sizes have no effect."""
    monkeypatch.chdir(tmp_path)
    Path("site.yaml").write_text(f"{GPUS}grpo/x: {{gpu: 8, engine: vllm-server}}\n")
    given = site_resources.set_resources(ROOT / "profiles/gpus", local=True)
    assert given["sft"]["gpu"] == 1 and "mem_mb" not in given["sft"] and "gpu_model" not in given["labels"]
    assert "gpu" not in given["problems"]


def test_kind_is_over_its_sort_and_the_user_over_the_profile(resources):
    """A word of a kind holds for it alone, one of `default` where nothing nearer says another."""
    given = resources("default: {slurm_account: maths}\nsft: {runtime: 30}\n")
    assert {evaluated("slurm_account", words["slurm_account"]) for words in given.values()} == {"maths"}
    assert (given["sft"]["runtime"], given["grpo"]["runtime"]) == (30, 1440)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("trane: {gpu: 8}", "`trane`; expected one of default, cpu, remote, train, inference, problems"),
        ("train: {gpus: 8}", "train: `gpus`; expected one of .*Did you mean `gpu`"),
        ("train: 8", "train: is `8`; expected a mapping"),
        ("train: {gpu: [8]}", r"train: gpu is `\[8\]`; expected a whole number or a text"),
        ("train: {signal_seconds: 1h}", "train: signal_seconds is `1h`; expected seconds, 0 to 65535"),
        ("train: {signal_seconds: 90000}", "train: signal_seconds is `90000`; expected seconds"),
        ("train: {exclusive: 1}", "train: exclusive is `1`; expected true or false"),
        ("train: {gpu: true}", "train: gpu is `True`; expected a whole number or a text"),
        ("- train", "is not a mapping"),
        ("train: {", "cannot be read"),
    ],
)
def test_mistake_in_a_site_file_is_named(resources, text, said):
    """The message has the file, the place, and the nearest word."""
    with pytest.raises(SettingError, match=f"^site.yaml: {said}"):
        resources(text)
