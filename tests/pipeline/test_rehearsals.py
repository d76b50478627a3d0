"""Every recipe but `nano` under the rehearsal: it runs to its end on two cores, and a second run does nothing."""

import runpy
import sys
from collections.abc import Iterable

import polars as pl
import pytest

from browsing import chromium, page_of, pictured, read_from_disk
from mill import ROOT
from project import Project, copy_of
from proofmill.recipes import yaml_files
from proofmill.recipes.book import expand
from proofmill.schema import references

pytestmark = pytest.mark.pipeline
# `nano` is rehearsed in test_pipeline.py; `nano-seeds` is nano again.
SYSTEMS = ("gsm8k-length", "r1-zero", "deepseek-r1", "qed-nano", "absolute-zero")
OTHERS = (
    *("real-corpus", "gold-answers", "grader-study", "imo-bench", "nano-claims", "nano-lag"),
    *("scaffolds-nano", "smol", "absolute-zero-nano"),
)
RECIPES = (*OTHERS, *SYSTEMS)
# The systems again, with other weights, tables or one part changed: `make test-all` rehearses them.
VARIANTS = (
    *("r1-zero-7b", "deepseek-r1-1.5b", "qed-nano-published"),
    *("absolute-zero-sizes", "absolute-zero-ablations"),
)


@pytest.fixture(scope="module")
def rehearsed(tmp_path_factory) -> Project:
    """The recipes made in one run, from nothing."""
    project = Project(tmp_path_factory.mktemp("rehearsed") / "project", overlay="workflow/rehearsal.yaml")
    project.first = project.made(*RECIPES)
    return project


def test_every_recipe_is_rehearsed():
    """A recipe added to config.yaml is rehearsed too."""
    known = set(expand(yaml_files.read("config.yaml")).recipes)
    assert known == {*RECIPES, *VARIANTS, "nano", "nano-seeds", "scaffolds-nano-seeds", "absolute-zero-nano-seeds"}


def test_rehearsal_makes_every_table_and_nothing_twice(rehearsed):
    """One job for each artifact; then none."""
    assert needed(rehearsed, RECIPES) == set(rehearsed.first)
    assert rehearsed.made(*RECIPES) == []


def needed(project: Project, recipes: Iterable[str]) -> set[str]:
    """The artifacts that recipes are made of."""
    book = project.book
    targets = [target for recipe in recipes for target in book.recipes[recipe]]
    return {name for target in targets for name in (target, *references.ancestors(book.entries, target))}


@pytest.mark.browser
def test_report_of_a_rehearsal_opens_from_disk(rehearsed, tmp_path):
    """`deepseek-r1`, with its trainings by rewards and its distilled student: one file, without a network."""
    file = tmp_path / "r1.html"
    done = rehearsed.run(sys.executable, "-m", "proofmill", "report", "deepseek-r1", "--out", file, *rehearsed.overlay)
    assert done.returncode == 0, done.stdout
    with chromium() as browser, page_of(browser) as page:
        read_from_disk(page, file)
        assert "is not made yet" not in page.inner_text("main") and "are not made yet" not in page.inner_text("main")
        pictured(page, "deepseek-r1-report")


def test_rehearsed_graders_agree_with_the_checker(rehearsed):
    """The referee marks as the checker does, alone, as a jury and in a cascade: each agreement is 1, and nothing is unscored."""
    rows = rehearsed.table("scores/grader-study").rows()
    agreed = [row for row in rows if row["measure"].startswith(("balanced", "cohen")) and row["split"] == "all"]
    assert len(agreed) == 14
    assert {(row["value"], row["unscored"]) for row in agreed} == {(1.0, 0.0)}
    for name in ("scores/gold-answers", "scores/gold-code"):
        assert {(row["value"], row["unscored"]) for row in rehearsed.table(name).rows()} == {(1.0, 0.0)}


def test_rehearsed_averages_stand_beside_published_ones(rehearsed):
    """Nine benchmarks, two averages and their mean; what others report is on the page and not in the table."""
    table = rehearsed.table("scores/absolute-zero")
    rows = [row for row in table.rows() if row["measure"] == "avg@1" and row["split"] == "all" and not row["against"]]
    own = [row["problems"] for row in rows if row["model"] == "selfplay/azr-7b"]
    assert own[-3:] == ["code", "mathematics", "total"] and len(own) == 12
    assert all(row["low"] <= row["value"] <= row["high"] for row in rows)
    assert "| AZR-Base-7B | 0.713 |" in table.page.read_text()


def test_rehearsed_claims_fill_their_page(rehearsed, tmp_path):
    """Every claim that is settled has its sentence on the page of claims, with its pictures; others stay as they are."""
    page, old = tmp_path / "claims.md", (ROOT / "docs/claims.md").read_text(encoding="utf-8")
    page.write_text(old, encoding="utf-8")
    script = runpy.run_path(str(ROOT / "docs/pictures/claims.py"))
    script["main"](rehearsed.table("scores/claims-ways").path.parents[1], page)
    text = page.read_text(encoding="utf-8")
    settled = rehearsed.table("scores/claims-rewards-seeds").stamp["claims"]
    settled |= rehearsed.table("scores/claims-ways-seeds").stamp["claims"]
    settled |= rehearsed.table("scores/claims-attempts-seeds").stamp["claims"]
    assert {name[0] for name in settled} == {"1", "3", "4", "5"}
    for name, claim in settled.items():
        assert "\n".join(script["item"](claim["sentence"])) in text and f"| {name} |" in text
    blocks, before = ({m[2]: m[0] for m in script["BLOCK"].finditer(each)} for each in (text, old))
    assert {name for name, block in blocks.items() if block == before[name]} == {"2", "6", "7"}
    assert "| grpo/judge-believes |" in text and "| grpo/dodge-drop |" in text
    assert all((tmp_path / "pictures" / name).exists() for name in ("claims.svg", "claims-attempts.svg"))


def test_rehearsed_scaffolds_are_compared_at_equal_tokens(rehearsed):
    """Each way has its curve; the scaffold stands against one attempt and the majority that its tokens buy."""
    rows = rehearsed.table("scores/scaffolds-nano").rows()
    curve = [(row["sampling"], row["measure"]) for row in rows if row["split"] == "budget"]
    assert curve == [
        ("single", "one@1"),
        ("single", "majority@2"),
        ("single", "majority@4"),
        ("deepseek-math", "one@1"),
    ]
    against = {row["against"].partition("@")[0] for row in rows if row["measure"] == "at equal tokens"}
    assert against == {"single: one", "single: majority"}


def test_rehearsed_benchmarks_are_measured(rehearsed):
    """A model that solves nothing has 0 marks on every attempt, each with its interval, and none is unscored."""
    for name, attempts in (("scores/imo-proofbench", 60), ("scores/imo-answerbench", 60)):
        rows = {r["measure"]: r for r in rehearsed.table(name).rows() if r["split"] == "all"}
        assert (rows["avg@3"]["value"], rows["avg@3"]["n"], rows["avg@3"]["unscored"]) == (0, attempts, 0)
        assert rows["avg@3"]["high"] > 0


def test_rehearsed_corpora_are_apart_from_the_benchmarks(rehearsed):
    """What `apart-from` left stands in no benchmark by the same method; the evidence table says so."""
    found = rehearsed.table("overlaps/corpus").rows()
    benchmarks = ("problems/proofbench", "problems/answerbench", "problems/aime", "problems/usamo")
    assert [row for row in found if row["against"] in benchmarks and row["method"] == "exact"] == []


def test_rehearsed_trainings_left_what_a_training_leaves(rehearsed):
    """Every training has its steps, weights that are a model, and, if it was rewarded, its rollouts with every reward."""
    book = rehearsed.book
    trained = {n for recipe in SYSTEMS for n in book.recipes[recipe] if n.startswith(("sft/", "grpo/"))}
    assert len(trained) == 25
    for name in trained:
        table = rehearsed.table(name)
        assert {"loss", "learning_rate"} <= {row["measure"] for row in table.rows()}, name
        assert (table.folder / "model.safetensors").exists() and (table.folder / "tokenizer.json").exists(), name
        if name.startswith("grpo/"):
            rollouts = pl.read_parquet(table.folder / "rollouts.parquet")
            entry = book.entries[name]
            rounds = -(-entry.steps // (entry.batches * entry.iterations))
            assert rollouts.height == rounds * entry.batches * entry.problems_per_step * entry.group, name
            assert rollouts["advantage"].is_finite().all(), name


def test_rehearsed_length_rewards_are_each_their_own(rehearsed):
    """The study's runs start from the same weights and see the same problems; each has its own reward beside correctness."""
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


def test_rehearsed_pipeline_of_r1_has_its_stages(rehearsed):
    """Stage 3 learns from the base model what stage 2 wrote; students learn the same rows; taste comes in with small talk."""
    book = rehearsed.book
    assert book.entries["sft/r1-sft"].examples == book.entries["sft/r1-qwen-32b"].examples == "examples/r1-800k"
    assert book.entries["grpo/r1"].model == "grpo/r1-rules"
    before, after = (
        pl.read_parquet(rehearsed.table(f"grpo/{n}").folder / "rollouts.parquet") for n in ("r1-rules", "r1")
    )
    assert "reward_r1-harmless" not in before.columns and before["grade"].null_count() == 0
    assert after["reward_r1-harmless"].null_count() == 0
    talk = after.filter(pl.col("grade").is_null())
    assert 0 < talk.height < after.height
    assert talk["reward_r1-helpful"].null_count() == talk["reward_think-format"].null_count() == 0


def test_rehearsed_students_learn_every_kept_row(rehearsed):
    """What the students learn is what was kept of both tables, each row once."""
    rows = [row for row in rehearsed.table("examples/r1-800k").rows() if row["dropped"] is None]
    sources = [rehearsed.table(name).rows() for name in ("examples/r1-reasoning", "examples/r1-other")]
    kept = [[row for row in source if row["dropped"] is None] for source in sources]
    assert len(rows) == sum(map(len, kept)) and all(kept)


def test_rehearsed_rewards_vary_in_every_training(rehearsed):
    """What each training is rewarded with differs within some group, and each reward is not the same for all rollouts."""
    trained = assert_rewards_vary(rehearsed, rehearsed.first)
    assert len(trained) == 25
    values: dict[str, set] = {}
    for name in trained:
        rollouts = pl.read_parquet(rehearsed.table(name).folder / "rollouts.parquet")
        for reward in (column for column in rollouts.columns if column.startswith("reward")):
            values.setdefault(reward, set()).update(rollouts[reward].drop_nulls().unique())
    assert len(values) == 13 and [reward for reward, some in values.items() if len(some) < 2] == []


def assert_rewards_vary(project: Project, made: Iterable[str]) -> list[str]:
    """Assert it of each training by rewards among what was made, and return these."""
    trained = [name for name in made if name.startswith(("grpo/", "selfplay/"))]
    for name in trained:
        rows = pl.DataFrame(project.table(name).rows())
        if name.startswith("grpo/"):
            assert rows.filter(measure="frac_reward_zero_std")["value"].min() < 1, name
        else:
            assert rows.filter(measure="reward-std")["value"].max() > 0, name
    return trained


def test_rehearsed_proof_training_is_watched_and_goes_on_from_summaries(rehearsed):
    """The second grader marked samples; reasoning-cache rollouts are of several turns; a schedule may be left early."""
    watched = pl.read_parquet(rehearsed.table("grpo/qed-rl").folder / "rollouts.parquet")
    assert watched["hold_out"].drop_nulls().len() > 0
    cached = pl.read_parquet(rehearsed.table("grpo/qed-rc").folder / "rollouts.parquet")
    assert cached["turn"].n_unique() > 1
    assert max(row["step"] for row in rehearsed.table("sft/qed-cold").rows()) == 30


def test_rehearsed_rollouts_are_sampled_by_vllm_where_the_profile_says_so(rehearsed, tmp_path):
    """The same entry with vLLM beside the training: its own rollouts, as many, and importance ratios near 1."""
    twin = copy_of(rehearsed, tmp_path / "twin")
    done = twin.job("grpo/gsm8k-group", "--engine", "vllm", PROOFMILL_FRESH="all")
    assert done.returncode == 0, done.stdout
    rows = twin.table("grpo/gsm8k-group").rows()
    ratios = [row["value"] for row in rows if row["measure"] == "sampling/importance_sampling_ratio/mean"]
    assert ratios and all(abs(ratio - 1) < 0.05 for ratio in ratios)
    before, after = (
        pl.read_parquet(p.table("grpo/gsm8k-group").folder / "rollouts.parquet") for p in (rehearsed, twin)
    )
    assert (
        before["problem"].to_list() == after["problem"].to_list()
        and before["text"].to_list() != after["text"].to_list()
    )


@pytest.mark.long
def test_variants_of_the_systems_are_rehearsed_too(rehearsed):
    """The other sizes and the ablations: one job for each artifact, rewards that vary; then none."""
    made = rehearsed.made(*VARIANTS)
    assert needed(rehearsed, VARIANTS) - needed(rehearsed, RECIPES) == set(made)
    assert len(assert_rewards_vary(rehearsed, made)) == 17
    assert rehearsed.made(*VARIANTS) == []
