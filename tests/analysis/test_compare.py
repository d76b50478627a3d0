"""`proofmill compare`: logs of several programs, with the digits of `scores`; matching, faults, the page."""

import json
import shutil
import tracemalloc
from pathlib import Path

import pytest

from dirty import dirty_records
from eval_logs import sample, write_json
from mill import ROOT, Mill
from proofmill import __main__
from proofmill.analysis import differences
from proofmill.analysis.compare import compare
from proofmill.analysis.compare_text import LONGEST, lines
from proofmill.metrics.page import format_p
from proofmill.schema.errors import SettingError, TableError
from proofmill.sources.logs.reading import read_log

LOGS = ROOT / "tests/fixtures/program_logs"  # written by the programs; write_logs.py has the commands
METRICS = ["avg-at-k", "truncation-rate", "minimum-detectable-effect"]
NUMBERS = ("value", "low", "high", "n", "n_problems", "unscored")
INSPECT = [LOGS / f"inspect-{model}.eval" for model in ("large", "small")]


def write_rows(path: Path, rows) -> Path:
    """Write a JSONL file."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def scored(path: Path, scores, **fields) -> Path:
    """Write a table with one attempt at each problem."""
    return write_rows(path, [{"problem": f"p{n}", "score": score, **fields} for n, score in enumerate(scores)])


def pair(*paths, **options) -> dict:
    (only,) = compare(paths, **options)["pairs"]
    return only


# -------------------------------------------------------------------------------------------------- digits of `scores`


@pytest.fixture
def score_by_recipe(tmp_path):
    """Return a function that builds the `scores` of two logs by a recipe, each in a results folder; it returns the tables."""

    def build(sources: dict) -> list:
        tables = []
        for name, problems in sources.items():
            entries = {
                "problems/x": problems,
                "responses/x": {"problems": "problems/x", "model": "given"},
                "grades/x": {"responses": "responses/x", "grader": "human"},
                "scores/x": {"grades": ["grades/x"], "metrics": METRICS, "max-unscored": 1},
            }
            tables.append(Mill(tmp_path / name, **entries).make(*entries))
        return tables

    return build


def check_digits(tables, result) -> None:
    """Check that `compare` has the numbers of the two tables, and those that `diff` prints for their grades."""
    for log, table in zip(result["logs"], tables, strict=True):
        rows = {row["metric"].partition("@")[0]: row for row in table.rows() if row["slice"] == "all"}
        assert {name: log[name] for name in NUMBERS} == {name: rows["avg"][name] for name in NUMBERS}
        assert log["truncated"] in (rows["truncation-rate"]["value"], None)
        assert log["minimum_detectable_effect"] == rows["minimum-detectable-effect"]["value"]
    (numbers,) = result["pairs"]
    *_, said = differences.lines(differences.compare(tables[1], tables[0]))
    printed = (
        f"{numbers['value']:+.3f} [{numbers['low']:+.3f}, {numbers['high']:+.3f}] on {numbers['n_problems']} problems"
    )
    assert f"{printed}, {format_p(numbers)}" in said


def test_logs_of_inspect_have_the_digits_of_scores(score_by_recipe):
    """Scores, truncation and the difference are those of the recipe; so are those of its tables of grades and scores."""
    tables = score_by_recipe({path.stem: {"source": "inspect-logs", "path": str(path)} for path in INSPECT})
    result = compare(INSPECT)
    check_digits(tables, result)
    assert result["logs"][1]["truncated"] > 0
    for kind in ("grades", "scores"):
        own = compare([table.other(f"{kind}/x").path for table in tables])
        check_digits(tables, own)
        assert {**own["pairs"][0], "statements_compared": 30} == result["pairs"][0]
        assert own["logs"][0]["program"] == "proofmill" and own["logs"][0]["metric"] == "grade"


def test_logs_of_lm_eval_have_the_digits_of_scores(score_by_recipe):
    """The rows of one filter, read as graded proofs out of 7 points, score and differ as `compare` says."""
    columns = {"problem_id": "doc_id", "problem": "doc.question", "proof": "target", "points": "exact_match"}
    shared = {"source": "graded-proofs", "columns": columns, "where": {"filter": ["strict-match"]}}
    paths = [next((LOGS / f"lm-eval-{model}").glob("samples*")) for model in ("large", "small")]
    tables = score_by_recipe({path.stem: {**shared, "path": str(path)} for path in paths})
    check_digits(tables, compare(paths, ["exact_match,strict-match"], max_points=7))


def test_programs_agree_on_one_run():
    """The scripted models answered inspect_ai and verifiers alike, and refused calls are unscored in both logs."""
    of_inspect, of_verifiers = compare(INSPECT), compare([LOGS / "verifiers-large", LOGS / "verifiers-small"])
    for one, other in zip(of_inspect["logs"], of_verifiers["logs"], strict=True):
        assert [one[name] for name in (*NUMBERS, "truncated")] == [other[name] for name in (*NUMBERS, "truncated")]
    same = ("value", "low", "high", "p_value", "detectable", "better", "worse", "equal")
    assert [of_inspect["pairs"][0][name] for name in same] == [of_verifiers["pairs"][0][name] for name in same]


# ------------------------------------------------------------------------------------------------------------- formats

ROLLOUT = {
    "responses_create_params": {"input": [{"role": "user", "content": "What is 1 + 1?"}], "max_output_tokens": 64},
    "response": {"model": "m", "status": "completed", "output": [{"type": "message", "content": [{"type": "output_text"}]}]},
    "reward": 1.0, "library_reward": 0.0, "_ng_task_index": 0, "_ng_rollout_index": 0, "agent_ref": {"name": "simple"},
}  # fmt: skip
CUT = {**ROLLOUT["response"], "status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
WITHHELD = {**CUT, "incomplete_details": {"reason": "content_filter"}}


def read_rows(path: Path, metric: str) -> list[tuple]:
    """Return what a log says of each attempt."""
    log = read_log(path)
    return [
        (row["problem"], row["attempt"], row["grade"], row["reason"], row["stop_reason"]) for row in log.score(metric)
    ]


@pytest.mark.parametrize(
    ("name", "program", "metrics", "settings"),
    [
        ("inspect-small.eval", "inspect_ai", ["match"], {"task": "sums", "max-tokens": 32, "temperature": 0.7}),
        ("lm-eval-small", "lm-eval", ["exact_match,strict-match", "exact_match,last-number"], {"task": "sums", "model": "small", "max-tokens": 64, "temperature": 0.0, "few-shot": 0}),
        ("lighteval-small", "lighteval", ["em", "extractive_match"], {"task": "sums|0", "model": "openai/small", "max-tokens": 64, "temperature": 0}),
        ("verifiers-small", "verifiers", ["is_correct", "length", "num_turns", "reward"], {"task": "sums_environment", "model": "small", "max-tokens": 64, "temperature": 0.7}),
        ("traces-small", "verifiers", ["length", "reward.is_correct", "reward"], {"task": "sums_taskset", "model": "small", "max-tokens": 64, "temperature": 0.7}),
    ],
)  # fmt: skip
def test_log_is_recognized_by_its_content(tmp_path, name, program, metrics, settings):
    """A copy under another name and ending has the program, the metrics and the settings, except those of other files."""
    log = read_log(LOGS / name)
    assert (log.program, log.metrics, {key: log.settings[key] for key in settings}) == (program, metrics, settings)
    copy = Path(shutil.copy(log.path, tmp_path / "log.dat"))
    assert (read_log(copy).program, read_log(copy).metrics) == (program, metrics)
    assert [dict(row) for row in read_log(copy).attempts] == [dict(row) for row in log.attempts]


def test_failed_calls_of_verifiers_have_no_reward():
    """verifiers logs reward 0 for a call that failed; it is unscored here, in both formats, with a notice."""
    for name, failed in (("verifiers-small", 9), ("traces-small", 2)):
        log, _ = compare([LOGS / name, LOGS / name.replace("small", "large")], ["reward"])["logs"]
        assert log["unscored_reasons"] == {"error": failed}, name
    records = [json.loads(line) for line in (LOGS / "verifiers-small/results.jsonl").read_text().splitlines()]
    assert {record["reward"] for record in records if record["error"]} == {0.0}


def test_rollouts_of_nemo_gym_are_read_with_their_failures(tmp_path):
    """Truncation, refusals and attempts of the failure file are distinguished; a failure that was retried counts once."""
    rows = [ROLLOUT, {**ROLLOUT, "_ng_rollout_index": 1, "reward": 0, "response": CUT}]
    rows += [{**ROLLOUT, "_ng_task_index": 7, "response": WITHHELD}]
    path = write_rows(tmp_path / "rollouts.jsonl", rows)
    failure = {**ROLLOUT, "_ng_failure_class": "timeout", "reward": 0.0}
    write_rows(tmp_path / "rollouts_failures.jsonl", [failure, *[{**failure, "_ng_task_index": 8}] * 2])
    assert read_rows(tmp_path, "reward") == [
        ("0", 0, 1, "ok", "end"), ("0", 1, 0, "ok", "length"), ("7", 0, None, "refused", "end"), ("8", 0, None, "error", "end"),
    ]  # fmt: skip
    log = read_log(path)
    assert log.metrics == ["reward", "library_reward"]
    assert log.settings == {"model": "m", "task": "simple", "max-tokens": 64}


def test_scores_of_inspect_may_be_letters_booleans_objects_or_missing(tmp_path):
    """Each key of an object is a metric; NaN, invalidated and failed samples are unscored, with their reasons."""
    values = ["C", "P", True, {"rigour": 0.5, "style": "I"}, float("nan"), 0.25]
    samples = [sample(n, scores={"judge": {"value": value}}) for n, value in enumerate(values)]
    samples += [
        sample(9, invalidation={"reason": "leak"}, scores={"judge": {"value": "C"}}),
        sample(10, scores=None, error={"message": "boom"}),
    ]
    path = write_json(tmp_path / "log.json", *samples)
    assert [row[2:4] for row in read_rows(path, "judge")] == [
        (1, "ok"), (0.5, "ok"), (1, "ok"), (None, "no-grade"), (None, "no-grade"), (0.25, "ok"), (None, "invalidated"),
        (None, "error"),
    ]  # fmt: skip
    assert read_log(path).metrics == ["judge", "judge.rigour", "judge.style"]
    assert [row[2] for row in read_rows(path, "judge.style")][3] == 0


def test_epochs_are_attempts_and_another_reducer_is_reported(tmp_path):
    """A log that inspect_ai reduced by the best epoch is averaged here, and the page says so; so it does of a stopped run."""
    samples = [sample(1, epoch, scores={"m": {"value": value}}) for epoch, value in ((1, "C"), (2, "I"))]
    task = {"task": "t", "model": "a", "config": {"epochs_reducer": ["max"]}}
    log = write_json(tmp_path / "a.json", *samples, eval=task, status="cancelled")
    one, _ = compare([log, log])["logs"]
    assert (one["value"], one["attempts_per_problem"]) == (0.5, [2, 2])
    assert one["notices"] == [
        "the run ended with the status `cancelled`", "attempts are averaged; the run reduced them by max",
    ]  # fmt: skip


def test_tables_of_any_sort_are_read(tmp_path):
    """CSV, TSV and JSONL with problem, attempt and score are alike; a reason and a stop reason may be there."""
    rows = [("p", 0, 1, "ok", "end"), ("p", 1, 0, "ok", "length"), ("q", 0, "", "provider", "")]
    header = ("problem", "attempt", "score", "reason", "stop_reason")
    for suffix, mark in ((".csv", ","), (".tsv", "\t")):
        (tmp_path / f"t{suffix}").write_text("\n".join(mark.join(map(str, row)) for row in (header, *rows)))
    values = [{k: None if v == "" else v for k, v in zip(header, row, strict=True)} for row in rows]
    write_rows(tmp_path / "t.jsonl", values)
    read = [[row[2:] for row in read_rows(path, "score")] for path in sorted(tmp_path.iterdir())]
    assert read == [[(1, "ok", "end"), (0, "ok", "length"), (None, "provider", None)]] * 3


# ------------------------------------------------------------------------------------------------------------ matching


def test_statements_under_one_id_must_be_equal(tmp_path):
    """Ids that are positions do not match two selections of problems; a wording that differs may be ignored."""
    rows = [{"problem": str(n), "statement": f"What is {n}?", "score": n % 2} for n in range(8)]
    one = write_rows(tmp_path / "one.jsonl", rows)
    moved = [{**row, "problem": str((n + 3) % 8)} for n, row in enumerate(rows)]
    other = write_rows(tmp_path / "other.jsonl", moved)
    with pytest.raises(
        TableError, match=r"8 of 8 shared ids have other statements \(0, 1, 2, 3, 4\); expected the same"
    ):
        compare([one, other])
    assert pair(one, one)["statements_compared"] == 8
    assert pair(one, other, ignore_statements=True)["statements_compared"] == 0
    said = lines(compare([one, one]))
    assert "Problems are matched by id; their statements are equal." in said


def test_problems_of_one_log_alone_are_named(tmp_path):
    """Problems that are missing, or unscored, on one side are counted, and are not compared."""
    one = scored(tmp_path / "one.jsonl", [1, 1, 0, 1, None, 0, 1, 1])
    other = scored(tmp_path / "other.jsonl", [0, 1, 0, None, 1, 0])
    numbers = pair(one, other)
    assert (numbers["only_in_log"], numbers["only_in_baseline"]) == (["p6", "p7"], [])
    assert (numbers["n_problems"], numbers["unscored_in_one"], numbers["better"], numbers["equal"]) == (4, 2, 1, 3)
    said = "\n".join(lines(compare([one, other])))
    assert (
        "only in A, not compared: 2 problems (p6, p7)" in said
        and "unscored in A or B, not compared: 2 problems" in said
    )
    elsewhere = write_rows(tmp_path / "elsewhere.jsonl", [{"problem": "x", "score": 1}])
    with pytest.raises(TableError, match=r"no id is in both \(p0, p1, p2; x\)"):
        compare([one, elsewhere])


def test_one_log_given_twice_is_reported(tmp_path):
    """Equal logs differ by 0 in all problems; nothing is known of what the run could detect."""
    numbers = pair(*[INSPECT[0]] * 2)
    assert (numbers["value"], numbers["p_value"], numbers["equal"], numbers["detectable"]) == (0, 1, 30, None)
    said = list(lines(compare([INSPECT[0]] * 2)))
    assert "- A and B have the same scores for all attempts: they may be one run" in said


def test_few_problems_show_nothing(tmp_path):
    """One problem has the whole range as its interval, and the page says why."""
    one, other = (scored(tmp_path / f"{score}.jsonl", [score]) for score in (1, 0))
    numbers = pair(one, other)
    assert (numbers["value"], numbers["low"], numbers["high"], numbers["p_value"]) == (1, -1, 1, 1)
    assert "- A - B: fewer than 6 problems cannot show a difference at 95 %" in lines(compare([one, other]))


def test_several_logs_have_groups_of_those_not_shown_to_differ(tmp_path):
    """With p adjusted for all pairs, logs that are alike share a group, and one may be in two groups."""
    shares = {"best": 36, "middle": 28, "worst": 18}
    paths = [scored(tmp_path / f"{name}.jsonl", [int(n < share) for n in range(40)]) for name, share in shares.items()]
    result = compare(paths)
    raw, adjusted = ([numbers[name] for numbers in result["pairs"]] for name in ("p_value", "p_adjusted"))
    assert adjusted == [raw[0], 3 * raw[1], 2 * raw[2]] and result["groups"] == [["A"], ["B"], ["C"]]
    result = compare([*paths[:2], scored(tmp_path / "near.jsonl", [int(n < 32) for n in range(40)])])
    assert result["groups"] == [["A", "C"], ["B", "C"]]
    assert "Not shown to differ: A C | B C (p adjusted by Holm for 3 comparisons)" in lines(result)


def test_page_has_at_most_80_lines(tmp_path):
    """A dozen logs have 66 differences; the last line of the page counts what is left out."""
    paths = [scored(tmp_path / f"{n}.jsonl", [int(m * n % 7 < 3) for m in range(20 - n)]) for n in range(12)]
    page = list(lines(compare(paths)))
    assert len(page) == LONGEST and page[-1].startswith("... and ") and page[-1].endswith("more lines; --json has all")


# -------------------------------------------------------------------------------------------------- metrics and settings


def test_several_metrics_are_listed_and_one_is_chosen():
    """Without --metric the message has the names of each log; with it, also one for each log, the numbers are its own."""
    paths = [LOGS / "lm-eval-large", LOGS / "lm-eval-small"]
    with pytest.raises(
        SettingError, match=r"several metrics \(.*: exact_match,strict-match, exact_match,last-number; .*--metric"
    ):
        compare(paths)
    with pytest.raises(SettingError, match=r"no metric `acc`; expected one of exact_match,strict-match"):
        compare(paths, ["acc"])
    with pytest.raises(SettingError, match="no metric that all logs have"):
        compare([paths[0], INSPECT[0]])
    both = compare(
        [LOGS / "lighteval-small", *paths], ["em", "exact_match,strict-match", "exact_match,last-number"], "id"
    )
    assert [log["metric"] for log in both["logs"]] == ["em", "exact_match,strict-match", "exact_match,last-number"]


def test_metric_of_own_tables_is_their_grade(small):
    """Another one is refused, unless it is meant for the other logs."""
    path = small.table("grades/cold").path
    assert [log["metric"] for log in compare([path, path], ["grade"])["logs"]] == ["grade"] * 2
    for paths, metrics in (([path, path], ["reward"]), ([path, LOGS / "lighteval-small"], ["em", "em"])):
        with pytest.raises(SettingError, match=r"cold.parquet: no metric `.*`; expected one of grade"):
            compare(paths, metrics)


def test_metric_without_bounds_has_no_range(tmp_path):
    """Lengths are not between 0 and 1, so they have no bounds; --max-points states some, and refuses what exceeds them."""
    paths = [LOGS / "verifiers-large", LOGS / "verifiers-small"]
    result = compare(paths, ["length"])
    assert result["max_points"] is None and result["pairs"][0]["low"] < result["pairs"][0]["value"]
    assert compare(paths, ["length"], max_points=100)["max_points"] == 100
    with pytest.raises(TableError, match="a score of 14; expected 0 to 7"):
        compare(paths, ["length"], max_points=7)


def test_settings_that_differ_are_listed(tmp_path):
    """Token limits, tasks and requests that differ are named; equal ones are not."""
    result = compare(INSPECT)
    assert result["settings"] == {"max-tokens": {"A": 64, "B": 32}}
    briefed = sample(
        1, messages=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is 1 + 1?"}]
    )
    paths = [
        write_json(tmp_path / f"{n}.json", one, eval={"task": f"t{n}"}) for n, one in enumerate((sample(1), briefed))
    ]
    said = list(lines(compare(paths)))
    assert "- task: A t0, B t1" in said and "- requests: A and B differ at 1 problems" in said


# --------------------------------------------------------------------------------------------------------------- faults


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"log: no rows; expected at least one.*Logs that are read: inspect_ai"),
        ("some text\nand more\n", r"log: is no known log; it has some text. Expected one of inspect_ai .*lm-eval.*NeMo-Gym"),
        ('{"results": {"sums": {}}, "configs": {}}', r"is no known log; it has results, configs"),
        ('{"problem": "a", "score": 1}\n{"problem": "b", "score": ', r"log:2: not JSON"),
        ('{"problem": "a", "score": 1}\n{"problem": "b", "score": "high"}', r"log:2: `score` is 'high'; expected a number"),
        ('{"problem": "a", "score": 1}\n{"score": 1}', r"log:2: no `problem`; expected the id of a problem"),
        ('{"problem": "a", "attempt": 1, "score": 1}\n' * 2, r"log:2: attempt 1 at problem a occurs twice; expected each once"),
        ('{"problem": "a", "reason": "bored", "score": 1}', r"log:1: `reason` is 'bored'; expected one of ok, .*refused.*\. Fix the row\."),
        ('{"problem": "a", "stop_reason": "stop", "score": 1}', r"log:1: `stop_reason` is 'stop'; expected one of end, length"),
        ('{"problem": "a", "model": "m", "score": 1}\n{"problem": "a", "model": "n", "score": 0}', r"log:2: model 'n' at problem a after 'm'; expected one model. Write a file for each"),
        ('{"problem": "a", "task": "t", "score": 1}\n{"problem": "a", "task": "u", "score": 0}', r"log:2: task 'u' at problem a after 't'; expected one task"),
        ('{"doc_id": 1, "doc": {}, "metrics": 5}', r"log:1: is not a record of lm-eval \(TypeError"),
        ('{"task": {}, "traces": [{}, {}]}', r"log:1: traces of several agents; expected one trace"),
        ("PK\3\4 is not an archive", r"log: cannot be read as an archive"),
        ("PAR1 is not a table", r"log: cannot be read as Parquet"),
    ],
)  # fmt: skip
def test_faults_have_place_and_expectation(tmp_path, text, message):
    """A log that cannot be read is reported with its place, and an unknown one with all formats that are known."""
    path = tmp_path / "log"
    path.write_text(text)
    with pytest.raises(TableError, match=message):
        compare([path, scored(tmp_path / "fine.jsonl", [1, 0])])


def test_a_table_may_have_problems_of_several_tasks(tmp_path):
    """Tasks whose problems have different ids are read as one table."""
    rows = [{"problem": f"{task}{n}", "task": task, "score": n % 2} for task in "tu" for n in range(3)]
    assert len(read_log(write_rows(tmp_path / "both.jsonl", rows)).attempts) == 6


@pytest.mark.parametrize("name", ["lm-eval-small", "verifiers-small", "traces-small", "rollout"])
def test_dirty_records_give_attempts_or_one_message(tmp_path, name):
    """Any value in any place of a second record, or a missing one, gives an attempt or an error with its place."""
    good, path = ROLLOUT, tmp_path / "log.jsonl"
    if name != "rollout":
        good = json.loads(next((LOGS / name).glob("*.jsonl")).read_text().partition("\n")[0])
    for trace in good.get("traces", ()):
        for unread in ("task", "timing", "nodes", "verifiers"):
            del trace[unread]
    for dirty in dirty_records(good):
        write_rows(path, [good, dirty])
        try:
            log = read_log(path)
            assert all(log.score(metric) for metric in log.metrics if metric not in log.faults)
            assert len(log.attempts) == 2
        except TableError as error:
            assert str(error).startswith(f"{path}:2: ") and "; expected " in str(error), dirty


def test_folder_has_one_log(tmp_path):
    """A folder of several logs names them; so does a missing path."""
    for name in ("a", "b"):
        scored(tmp_path / f"{name}.jsonl", [1])
    with pytest.raises(TableError, match=r"2 logs \(a.jsonl, b.jsonl\); expected one"):
        read_log(tmp_path)
    with pytest.raises(TableError, match="no such file or folder; expected a log"):
        read_log(tmp_path / "c")


def test_other_tables_of_results_are_refused(mill):
    """Problems have no scores, and a table outside its results folder has lost its parents."""
    problems = mill({"problems/x": {"source": "arithmetic", "rows": 3}}).make("problems/x")
    with pytest.raises(TableError, match=r"is the table problems/x; expected grades/... or scores/..."):
        compare([problems.path] * 2)


def test_long_logs_are_streamed(tmp_path):
    """A log of 40 MB is read in a fraction of that memory."""
    text = "x" * 400_000
    path = write_rows(
        tmp_path / "long.jsonl",
        [{"problem": f"p{n}", "statement": f"{n}", "score": 1, "transcript": text} for n in range(100)],
    )
    tracemalloc.start()
    assert len(read_log(path).attempts) == 100
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert path.stat().st_size > 40_000_000 and peak < 8_000_000


# -------------------------------------------------------------------------------------------------------------- command


def run(monkeypatch, capsys, *arguments: str) -> str:
    monkeypatch.chdir(LOGS)
    monkeypatch.setattr("sys.argv", ["proofmill", "compare", *arguments])
    __main__.main()
    return capsys.readouterr().out


def test_command_prints_a_page_or_one_object(monkeypatch, capsys):
    """The page is that of docs/compare.md; --json has the keys that the same page lists."""
    page = (ROOT / "docs/compare.md").read_text(encoding="utf-8")
    said = run(monkeypatch, capsys, "inspect-large.eval", "inspect-small.eval")
    assert f"```\n$ proofmill compare inspect-large.eval inspect-small.eval\n{said}```" in page
    result = json.loads(run(monkeypatch, capsys, "inspect-large.eval", "inspect-small.eval", "--json"))
    for keys in (result, *result["logs"], *result["pairs"]):
        assert all(f"`{key}`" in page for key in keys), [key for key in keys if f"`{key}`" not in page]


@pytest.mark.parametrize(
    "arguments", [["inspect-large.eval"], ["a", "b"], ["sums.jsonl", "sums.jsonl", "--max-points", "0"]]
)
def test_command_fails_with_a_message(monkeypatch, capsys, arguments):
    """A fault ends the command with exit code 1 and one message."""
    with pytest.raises(SystemExit, match=r"(SettingError|TableError): .*expected|must be") as ended:
        run(monkeypatch, capsys, *arguments)
    assert isinstance(ended.value.code, str)  # Python prints it, and exits with 1


def test_command_takes_names_of_tables(monkeypatch, capsys, score_by_recipe):
    """`grades/x` is a table of the results folder, as in other commands."""
    (table,) = score_by_recipe({"own": {"source": "inspect-logs", "path": str(INSPECT[0])}})
    results = table.path.parents[1]
    said = run(monkeypatch, capsys, "--results", str(results), "grades/x", "scores/x")
    paths = [line.split("  ")[1] for line in said.splitlines()[:2]]
    assert paths == [f"{results}/grades/x.parquet", f"{results}/scores/x.parquet"]
