"""The pipeline as users run it: the full recipe `nano` at small sizes, and the effect of edits, deletions and flags."""

import inspect
import os
import random
import re
import shutil
import sys
from pathlib import Path

import datasets
import polars as pl
import pytest
import yaml

from browsing import chromium, opened, page_of, pictured, read_from_disk, viewing
from own_parts import write_configuration, write_parts
from pages import PAGES, to_run
from project import CHAIN, ROOT, Project, copy_of
from proofmill.analysis import lineage
from proofmill.calls.records import frame
from proofmill.config.identity import prompts_of
from proofmill.schema import references
from proofmill.schema.columns import COLUMNS
from proofmill.schema.entries.response_entries import Examples
from proofmill.schema.kinds import KINDS
from proofmill.schema.names import kind_of
from reached import alone, reached

pytestmark = pytest.mark.pipeline

STAMP = {
    "kind", "name", "entry", "revision", "prompts", "declared", "fingerprint", "parents", "sources", "content",
    "commit", "versions", "seed", "counts", "seconds",
}  # fmt: skip
ASKED = {"labels", "schemes", "responses", "grades"}


@pytest.fixture(scope="module")
def nano(tmp_path_factory) -> Project:
    """Return the recipe `nano`, completely built under the rehearsal by processes without a network."""
    folder = tmp_path_factory.mktemp("nano")
    project = Project(folder / "project", overlay="workflow/rehearsal.yaml")
    project.first = project.made("nano", **alone(folder))
    project.reached = reached(folder)
    return project


def files(project: Project) -> dict[str, tuple[int, int]]:
    """Return every file of the results with inode and time: equal means that nothing was written."""
    found = ((path, path.stat()) for path in project.results.rglob("*") if path.is_file())
    return {str(path.relative_to(project.results)): (stat.st_ino, stat.st_mtime_ns) for path, stat in found}


def artifacts(project: Project) -> set[str]:
    """Return the artifacts of the recipe `nano`, and those of the model that its rehearsal starts from."""
    config = project.config
    return {
        name for target in config.recipes["nano"] for name in (target, *references.ancestors(config.entries, target))
    }


def journals(project: Project) -> dict[str, int]:
    """Count the outputs in every journal."""
    folders = (path.parent for path in (project.results / "calls").rglob("calls.jsonl"))
    return {str(folder): frame(folder).height for folder in folders}


# ------------------------------------------------------------------------------------------------------- the whole run


def test_nano_makes_every_table_of_its_recipe_once(nano):
    """A first run runs one job for each artifact of the recipe, and of the model that the rehearsal starts from."""
    assert sorted(artifacts(nano)) == sorted(nano.first)


def test_nano_reaches_nothing_beyond_this_machine(nano):
    """No process of the run, Snakemake among them, has looked up a name or opened a connection elsewhere."""
    assert nano.reached == []


def test_nano_tables_open_in_polars_and_datasets(nano, tmp_path):
    """Every table is Parquet like any other, with exactly the columns and types of its kind."""
    for name in artifacts(nano):
        table = nano.table(name)
        wanted = {column: dtype for column, (dtype, _) in COLUMNS[table.kind].items()}
        assert wanted == dict(pl.scan_parquet(table.path).collect_schema()), name
        loaded = datasets.load_dataset("parquet", data_files=str(table.path), split="train", cache_dir=tmp_path)
        assert (list(wanted), nano.frame(name).height) == (loaded.column_names, loaded.num_rows), name


def test_nano_stamps_say_where_every_table_comes_from(nano):
    """A stamp has its entry, the content of its parents, versions, counts and seconds, and of calls the tokens and cost."""
    for name, entry in nano.config.entries.items():
        if name in artifacts(nano):
            stamp = nano.table(name).stamp
            reads = references.reads(kind_of(name), entry, nano.config.entries.get)
            wanted = STAMP | ({"tokens", "cost"} if kind_of(name) in ASKED else set())
            assert wanted <= set(stamp), name
            assert {p: nano.table(p).content for p in reads} == stamp["parents"], name


def test_nano_counts_add_up_to_its_rows(nano):
    """Every row of a table of problems, calls, grades or examples is in exactly one count of its stamp."""
    for name in artifacts(nano):
        if kind_of(name) in ASKED | {"problems", "examples"}:
            assert nano.frame(name).height == sum(nano.table(name).stamp["counts"].values()), name


def test_nano_scores_every_model_on_the_benchmark(nano):
    """The last table has a score with its interval for each model and sampling setting, and the page shows them."""
    for name in ("scores/nano", "scores/nano-longer"):
        rows = nano.frame(name).filter(slice="all", metric="avg@2")
        entry = nano.config.entries[name]
        differences, scores = rows.filter(pl.col("p_value").is_not_null()), rows.filter(pl.col("p_value").is_null())
        assert entry.models == scores["model"].to_list()
        assert entry.compare == [list(pair) for pair in differences.select("model", "baseline").iter_rows()]
        assert scores.filter(~pl.col("value").is_between("low", "high")).is_empty()
        page = nano.table(name).page.read_text(encoding="utf-8")
        assert all(f"| {model} | {entry.problems[0]} |" in page for model in entry.models)


def test_nano_problems_are_disjoint(nano):
    """Train, dev and test share no statement, and a table says so."""
    shared = nano.frame("scores/disjoint")
    assert shared["value"].to_list() == [0.0] * 6


def test_nano_prints_few_lines_for_each_stage(nano):
    """All log lines and the last page of scores are short enough to read: 2.5 lines per stage.

    Notices of truncated or empty attempts do not count: a model of 60 steps has one for each of its scores.
    """
    logs = [(nano.results / f"{name}.log").read_text(encoding="utf-8") for name in artifacts(nano)]
    said = [line for log in logs for line in log.splitlines() if re.match(r"\d\d:\d\d:\d\d  ", line)]
    screen = nano.snakemake("nano", profile=()).stdout.splitlines()
    stages, lines = len(nano.first), [line for line in said + screen if not re.search(r"\d attempts \(", line)]
    assert stages < len(lines) < 2.5 * stages, "\n".join(lines)


def test_nano_leaves_nothing_unfinished(nano):
    """After a run there is no temporary file, checkpoint or lock."""
    left = [path for path in nano.results.rglob("*") if path.is_file() and path.name.startswith(".")]
    assert left + [path for path in (nano.results / "unfinished").rglob("*") if path.is_file()] == []


def test_second_run_does_nothing(nano):
    """Artifacts that are up to date are not rebuilt: no job is planned, none runs, no file is written."""
    before = files(nano)
    assert set() == nano.planned("nano")
    assert nano.made("nano") == []
    assert before == files(nano)


def test_list_is_a_table_of_contents(nano):
    """`--list` names every kind and every recipe."""
    done = nano.snakemake("--list")
    assert done.returncode == 0
    listed = {line.split()[0] for line in done.stdout.splitlines() if line.strip()}
    assert {*KINDS, *nano.config.recipes} <= listed


def test_numbers_of_nano_lead_to_forum_threads(nano):
    """Ten random rows of the scores lead back to the threads that their models were trained on, row by row."""
    rows = nano.table("scores/nano").rows()
    measured = [number for number, row in enumerate(rows) if row["model"]]
    for number in random.Random(0).sample(measured, 10):
        steps = lineage.trail("scores/nano", str(number), nano.results)
        passed = {step.artifact for step in steps}
        bench = rows[number]["problems"].partition("/")[2]
        assert {f"problems/{bench}", f"schemes/{bench}", "problems/threads", "labels/threads"} <= passed, number
        graded = next(step for step in steps if step.artifact.startswith("grades/"))
        models = {rows[number]["model"], rows[number]["baseline"]} - {None}  # a comparison rests on both
        assert any(f"/{model.replace('/', '-')}@" in graded.artifact for model in models), number
        assert graded.artifact.endswith(f"@{bench}@{rows[number]['sampling']}"), number
        threads = [step for step in steps if step.artifact == "problems/threads"]
        assert all(step.facts[-1].startswith("read from arithmetic-threads/") for step in threads)
        for step in steps:
            if step.row and kind_of(step.artifact) != "scores":
                key = KINDS[kind_of(step.artifact)].key
                assert nano.frame(step.artifact).filter(pl.col(key) == step.row).height == 1, step


@pytest.mark.browser
def test_viewer_shows_nano_from_its_graph_to_a_rollout(nano):
    """A real browser on the full run: all stages, a problem with two models, curves, a step of rollouts."""
    stages = len(artifacts(nano))
    problem = nano.table("problems/bench").rows("problem")[0]["problem"]
    with viewing(nano.folder, *nano.overlay) as address, chromium() as browser, page_of(browser) as page:
        page.goto(address)
        page.click("a[href='/recipe/nano'] >> nth=0")
        page.wait_for_url("**/recipe/nano")
        assert page.locator(".lanes a").count() == stages
        assert page.locator(".lanes a[class]").count() == 0  # a class names a state other than done
        graded = ["grades/sft-cold@bench@greedy", "grades/grpo-nano@bench@greedy"]
        shown = "&".join(f"show={name}" for name in graded)
        opened(page, address, f"/problem/problems/bench/{problem}?{shown}")
        assert page.locator(".column").count() == page.locator(".column article").count() == 2
        assert page.locator(".column article .chip").count() >= 2
        assert "$" not in page.locator(".statement").inner_text() and page.locator(".statement math").count()
        assert page.locator(".scheme tr").count() > 1
        pictured(page, "nano-problem")
        opened(page, address, "/table/grpo/nano")
        assert page.locator(".panel[data-metric] svg path").count() > 3
        page.click("#rolled")
        assert "Rollouts of step 4" in page.locator("h1").inner_text()
        page.click("text=step 3")
        page.wait_for_url("**step=3")
        assert page.locator("tbody a[data-row]").count() == 16
        page.click("tbody a[data-row] >> nth=0")
        assert page.locator(".proof").count() == 1 and page.locator(".verdict").count() == 1
        assert page.said == []


@pytest.mark.long
@pytest.mark.browser
def test_report_of_nano_opens_from_disk(nano, tmp_path):
    """One file without a network; its table of scores is plotted."""
    done = nano.run(sys.executable, "-m", "proofmill", "report", "nano", "--out", tmp_path / "nano.html", *nano.overlay)
    assert done.returncode == 0, done.stdout
    with chromium() as browser, page_of(browser, width=1100) as page:
        read_from_disk(page, tmp_path / "nano.html")
        table = page.locator("#scores ~ .written table").first
        assert "grpo/nano" in table.inner_text()
        pictured(page, "nano-report", clip=table.bounding_box())


@pytest.mark.sampled(0, "README", "running", "results", "inspecting")
@pytest.mark.parametrize("page", [page for page in PAGES if to_run(page)], ids=lambda page: page.stem)
def test_commands_of_the_pages_end_well(nano, tmp_path, page, request):
    """Every command in a page's blocks of shell does its work after a run of `nano`, but for those that pages.py names."""
    if any("--workflow-profile slurm" in command for command in to_run(page)):
        request.getfixturevalue("slurm")
    copy = copy_of(nano, tmp_path / "copy")
    settings = {**nano.settings(), "results": "results"}
    text = yaml.safe_dump(settings, sort_keys=False).replace(str(nano.folder), str(copy.folder))
    copy.config_file.write_text(text, encoding="utf-8")
    copy.results.rename(copy.folder / "results")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    for command in to_run(page):
        done = copy.run("bash", "-c", command, PATH=path)
        assert (done.returncode, "Traceback" in done.stdout) == (0, False), f"{command}\n{done.stdout}"


# ------------------------------------------------------------------------------------------------- what an edit plans


@pytest.mark.sampled(0, "threshold")
@pytest.mark.parametrize(
    ("old", "new", "edited"),
    [
        ("{not-near-duplicate: 0.9}", "{not-near-duplicate: 0.8}", ["problems/train"]),
        ("rewards: {grade: 1, format: 0.1}", "rewards: {grade: 1, format: 0.2}", ["grpo/nano", "grpo/student"]),
        (
            "examples/mixed: {mix: {examples/sampled: 0.75",
            "examples/mixed: {seed: 1, mix: {examples/sampled: 0.75",
            ["examples/mixed"],
        ),
        ("confidence: 0.95", "confidence: 0.9", ["scores/nano", "scores/nano-longer", "scores/nano-students"]),
    ],
    ids=["threshold", "reward", "seed", "confidence"],
)
def test_edited_entry_plans_itself_and_its_descendants(nano, old, new, edited):
    """An edit of one value reruns that artifact, those `like` it, and all that is made from them, and nothing else."""
    if "scores/nano" in edited:  # a default that is written out is no edit
        nano.edit("metrics: [avg-at-k", "confidence: 0.95\n    metrics: [avg-at-k")
        assert set() == nano.planned("nano")
    wanted = nano.with_descendants(*edited) & artifacts(nano)
    nano.edit(old, new)
    planned = nano.planned("nano")
    nano.edit(new, old)
    assert wanted == planned
    assert set() == nano.planned("nano")


@pytest.fixture
def source(tmp_path) -> str:
    """Return a copy of the code, so that a prompt can be edited; the value for PYTHONPATH."""
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    return str(tmp_path / "src")


def add_to_prompt(source: str, prompt: str, text: str) -> None:
    with open(f"{source}/proofmill/prompts/{prompt}.md", "a", encoding="utf-8") as file:
        file.write(text)


@pytest.mark.sampled(0, "grade-strict")
@pytest.mark.parametrize("prompt", ["grade-strict", "classify", "solve"])
def test_edited_prompt_plans_who_asks_it_and_their_descendants(nano, source, prompt):
    """An edit of a prompt reruns the artifacts that use it and everything downstream, and nothing else."""
    config = nano.config
    asking = {n for n in artifacts(nano) if prompt in prompts_of(config.entries[n], config.declared)}
    assert asking and not {"scores/disjoint", "problems/threads", "base/nano"} & asking
    wanted = nano.with_descendants(*asking) & artifacts(nano)
    assert set() == nano.planned("nano", PYTHONPATH=source)
    add_to_prompt(source, prompt, "\nTake your time.\n")
    assert wanted == nano.planned("nano", PYTHONPATH=source)


def test_edited_code_plans_nothing(nano, source):
    """Code does not affect a table's fingerprint."""
    for path in Path(source).rglob("*.py"):
        path.write_text(path.read_text(encoding="utf-8") + "\n# another line\n", encoding="utf-8")
    assert set() == nano.planned("nano", PYTHONPATH=source)


def test_raised_revision_plans_its_kind_and_their_descendants(nano, source):
    """A kind's `revision` says that the same entry now gives other rows."""
    path = Path(source) / Path(inspect.getfile(Examples)).relative_to(ROOT / "src")
    before, name, after = path.read_text(encoding="utf-8").partition("class Examples(Entry):")
    path.write_text(
        before + name + re.sub(r"(revision: ClassVar\[int\] =) \d+", r"\1 77", after, count=1), encoding="utf-8"
    )
    examples = [n for n in artifacts(nano) if kind_of(n) == "examples"]
    wanted = nano.with_descendants(*examples) & artifacts(nano)
    assert wanted == nano.planned("nano", PYTHONPATH=source)


# ------------------------------------------------------------------------------------------------ a user's own parts

OWN = {"problems/short", "grpo/mine", "grades/mine", "scores/overlap", "scores/mine"}


@pytest.fixture(scope="module")
def own(nano, tmp_path_factory) -> Project:
    """Run docs/plugins.md over the finished reduced `nano`: its file of parts, its recipe `mine`, built to the end."""
    project = copy_of(nano, tmp_path_factory.mktemp("own") / "project")
    write_parts(project.folder)
    mine = write_configuration(project.folder)
    project.overlay = (*project.overlay, mine.name)
    project.first = project.made("mine")
    return project


def test_recipe_with_own_parts_makes_its_tables_and_no_other(own):
    """Filter, reward, grader, metric and scaffold of a user's file are used; nothing of `nano` is rebuilt."""
    assert set(own.first) >= OWN and not set(own.first) & artifacts(own)
    short = own.frame("problems/short")
    lines = short["solution"].fill_null("").str.split("\n").list.len()
    assert short.filter(dropped="solution-lines")["evidence"].str.contains(r"^\d+ lines$").all()
    assert lines.filter(short["dropped"].is_null()).max() <= 8
    assert "rewards/brief/mean" in set(own.frame("grpo/mine")["metric"])
    assert set(own.frame("responses/mine")["steps"].list.len()) == {2}
    assert set(own.frame("grades/mine")["max_points"]) == {7}
    assert {"long-rate", "avg@1"} == set(own.frame("scores/overlap")["metric"])
    assert own.made("mine") == []


@pytest.mark.sampled(0, "reward", "comment")
@pytest.mark.parametrize(
    ("old", "new", "edited"),
    [
        ("splitlines())\n    return None if within", "splitlines()) + 1\n    return None if within", "problems/short"),
        ("min(1.0, tokens / rollout.tokens)", "min(2.0, tokens / rollout.tokens)", "grpo/mine"),
        ("7 * len(shared)", "6 * len(shared)", "grades/mine"),
        ("> 60)", "> 61)", "scores/overlap"),
        ("min(solved", "max(solved", "responses/mine"),
        ("def brief(rollout, tokens):", "# the shorter, the better\ndef brief(rollout, tokens):", None),
    ],
    ids=["filter", "reward", "grader", "metric", "scaffold", "comment"],
)
def test_edited_line_of_a_part_remakes_what_names_it(own, old, new, edited):
    """One edited line plans the entries that name its plugin and everything downstream; a comment plans nothing."""
    parts = own.folder / "my_parts.py"
    text = parts.read_text(encoding="utf-8")
    assert old in text
    wanted = own.with_descendants(edited) & set(own.config.recipes["mine"]) if edited else set()
    parts.write_text(text.replace(old, new), encoding="utf-8")
    planned = own.planned("mine")
    plan = own.run(sys.executable, "-m", "proofmill", "plan", "mine", "--verbose", *own.overlay).stdout
    parts.write_text(text, encoding="utf-8")
    assert wanted == planned
    assert plan.count("plugin `") == (1 if edited else 0)
    assert set() == own.planned("mine")


@pytest.mark.long
def test_error_of_a_part_is_shown_with_its_own_line(own):
    """The stage stops with the file, the line and its text; once the line is fixed, the table is as before."""
    parts, before = own.folder / "my_parts.py", own.table("grades/mine").content
    text = parts.read_text(encoding="utf-8")
    parts.write_text(text.replace("7 * len(shared)", "7 // 0 * len(shared)"), encoding="utf-8")
    done = own.snakemake("grades/mine")
    parts.write_text(text, encoding="utf-8")
    line = text[: text.index("7 * len(shared)")].count("\n") + 1
    assert done.returncode != 0
    assert re.search(
        rf"RecipeError: .*my_parts.py:{line}: `return .7 // 0 .*` in line_overlap raised Zero", done.stdout
    )
    assert "Traceback" not in done.stdout
    assert own.made("grades/mine") == ["grades/mine"]  # brought back, as it was
    assert before == own.table("grades/mine").content


# ------------------------------------------------------------------------------------- what an edit runs, on a small graph


@pytest.fixture
def copy(chain, tmp_path) -> Project:
    """Return a copy of the finished small project, to be changed."""
    return copy_of(chain, tmp_path / "copy")


def test_edited_threshold_runs_its_descendants_and_its_reversal_restores_them(copy):
    """An edit makes new tables; its reversal brings back the old rows, byte for byte, without a single new call."""
    target = "results/grades/cold.parquet"
    wanted = copy.with_descendants("problems/train") & {
        "grades/cold",
        *references.ancestors(copy.config.entries, "grades/cold"),
    }
    old = {name: copy.frame(name) for name in wanted}
    contents = {name: copy.table(name).content for name in wanted}
    untouched = {n: copy.table(n).path.stat().st_mtime_ns for n in set(copy.config.entries) - wanted}
    copy.edit("{statement-length: [10, 200]}", "{statement-length: [10, 60]}")
    assert wanted == set(copy.made(target))
    assert copy.frame("problems/train").filter(dropped="statement-length").height > 0
    assert not {n for n in wanted if copy.table(n).content == contents[n]}
    asked = journals(copy)
    copy.edit("{statement-length: [10, 60]}", "{statement-length: [10, 200]}")
    assert wanted == set(copy.made(target))
    assert asked == journals(copy)
    assert all(old[name].equals(copy.frame(name)) for name in wanted)
    assert contents == {name: copy.table(name).content for name in wanted}
    assert untouched == {n: copy.table(n).path.stat().st_mtime_ns for n in untouched}


@pytest.mark.long
def test_edited_prompt_asks_its_rows_and_its_reversal_asks_none(copy, source):
    """A new prompt is asked for every row; the old one again for none."""
    target, name = "results/schemes/train.parquet", "schemes/train"
    old, asked = copy.table(name).path.read_bytes(), copy.journal(name)
    add_to_prompt(source, "scheme", "\nTake your time.\n")
    assert [name] == copy.made(target, PYTHONPATH=source)
    assert 2 * len(asked) == len(copy.journal(name)) == len(set(copy.journal(name)))
    assert [name] == copy.made(target)
    assert 2 * len(asked) == len(copy.journal(name))
    assert old == copy.table(name).path.read_bytes()


def test_deleted_middle_table_comes_back_without_calls(copy):
    """A removed table is restored without calls; everything downstream stays as it was."""
    contents = {name: copy.table(name).content for name in copy.config.entries}
    asked = journals(copy)
    copy.table("schemes/train").path.unlink()
    assert copy.planned("results/grades/cold.parquet") == set()
    assert copy.made("chain") == ["schemes/train"]
    assert contents == {name: copy.table(name).content for name in copy.config.entries}
    assert asked == journals(copy)


@pytest.mark.long
def test_forced_table_is_made_again_and_not_brought_back(copy):
    """`--forcerun` computes an artifact, by its name too; a deleted table is restored from the archive."""
    name = "examples/cold"
    rows = copy.frame(name)
    copy.table(name).path.unlink()
    assert f"{name}  restored" in copy.snakemake(name).stdout
    for target in (name, f"results/{name}.parquet"):
        done = copy.snakemake(name, "--forcerun", target)
        assert f"{name}  restored" not in done.stdout
        assert f"{name}  {rows.height} kept" in done.stdout or "took" in done.stdout
    assert rows.equals(copy.frame(name))


def test_dry_run_of_everything_changes_nothing(copy):
    """`-n` plans and does nothing, also with `--forceall`."""
    before = files(copy)
    assert set(copy.config.entries) == copy.planned("chain", "--forceall")
    assert before == files(copy)


@pytest.mark.long
def test_until_stops_at_the_kind_it_names(tmp_path):
    """`--until labels` makes the labels and what they need, and nothing after them."""
    project = Project(tmp_path / "project", CHAIN)
    assert {"problems/threads", "labels/threads"} == set(project.made("chain", "--until", "labels"))
    assert {"problems", "labels"} == {path.parent.name for path in project.results.glob("*/*.parquet")}


@pytest.mark.long
def test_single_kinds_without_snakemake_make_the_same_tables(copy):
    """`python -m proofmill.<kind> <name>` makes what Snakemake makes; the kinds that are killed in test_kill.py do too."""
    names = ["problems/threads", "problems/train", "schemes/train", "base/tiny", "examples/cold", "scores/cold"]
    contents = {name: copy.table(name).content for name in names}
    for name in names:
        copy.forget(name)
    for name in names:
        done = copy.job(name)
        assert done.returncode == 0, done.stdout
    assert contents == {name: copy.table(name).content for name in names}
