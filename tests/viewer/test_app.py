"""The viewer's pages over a finished chain: access, content, and grades that people enter."""

import json
import re
import shutil
from pathlib import Path

import polars as pl
import pytest
import yaml
from starlette.testclient import TestClient

from mill import REFEREE, SMALL, Mill
from proofmill.artifacts.tables import Table
from proofmill.config.config import expand
from proofmill.runtime import append_log
from proofmill.schema.errors import RecipeError, TableError
from proofmill.schema.kinds import ROLLOUTS
from proofmill.viewer import human_grades
from proofmill.viewer.app import application

TOKEN = "a-token"
RECIPE = {
    **SMALL,
    "grades/round-2": {"responses": "responses/cold", "grader": "arithmetic"},
    "grades/right": {"responses": "responses/right", "grader": "arithmetic"},
    "responses/right": {"problems": "problems/bench", "model": "solutions"},
    "scores/cold": {"grades": ["grades/cold"], "metrics": ["avg-at-k"], "max-unscored": 1},
    "grpo/tiny": {
        "model": "sft/cold",
        "problems": "problems/train",
        "grader": "arithmetic",
        "rewards": {"grade": 1, "format": 0.5},
        "unscored": "drop",
        "audit": "final-answer",
        "audit-every": 1,
        "problems-per-step": 2,
        "group-size": 4,
        "steps": 3,
        "max-tokens": 24,
    },
    "grades/later": {"responses": "responses/cold", "grader": "final-answer"},
}


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Mill:
    """Run the small chain with two graders of the same attempts, official proofs and a score; one entry is not built."""
    mill = Mill(tmp_path_factory.mktemp("viewed") / "results", **RECIPE)
    mill.make(*SMALL, "responses/right", "grades/round-2", "grades/right", "scores/cold", "grpo/tiny")
    return mill


@pytest.fixture
def client(made):
    """Return a client that has opened the address with the token."""
    client = browser(made)
    assert client.get(f"/?token={TOKEN}").status_code == 200
    return client


def browser(made, host="127.0.0.1:8000") -> TestClient:
    book = expand({"r": {"api/referee": REFEREE, **RECIPE}})
    return TestClient(application(lambda: book, made.results, TOKEN), base_url=f"http://{host}")


def page(client, address, status=200):
    """Return the text of a page, after a check of its status."""
    answer = client.get(address)
    assert answer.status_code == status, answer.text[:2000]
    return answer.text


# -------------------------------------------------------------------------------------------------------------- access


@pytest.mark.parametrize(
    "address", ["/", "/recipe/r", "/table/grades/cold", "/assets/style.css", "/curves.json?of=sft/cold"]
)
@pytest.mark.parametrize("token", [None, "", "another", TOKEN[:-1]])
def test_every_address_requires_the_token(made, address, token):
    """Pages, images and files respond 403 without the right token, and do not reveal their content."""
    client = browser(made)
    query = "" if token is None else f"{'&' if '?' in address else '?'}token={token}"
    answer = client.get(address + query, follow_redirects=False)
    assert answer.status_code == 403 and "needs the token" in answer.text
    assert client.post("/grade", data={"grade": "7"}).status_code == 403


def test_token_leaves_the_address_for_a_cookie(made):
    """The token is not in the browser's history; the rest of the address is."""
    answer = browser(made).get(f"/table/grades/cold?page=0&token={TOKEN}", follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, "/table/grades/cold?page=0")
    assert "HttpOnly" in answer.headers["set-cookie"] and "SameSite=strict" in answer.headers["set-cookie"]


def test_other_host_names_are_refused(made):
    """A request under another host name is refused, even with the token."""
    assert browser(made, "evil.example").get(f"/?token={TOKEN}").status_code == 400


def test_pages_may_run_only_the_script_of_the_viewer(client):
    """The policy forbids inline scripts and styles, images from elsewhere, and frames."""
    policy = client.get("/recipe/r").headers["content-security-policy"]
    assert "default-src 'none'" in policy and "script-src 'self'" in policy and "unsafe" not in policy


# --------------------------------------------------------------------------------------------------------------- pages


def test_table_is_filtered_sorted_and_paged(made, client):
    """The rows satisfy the condition, in the chosen order; the count is the number of all matching rows."""
    rows = [row for row in made.table("grades/cold").rows() if row["attempt"] == 1]
    html = page(client, "/table/grades/cold?where=attempt+%3D+1&sort=response&down=1&columns=response")
    assert f"1 to {len(rows)} of {len(rows)}" in html
    ids = sorted((row["response"] for row in rows), reverse=True)
    assert [html.index(f">{ident}\n") for ident in ids] == sorted(html.index(f">{ident}\n") for ident in ids)


def test_pages_of_a_table_are_counted(made, client):
    """A short table has one page, without a link to the next."""
    rows = made.table("sft/cold").rows()
    problems = made.table("problems/train").rows(kept=False)
    assert 'rel="next"' not in page(client, "/table/sft/cold?page=0") and len(rows) < 50
    html = page(client, "/table/problems/train")
    assert len(problems) == 48 and "1 to 48 of 48" in html


def test_histogram_counts_the_values_of_a_column(made, client):
    """Each bar links to its rows."""
    stops = [row["stop_reason"] for row in made.table("responses/cold").rows()]
    html = page(client, "/table/responses/cold?histogram=stop_reason")
    for stop in set(stops):
        bar = html.partition(f'where=stop_reason+%3D+%27{stop}%27&amp;histogram=stop_reason">{stop}</a>')[2]
        assert f'<td class="num">{stops.count(stop)}</td>' in bar.partition("</tr>")[0]


@pytest.mark.parametrize("where", ["grad < 3", "grade <", "attempt", "1; DROP TABLE x", "grade < (SELECT 1)"])
def test_invalid_condition_is_reported(client, where):
    """The rows are shown without the condition, below the error."""
    html = page(client, f"/table/grades/cold?where={where}")
    assert 'class="fault"' in html and "expected" in html and "1 to 24 of 24" in html


def test_problem_shows_attempts_with_their_verdicts(made, client):
    """The page has statement, reference, scheme items, and two tables with grades; reasoning is folded."""
    problem = made.table("problems/bench").rows()[3]
    html = page(client, f"/problem/problems/bench/{problem['problem']}?show=grades/cold&show=grades/right")
    assert "Problem 4 of 12" in html and "<math" in html
    assert "Grading scheme" in html and html.count('<tr><td class="num">') == 3
    assert html.count("<article") == 3  # two attempts of the model, and the official proof
    assert '<a class="chip solved"' in html and "<summary>Reasoning</summary>" in html
    grade = next(row for row in made.table("grades/cold").rows() if row["problem"] == problem["problem"])
    assert f'id="{grade["response"]}"' in html


def test_disagreements_of_two_graders_are_listed(made, client):
    """Two graders of the same attempts are compared, with links that show both verdicts."""
    html = page(client, "/disagreements")
    assert "grades/cold and grades/round-2" in html or "grades/round-2 and grades/cold" in html
    html = page(client, "/disagreements?one=grades/cold&other=grades/round-2")
    assert "They agree on every attempt" in html or "difference" in html


def test_row_has_its_lineage(made, client):
    """A row's page links to each step back to the source."""
    row = made.table("grades/cold").rows()[0]
    html = page(client, f"/row/grades/cold/{row['response']}")
    for step in ("responses/cold", "problems/bench", "sft/cold", "examples/cold", "problems/train", "base/tiny"):
        assert f">{step}</a>" in html, step


@pytest.mark.parametrize("id", ["HumanEval/0", "a//b/", "50%/x?y#z"])
def test_id_with_a_slash_has_its_pages(tmp_path, id):
    """Foreign ids are not changed: the links of a table lead to its rows and problems."""
    (tmp_path / "p.jsonl").write_text(json.dumps({"problem": id, "statement": "Prove that it is there."}))
    entries = {"problems/p": {"source": "table", "path": str(tmp_path / "p.jsonl")}}
    mill = Mill(tmp_path / "results", **entries)
    mill.make("problems/p")
    app = application(lambda: expand({"r": entries}), mill.results, TOKEN)
    client = TestClient(app, base_url="http://127.0.0.1:8000")
    links = re.findall(r'href="(/problem/[^"]+)"', page(client, f"/table/problems/p?token={TOKEN}"))
    assert len(links) == 1
    assert "Prove that it is there." in page(client, links[0])
    assert "Prove that it is there." in page(client, links[0].replace("/problem/", "/row/"))


@pytest.mark.parametrize(
    "address",
    [
        "/table/grades/none", "/table/nothing/x", "/recipe/none", "/row/grades/cold/none", "/problem/problems/bench/none",
        "/table/grades/..%2F..%2Fetc", "/problem/grades/cold/x", "/curves.json?of=grades/cold", "/row/sft/cold/99999",
    ],
)  # fmt: skip
def test_missing_pages_show_a_message(client, address):
    """The page has the message of the command line, never a traceback."""
    html = page(client, address, 404)
    assert "Traceback" not in html and "expected" in html


def test_damaged_table_is_reported(made, tmp_path):
    """A damaged file is a state of the recipe and a message on its page; everything else is shown."""
    for path in made.results.rglob("*.parquet"):
        if "archive" not in path.parts and "calls" not in path.parts:
            target = tmp_path / path.relative_to(made.results)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    (tmp_path / "grades/cold.parquet").write_bytes(b"PAR1 half of a table")
    client = browser(Mill(tmp_path, **RECIPE))
    client.get(f"/?token={TOKEN}")
    assert 'class="damaged"' in page(client, "/recipe/r") and "proofmill check grades/cold" in page(client, "/")
    assert "is damaged" in page(client, "/table/grades/cold", 404)
    problem = made.table("problems/bench").rows()[0]["problem"]
    assert "<article" in page(client, f"/problem/problems/bench/{problem}")


# -------------------------------------------------------------------------------------------------------- human grades


def stored_grades(made) -> list[dict]:
    """Read the grades that were entered for `responses/cold`."""
    path = made.results / "human/cold.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_grade_is_stored_shown_and_read_by_the_grader_human(made, client):
    """A grade with a comment is on the page, in a file, and in a table by `grader: human`; the last one counts."""
    row = made.table("grades/cold").rows()[2]
    back = f"/problem/problems/bench/{row['problem']}#{row['response']}"
    form = {"responses": "responses/cold", "response": row["response"], "max_points": "7", "back": back}
    for points, comment in (("2", "hasty"), ("5", "step 3 is <b>not</b> shown")):
        answer = client.post("/grade", data={**form, "grade": points, "comment": comment}, follow_redirects=False)
        assert (answer.status_code, answer.headers["location"]) == (303, back)
    assert [line["grade"] for line in stored_grades(made)] == [2, 5]
    html = page(client, back.partition("#")[0] + "?show=grades/cold")
    assert "human: 5 of 7" in html and "<b>not" not in html
    path = str(made.results / "human/cold.jsonl")
    human = Mill(
        made.results, **{**RECIPE, "grades/human": {"responses": "responses/cold", "grader": "human", "path": path}}
    )
    table = human.make("grades/human")
    (graded,) = [r for r in table.rows() if r["grade"] is not None]
    assert (graded["response"], graded["grade"], graded["max_points"], graded["verdict"]) == (
        row["response"], 5, 7, "step 3 is <b>not</b> shown",
    )  # fmt: skip
    assert {r["reason"] for r in table.rows()} == {"ok", "no-grade"}


def test_grade_after_an_incomplete_line_has_its_own_line(tmp_path):
    """The next grade is not appended to a line that a crash left incomplete; reading reports that line."""
    human_grades.add_grade(tmp_path, "responses/x", "a", "3", "7", "")
    path = human_grades.file_of(tmp_path, "responses/x")
    path.write_bytes(path.read_bytes() + b'{"response": "b", "ma')
    human_grades.add_grade(tmp_path, "responses/x", "c", "5", "7", "")
    assert [json.loads(line)["grade"] for line in path.read_text().splitlines()[::2]] == [3, 5]
    with pytest.raises(TableError, match=r"x\.jsonl:2: .* is not a grade"):
        human_grades.last_grades(tmp_path, "responses/x")


def test_grade_is_on_disk_before_the_page_says_so(tmp_path, monkeypatch):
    """The file is synced with the complete line in it."""
    synced = []
    path = human_grades.file_of(tmp_path, "responses/x")
    monkeypatch.setattr(append_log.os, "fsync", lambda number: synced.append(path.read_bytes()))
    human_grades.add_grade(tmp_path, "responses/x", "a", "3", "7", "")
    assert synced[0] == path.read_bytes() and synced[0].endswith(b"}\n")


def test_grades_of_other_attempts_are_refused(made, tmp_path):
    """A file of grades of other responses stops the stage."""
    path = tmp_path / "grades.jsonl"
    path.write_text('{"response": "of another table", "grade": 1, "max_points": 7}\n')
    entry = {"responses": "responses/cold", "grader": "human", "path": str(path)}
    with pytest.raises(TableError, match="none of its 1 grades is of an attempt in responses/cold"):
        Mill(made.results, **{**RECIPE, "grades/others": entry}).make("grades/others")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"grade": "8"}, "expected 0 to 7"),
        ({"grade": "-1"}, "expected 0 to 7"),
        ({"grade": "good"}, "expected numbers"),
        ({"responses": "../../etc/x"}, "no table of responses"),
        ({"responses": "responses/none"}, "no table of responses"),
    ],
)
def test_invalid_grade_is_not_stored(made, client, fields, message):
    """A grade off the scale, not a number, or of an unknown table is refused."""
    before = stored_grades(made)
    row = made.table("grades/cold").rows()[0]
    form = {
        "responses": "responses/cold",
        "response": row["response"],
        "grade": "3",
        "max_points": "7",
        "comment": "",
        "back": "/",
    }
    answer = client.post("/grade", data={**form, **fields}, follow_redirects=False)
    assert answer.status_code == 404 and message in answer.text
    assert stored_grades(made) == before


@pytest.mark.parametrize("back", ["http://evil.example/", "//evil.example/", "javascript:alert(1)", ""])
def test_grading_redirects_only_within_the_viewer(made, client, back):
    """After a grade, an address elsewhere is replaced by the first page."""
    row = made.table("grades/cold").rows()[0]
    form = {
        "responses": "responses/cold",
        "response": row["response"],
        "grade": "3",
        "max_points": "7",
        "comment": "",
        "back": back,
    }
    assert client.post("/grade", data=form, follow_redirects=False).headers["location"] == "/"


@pytest.mark.parametrize(
    "line",
    [
        "{",
        '{"response": "x"}',
        '{"response": "x", "grade": 9, "max_points": 7}',
        '{"response": 3, "grade": 1, "max_points": 7}',
    ],
)
def test_invalid_line_of_human_grades_is_reported(tmp_path, line):
    """The stage fails with the line's number; no grade is guessed."""
    path = tmp_path / "grades.jsonl"
    path.write_text('{"response": "a", "grade": 1, "max_points": 7}\n' + line + "\n")
    mill = Mill(
        tmp_path / "results",
        **{
            "problems/p": {"source": "arithmetic", "rows": 2},
            "responses/r": {"problems": "problems/p", "model": "solutions"},
            "grades/h": {"responses": "responses/r", "grader": "human", "path": str(path)},
        },
    )
    mill.make("problems/p", "responses/r")
    with pytest.raises(TableError, match=rf"{path}:2: .*expected"):
        mill.make("grades/h")


def test_path_requires_the_human_grader():
    """Only `grader: human` reads a file of grades."""
    config = {
        **{n: SMALL[n] for n in ("problems/bench",)},
        "responses/r": {"problems": "problems/bench", "model": "solutions"},
    }
    with pytest.raises(RecipeError, match="`path` is a file of human grades and `grader` is `arithmetic`"):
        expand({"r": {**config, "grades/g": {"responses": "responses/r", "grader": "arithmetic", "path": "x.jsonl"}}})


def test_new_grade_rebuilds_the_table(made, tmp_path):
    """The file is a source: its digest is in the fingerprint."""
    path = tmp_path / "grades.jsonl"
    path.write_text("")
    mill = Mill(
        made.results, **{**RECIPE, "grades/mine": {"responses": "responses/cold", "grader": "human", "path": str(path)}}
    )
    first = mill.make("grades/mine").stamp["fingerprint"]
    response = made.table("responses/cold").rows("response")[0]["response"]
    path.write_text(json.dumps({"response": response, "grade": 4, "max_points": 7}) + "\n")
    table = Table("grades/mine", mill.results)
    assert mill.make("grades/mine").stamp["fingerprint"] != first
    assert [row["grade"] for row in table.rows() if row["grade"] is not None] == [4]


def test_address_is_printed_once(made, tmp_path):
    """`proofmill view` prints the address with its token, serves it on the loopback, and ends when interrupted."""
    import signal
    import subprocess
    import sys

    import httpx

    (tmp_path / "config.yaml").write_text(yaml.safe_dump({"r": {"api/referee": REFEREE, **RECIPE}}))
    command = [sys.executable, "-m", "proofmill", "view", "--results", str(Path(made.results).resolve())]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        address = process.stdout.readline().strip()
        assert address.startswith("http://127.0.0.1:") and "?token=" in address
        with httpx.Client(follow_redirects=True, timeout=30) as client:  # it still imports its modules
            assert "14 of 15 done" in client.get(address).text
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(timeout=20)


# ------------------------------------------------------------------------------------------------------------ rollouts


@pytest.fixture(scope="module")
def graded_differently(made, tmp_path_factory) -> Mill:
    """Return the same results, with a training in which the audit grader gave one rollout another grade."""
    folder = tmp_path_factory.mktemp("apart")
    mill = Mill(folder / "results", **RECIPE)
    shutil.copytree(made.results / "grpo/tiny", folder / "weights")
    rows = pl.read_parquet(folder / "weights" / ROLLOUTS).with_row_index("at")
    picked = pl.col("at") == 5
    rows = rows.with_columns(
        pl.when(picked).then(7.0).otherwise("grade").alias("grade"),
        pl.when(picked).then(0.25).otherwise("audit").alias("audit"),
    )
    rows.drop("at").write_parquet(folder / "weights" / ROLLOUTS)
    trained = made.table("grpo/tiny")
    Table("grpo/tiny", mill.results).write(list(trained.rows()), trained.stamp, folder / "weights")
    return mill


def test_rollouts_of_a_step_have_rewards_and_advantages(made, client):
    """Each rollout of the step is listed with its rewards; the last step is shown first, with links to the others."""
    rows = pl.read_parquet(made.results / "grpo/tiny" / ROLLOUTS)
    assert "/rollouts/grpo/tiny" in page(client, "/table/grpo/tiny")
    last = page(client, "/rollouts/grpo/tiny")
    assert "step 3 of 3" in last and "?step=2" in last
    second = page(client, "/rollouts/grpo/tiny?step=2")
    for row in rows.iter_rows(named=True):
        assert (row["rollout"] in second) == (row["step"] == 2)
    assert all(f"{row['advantage']:+.2f}" in second for row in rows.filter(step=2).iter_rows(named=True))


def test_rollout_is_shown_with_its_verdict(made, client):
    """A rollout's page has its text, verdict, grades, and a link to the problem."""
    row = pl.read_parquet(made.results / "grpo/tiny" / ROLLOUTS).row(0, named=True)
    shown = page(client, f"/rollout/grpo/tiny/{row['rollout']}")
    assert f"/problem/problems/train/{row['problem']}" in shown and "Verdict" in shown
    assert f"{row['grade']:g} of 7" in shown


def test_page_of_disagreements_links_to_the_audit_grader(graded_differently):
    """It links to trainings with an audit grader, and those to the rollouts whose grades differ most."""
    client = browser(graded_differently)
    client.get(f"/?token={TOKEN}")
    assert "/rollouts/grpo/tiny?apart=1" in page(client, "/disagreements")
    shown = page(client, "/rollouts/grpo/tiny?apart=1")
    row = pl.read_parquet(graded_differently.results / "grpo/tiny" / ROLLOUTS).row(5, named=True)
    first = shown.partition("<tbody>")[2].partition("</tr>")[0]
    assert row["rollout"] in first and "+0.75" in first and "0.25" in first


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("/rollouts/grpo/tiny?step=9", "no rollouts of step 9; expected one of 1 to 3"),
        ("/rollouts/grpo/tiny?step=x", "no step `x`; expected a number"),
        ("/rollouts/sft/cold", "no such file; expected the rollouts"),
        ("/rollouts/grades/cold", "has no rollouts; expected"),
        ("/rollout/grpo/tiny/none", "no rollout `none`"),
    ],
)
def test_missing_rollouts_are_reported(client, address, message):
    """An unknown step, an artifact without rollouts, and an unknown rollout are reported."""
    assert message in page(client, address, 404)


# ----------------------------------------------------------------------------------------------------------- proposals


def test_proposed_attempts_are_graded_without_the_verdict_of_the_judge(made, client):
    """A table of grades links to attempts to grade next; their page has no verdict, and their form the judge's scale."""
    assert '<a href="/proposals/grades/round-2">' in page(client, "/table/grades/round-2")
    shown = human_grades.propose_attempts(made.table("grades/round-2"), 5)
    html = page(client, "/proposals/grades/round-2")
    assert len(shown.rows) == 5 and shown.responses == "responses/cold" and shown.labels < shown.attempts
    assert f"{shown.labels} of {shown.attempts} attempts" in html and "grader: human" in html
    first = shown.rows[0]
    address = f"/problem/problems/bench/{first['problem']}?show=responses/cold"
    assert f'href="{address}#{first["response"]}"' in html
    attempt = page(client, address)
    assert f'id="{first["response"]}"' in attempt and "<summary>Verdict" not in attempt
    (points,) = {row["max_points"] for row in made.table("grades/round-2").rows()}
    assert f'name="max_points" value="{points}"' in attempt
    form = {"responses": "responses/cold", "response": first["response"], "max_points": str(points), "back": "/"}
    assert client.post("/grade", data={**form, "grade": "1"}, follow_redirects=False).status_code == 303
    after = human_grades.propose_attempts(made.table("grades/round-2"), 5)
    assert after.labels == shown.labels + 1 and first["response"] not in {row["response"] for row in after.rows}


def test_attempts_without_a_judge_have_no_proposals(client):
    """Only grades by a judge or a program are debiased."""
    assert "has no grades by a judge" in page(client, "/proposals/responses/cold", 404)
    assert "/proposals/" not in page(client, "/table/responses/cold")
