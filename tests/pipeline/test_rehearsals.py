"""Every recipe but `nano` under the rehearsal: it runs to its end on two cores, and a second run does nothing.

`make test` rehearses the least of each system, `make test-all` all of it.
"""

import os
import re
import runpy
import sys
from collections.abc import Iterable
from pathlib import Path

import polars as pl
import pytest

from browsing import chromium, page_of, pictured, read_from_disk
from mill import ROOT
from pages import TUTORIAL, commands
from project import Project, copy_of
from proofmill.config import yaml_files
from proofmill.config.config import expand
from proofmill.schema import references

pytestmark = pytest.mark.pipeline
# `nano` is rehearsed in test_pipeline.py; `nano-seeds` is nano again.
SYSTEMS = ("gsm8k-length", "r1-zero", "deepseek-r1", "qed-nano", "absolute-zero")
OTHERS = (
    *("real-corpus", "gold-answers", "grader-study", "imo-bench", "nano-claims", "nano-tuning", "nano-staleness"),
    *(
        "nano-taught",
        "nano-taught-tuning",
        "nano-idle",
        "nano-retired",
        "verifier",
        "verifier-nano",
        "verifier-unlike",
        "verifier-smol",
        "cascade-nano",
    ),
    *(
        "nano-scaffolds",
        "smol",
        "smol-taught",
        "smol-taught-tuning",
        "smol-gsm8k",
        "smol-proofs",
        "absolute-zero-nano",
        "released",
        "openr1-distill",
    ),
)
RECIPES = (*OTHERS, *SYSTEMS)
# The systems again, with other weights, tables or one part changed: `make test-all` rehearses them.
VARIANTS = (
    *(
        "r1-zero-7b",
        "deepseek-r1-1.5b",
        "deepseek-r1-knowledge",
        "qed-nano-published",
        "qed-nano-ablation",
        "released-large",
    ),
    *("absolute-zero-sizes", "absolute-zero-ablations"),
)
# The least that shows each system: its kinds of training and the scores of one benchmark.
LEAST = (
    *("grpo/gsm8k-group", "grpo/r1-zero", "grpo/r1", "sft/r1-qwen-1.5b", "grpo/qed-rl"),
    "scores/absolute-zero-predictions",
)


@pytest.fixture(scope="module")
def least(tmp_path_factory) -> Project:
    """Return the least of each system, built in one run from nothing."""
    project = Project(tmp_path_factory.mktemp("least") / "project", overlay="workflow/rehearsal.yaml")
    project.first = project.made(*LEAST)
    return project


@pytest.fixture(scope="module")
def rehearsed(tmp_path_factory) -> Project:
    """Return the recipes, built in one run from nothing."""
    project = Project(tmp_path_factory.mktemp("rehearsed") / "project", overlay="workflow/rehearsal.yaml")
    project.first = project.made(*RECIPES)
    return project


def test_every_recipe_is_rehearsed():
    """A recipe added to config.yaml is rehearsed too."""
    known = set(expand(yaml_files.read("config.yaml")).recipes)
    assert known == {
        *RECIPES,
        *VARIANTS,
        "nano",
        "nano-seeds",
        "smol-seeds",
        "scaffolds-nano-seeds",
        "absolute-zero-nano-seeds",
    }


def test_least_of_each_system_is_made_and_nothing_twice(least):
    """Each system has a part; one job for each artifact, then none."""
    for recipe in SYSTEMS:
        assert set(least.config.recipes[recipe]) & set(LEAST), recipe
    wanted = {name for target in LEAST for name in (target, *references.ancestors(least.config.entries, target))}
    assert wanted == set(least.first)
    assert least.made(*LEAST) == []


def test_least_of_each_system_trains_by_rewards_that_vary(least):
    """Every training of the systems left what a training leaves, and its rewards differ within some group."""
    assert len(assert_rewards_vary(least, least.first)) == 8
    trained = [name for name in least.first if name.startswith(("sft/", "grpo/"))]
    assert len(trained) == 13
    for name in trained:
        assert_trained(least, name)


@pytest.mark.long
def test_tutorial_ends_with_all_that_it_shows(tmp_path):
    """docs/tutorial.md, command after command, with the models and sizes of the rehearsal."""
    here = Project(tmp_path / "tutorial", overlay="workflow/rehearsal.yaml")
    (own,) = re.findall(r"^```yaml\n(.*?)^```", TUTORIAL.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    (here.folder / "own.yaml").write_text(own, encoding="utf-8")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    ran = 0
    for command in commands(TUTORIAL):
        if not command.startswith(("snakemake", "proofmill")):
            continue  # it installs, or downloads the model
        words, _, mine = command.partition(" --configfile ")
        # `plot` reads tables alone, so it takes no configuration.
        here_only = f"--results {here.results}" if "plot" in words else " ".join(here.overlay)
        done = here.run("bash", "-c", f"{words} {here_only} {mine}", PATH=path)
        assert (done.returncode, "Traceback" in done.stdout) == (0, False), f"{command}\n{done.stdout}"
        ran += 1
    assert ran == 19
    assert {"smol.html", "curves.svg"} <= {file.name for file in here.folder.iterdir()}
    assert here.made("smol") == []  # the change of the last step was taken back


@pytest.mark.long
def test_rehearsal_makes_every_table_and_nothing_twice(rehearsed):
    """One job for each artifact; then none."""
    assert needed(rehearsed, RECIPES) == set(rehearsed.first)
    assert rehearsed.made(*RECIPES) == []


def needed(project: Project, recipes: Iterable[str]) -> set[str]:
    """Return the artifacts of recipes."""
    config = project.config
    targets = [target for recipe in recipes for target in config.recipes[recipe]]
    return {name for target in targets for name in (target, *references.ancestors(config.entries, target))}


@pytest.mark.long
@pytest.mark.browser
def test_report_of_a_rehearsal_opens_from_disk(rehearsed, tmp_path):
    """`deepseek-r1`, with its trainings by rewards and its distilled student: one file, without a network."""
    file = tmp_path / "r1.html"
    done = rehearsed.run(sys.executable, "-m", "proofmill", "report", "deepseek-r1", "--out", file, *rehearsed.overlay)
    assert done.returncode == 0, done.stdout
    with chromium() as browser, page_of(browser) as page:
        read_from_disk(page, file)
        assert "not built yet" not in page.inner_text("main")
        pictured(page, "deepseek-r1-report")


@pytest.mark.long
def test_rehearsed_graders_agree_with_the_checker(rehearsed):
    """The referee, alone, as a jury and in a cascade, agrees with the checker everywhere, and nothing is unscored."""
    rows = rehearsed.table("scores/grader-study").rows()
    agreed = [row for row in rows if row["metric"].startswith(("balanced", "cohen")) and row["slice"] == "all"]
    assert len(agreed) == 36
    assert {(row["value"], row["unscored"]) for row in agreed} == {(1.0, 0.0)}
    for name in ("scores/gold-answers", "scores/gold-code"):
        assert {(row["value"], row["unscored"]) for row in rehearsed.table(name).rows()} == {(1.0, 0.0)}


@pytest.mark.long
def test_rehearsed_averages_are_next_to_published_ones(rehearsed):
    """Nine benchmarks, two averages and their mean; what others report is on the page and not in the table."""
    table = rehearsed.table("scores/absolute-zero")
    rows = [row for row in table.rows() if row["metric"] == "avg@1" and row["slice"] == "all" and not row["baseline"]]
    own = [row["problems"] for row in rows if row["model"] == "selfplay/azr-7b"]
    assert own[-3:] == ["code", "mathematics", "total"] and len(own) == 12
    assert all(row["low"] <= row["value"] <= row["high"] for row in rows)
    assert "| AZR-Base-7B | 0.713 |" in table.page.read_text()


@pytest.mark.long
def test_rehearsed_claims_fill_their_page(rehearsed, tmp_path, monkeypatch):
    """The attempts that are kept as CSV give the claims of the stamps. Each has its sentence on the page, with pictures."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    page, old = tmp_path / "claims.md", (ROOT / "docs/claims.md").read_text(encoding="utf-8")
    page.write_text(old, encoding="utf-8")
    script = runpy.run_path(str(ROOT / "benchmarks/claims.py"))
    for recipe in (
        "nano-claims",
        "nano-staleness",
        "nano-tuning",
        "nano-taught",
        "nano-taught-tuning",
        "nano-idle",
        "nano-retired",
        "smol-taught",
        *script["verifiers"].STUDIES,
    ):
        script["seeds"].write(rehearsed.config, recipe, 0, rehearsed.results, tmp_path / "kept")
    for study in script["verifiers"].STUDIES.values():
        script["verifiers"].collect(study, rehearsed.results, 0, tmp_path / "kept")
    script["main"](rehearsed.config, tmp_path / "kept", page)
    text = page.read_text(encoding="utf-8")
    settled = rehearsed.table("scores/claims-rewards-seeds").stamp["claims"]
    settled |= rehearsed.table("scores/claims-ways-seeds").stamp["claims"]
    settled |= rehearsed.table("scores/claims-attempts-seeds").stamp["claims"]
    assert {name[0] for name in settled} == {"1", "3", "4", "5"}
    for name, claim in settled.items():
        assert f"| {name} | {claim['statement'].rstrip('.')} | **{claim['outcome']}** |" in text
    blocks, before = ({m[2]: m[0] for m in script["seeds"].BLOCK.finditer(each)} for each in (text, old))
    assert {name for name, block in blocks.items() if block == before[name]} == {"costs", "lost", "smol"}
    assert "| grpo/judge-believes |" in text and "| grpo/dodge-drop |" in text
    assert all((tmp_path / "images" / name).exists() for name in ("claims.svg", "claims-attempts.svg"))


@pytest.mark.long
def test_rehearsed_scaffolds_are_compared_at_equal_tokens(rehearsed):
    """Each method has its curve; the scaffold is compared with one attempt and the majority that its tokens buy."""
    rows = rehearsed.table("scores/nano-scaffolds").rows()
    curve = [(row["sampling"], row["metric"]) for row in rows if row["slice"] == "budget"]
    assert curve == [
        ("single", "one@1"),
        ("single", "majority@2"),
        ("single", "majority@4"),
        ("deepseek-math", "one@1"),
    ]
    against = {row["baseline"].partition("@")[0] for row in rows if row["metric"] == "at equal tokens"}
    assert against == {"single: one", "single: majority"}


@pytest.mark.long
def test_rehearsed_benchmarks_are_measured(rehearsed):
    """A model that solves nothing has 0 points on every attempt, with an interval, and none is unscored."""
    for name, attempts in (("scores/imo-proofbench", 60), ("scores/imo-answerbench", 60)):
        rows = {r["metric"]: r for r in rehearsed.table(name).rows() if r["slice"] == "all"}
        assert (rows["avg@3"]["value"], rows["avg@3"]["n"], rows["avg@3"]["unscored"]) == (0, attempts, 0)
        assert rows["avg@3"]["high"] > 0


@pytest.mark.long
def test_rehearsed_corpora_are_decontaminated(rehearsed):
    """Problems that `decontaminate` kept are in no benchmark by the same method; the evidence table agrees."""
    found = rehearsed.table("overlaps/corpus").rows()
    benchmarks = ("problems/proofbench", "problems/answerbench", "problems/aime", "problems/usamo")
    assert [row for row in found if row["against"] in benchmarks and row["method"] == "exact"] == []


@pytest.mark.long
def test_rehearsed_trainings_left_what_a_training_leaves(rehearsed):
    """Every training has its steps, weights that are a model, and, if it was rewarded, its rollouts with every reward."""
    config = rehearsed.config
    trained = {n for recipe in SYSTEMS for n in config.recipes[recipe] if n.startswith(("sft/", "grpo/"))}
    assert len(trained) == 27
    for name in trained:
        assert_trained(rehearsed, name)


def assert_trained(project: Project, name: str) -> None:
    """Assert that a training has its steps and its weights, and as many rollouts as its entry says."""
    table = project.table(name)
    assert {"loss", "learning_rate"} <= {row["metric"] for row in table.rows()}, name
    assert (table.folder / "model.safetensors").exists() and (table.folder / "tokenizer.json").exists(), name
    if name.startswith("grpo/"):
        rollouts = pl.read_parquet(table.folder / "rollouts.parquet")
        entry = project.config.entries[name]
        rounds = -(-entry.steps // (entry.mini_batches * entry.iterations))
        assert rollouts.height == rounds * entry.mini_batches * entry.problems_per_step * entry.group_size, name
        assert rollouts["advantage"].is_finite().all(), name


@pytest.mark.long
def test_rehearsed_length_rewards_are_each_their_own(rehearsed):
    """The study's runs start from the same weights and problems; each has its own reward and correctness."""
    first = None
    for run, own in (
        ("reference", "length-reference"),
        ("group", "length-group"),
        ("lead", "length-lead"),
        ("kimi", "length-kimi"),
    ):
        rollouts = pl.read_parquet(rehearsed.table(f"grpo/gsm8k-{run}").folder / "rollouts.parquet")
        assert f"reward_{own}" in rollouts.columns
        first = first or rollouts["problem"].to_list()
        assert rollouts["problem"].to_list() == first


@pytest.mark.long
def test_rehearsed_pipeline_of_r1_has_its_stages(rehearsed):
    """Stage 3 trains the base model on stage 2's text, students on the same rows; preferences come with small talk."""
    config = rehearsed.config
    assert config.entries["sft/r1-sft"].examples == config.entries["sft/r1-qwen-32b"].examples == "examples/r1-800k"
    assert config.entries["grpo/r1"].model == "grpo/r1-rules"
    before, after = (
        pl.read_parquet(rehearsed.table(f"grpo/{n}").folder / "rollouts.parquet") for n in ("r1-rules", "r1")
    )
    assert "reward_r1-harmless" not in before.columns and before["grade"].null_count() == 0
    assert after["reward_r1-harmless"].null_count() == 0
    talk = after.filter(pl.col("grade").is_null())
    assert 0 < talk.height < after.height
    assert talk["reward_r1-helpful"].null_count() == talk["reward_think-format"].null_count() == 0


@pytest.mark.long
def test_rehearsed_students_learn_every_kept_row(rehearsed):
    """The students are trained on the kept rows of both tables, each row once."""
    rows = [row for row in rehearsed.table("examples/r1-800k").rows() if row["dropped"] is None]
    sources = [rehearsed.table(name).rows() for name in ("examples/r1-reasoning", "examples/r1-other")]
    kept = [[row for row in source if row["dropped"] is None] for source in sources]
    assert len(rows) == sum(map(len, kept)) and all(kept)


@pytest.mark.long
def test_rehearsed_rewards_vary_in_every_training(rehearsed):
    """The rewards of each training differ within some group, and no reward is the same for all rollouts."""
    trained = assert_rewards_vary(rehearsed, rehearsed.first)
    assert len(trained) > 40
    values: dict[str, set] = {}
    for name in trained:
        rollouts = pl.read_parquet(rehearsed.table(name).folder / "rollouts.parquet")
        for reward in (column for column in rollouts.columns if column == "reward" or column.startswith("reward_")):
            values.setdefault(reward, set()).update(rollouts[reward].drop_nulls().unique())
    assert len(values) == 13 and [reward for reward, some in values.items() if len(some) < 2] == []


def assert_rewards_vary(project: Project, made: Iterable[str]) -> list[str]:
    """Assert this for each training by rewards, and return these trainings."""
    entries = project.config.entries
    trained = [
        name
        for name in made
        if name.startswith("selfplay/")
        or (name.startswith("grpo/") and entries[name].rewards)  # not by a teacher alone
    ]
    for name in trained:
        rows = pl.DataFrame(project.table(name).rows())
        if name.startswith("grpo/"):
            assert rows.filter(metric="frac_reward_zero_std")["value"].min() < 1, name
        else:
            assert rows.filter(metric="reward-std")["value"].max() > 0, name
    return trained


@pytest.mark.long
def test_rehearsed_proof_training_is_watched_and_goes_on_from_summaries(rehearsed):
    """The audit grader graded samples; reasoning-cache rollouts have several turns; a schedule may stop early."""
    watched = pl.read_parquet(rehearsed.table("grpo/qed-rl").folder / "rollouts.parquet")
    assert watched["audit"].drop_nulls().len() > 0
    cached = pl.read_parquet(rehearsed.table("grpo/qed-rc").folder / "rollouts.parquet")
    assert cached["turn"].n_unique() > 1
    assert max(row["step"] for row in rehearsed.table("sft/qed-cold").rows()) == 30


@pytest.mark.long
def test_rehearsed_rollouts_are_sampled_by_vllm_where_the_profile_says_so(rehearsed, tmp_path):
    """The same entry with vLLM during the training: its own rollouts, as many, and importance ratios near 1."""
    twin = copy_of(rehearsed, tmp_path / "twin")
    done = twin.job("grpo/gsm8k-group", "--engine", "vllm", PROOFMILL_FORCE="all")
    assert done.returncode == 0, done.stdout
    rows = twin.table("grpo/gsm8k-group").rows()
    ratios = [row["value"] for row in rows if row["metric"] == "sampling/importance_sampling_ratio/mean"]
    assert ratios and all(abs(ratio - 1) < 0.05 for ratio in ratios)
    before, after = (
        pl.read_parquet(p.table("grpo/gsm8k-group").folder / "rollouts.parquet") for p in (rehearsed, twin)
    )
    assert (
        before["problem"].to_list() == after["problem"].to_list()
        and before["text"].to_list() != after["text"].to_list()
    )


@pytest.mark.long
def test_variants_of_the_systems_are_rehearsed_too(rehearsed, inspect_python):
    """The other sizes and the ablations: one job for each artifact, rewards that vary; then none."""
    made = rehearsed.made(*VARIANTS, PROOFMILL_INSPECT_PYTHON=inspect_python)
    assert needed(rehearsed, VARIANTS) - needed(rehearsed, RECIPES) == set(made)
    assert len(assert_rewards_vary(rehearsed, made)) == 19
    assert rehearsed.made(*VARIANTS) == []
