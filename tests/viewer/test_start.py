"""The pages about recipes: start, one recipe, scores, costs, search; their live blocks; and what the guard refuses."""

import os
import re
import shutil
import threading
from html import unescape
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from mill import REFEREE, SMALL, Mill
from proofmill.analysis import costs
from proofmill.analysis.search import search
from proofmill.calls.shards import Shard, ShardJournal
from proofmill.config.config import expand
from proofmill.metrics.page import difference
from proofmill.runtime import locks
from proofmill.viewer import recipes, score_boards, start_page
from proofmill.viewer.app import application

TOKEN = "a-token"
RECIPE = {
    **SMALL,
    "responses/right": {"problems": "problems/bench", "model": "solutions"},
    "grades/right": {"responses": "responses/right", "grader": "arithmetic"},
    "grades/program": {"responses": "responses/cold", "grader": "arithmetic"},
    "responses/tiny": {"problems": "problems/bench", "model": "base/tiny", "attempts": 2, "max-tokens": 24},
    "grades/tiny": {"responses": "responses/tiny", "grader": "arithmetic"},
    "scores/all": {
        "grades": ["grades/program", "grades/tiny", "grades/right"],
        "metrics": ["avg-at-k", "solve-rate"],
        "compare": [["sft/cold", "base/tiny"]],
        "max-unscored": 1,
    },
    "grades/later": {"responses": "responses/cold", "grader": "final-answer"},
}
NEW = {"problems/other": {"source": "arithmetic", "rows": 4, "seed": 9}}


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Mill:
    """Run a small chain with scores of a model and of the official proofs; `grades/later` is not built."""
    mill = Mill(tmp_path_factory.mktemp("started") / "results", **RECIPE)
    mill.make(*(name for name in RECIPE if name != "grades/later"))
    return mill


@pytest.fixture
def client(made):
    return opened(made.results)


def book(**settings):
    return expand({"r": {"api/referee": REFEREE, **RECIPE}, "empty": NEW, **settings})


def opened(results: Path, port: int = 8000, **settings) -> TestClient:
    """Return a client that has opened the address with the token."""
    config = book(**settings)
    client = TestClient(application(lambda: config, results, TOKEN), base_url=f"http://127.0.0.1:{port}")
    assert client.get(f"/?token={TOKEN}").status_code == 200
    return client


def page(client, address, status=200) -> str:
    answer = client.get(address)
    assert answer.status_code == status, answer.text[:2000]
    return answer.text


def text_of(html: str) -> str:
    """Return the visible text of a page, on one line."""
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", html)).split())


def part(html: str, heading: str) -> str:
    """Return the section with this heading."""
    return next(some for some in html.split("<section")[1:] if f'id="{heading}"' in some)


# --------------------------------------------------------------------------------------------------------------- start


def test_start_has_the_numbers_of_the_scores_table(made, client):
    """Each model's number and interval, its share solved and the comparison are those of the table."""
    html = page(client, "/")
    shown = text_of(part(html, "scores"))
    rows = [
        row for row in made.table("scores/all").rows() if row["slice"] == "all" and row["metric"].startswith("avg@")
    ]
    for row in (row for row in rows if row["baseline"] is None):
        assert f"{row['model']}" in shown and f"{row['value']:.2f} [{row['low']:.2f}, {row['high']:.2f}]" in shown
    (compared,) = (row for row in rows if row["baseline"])
    assert f"sft/cold − base/tiny {difference(compared)}" in shown and "100.0%" in shown
    assert "/compare?a=sft/cold&amp;b=base/tiny&amp;on=problems/bench" in html


def test_best_model_is_first_with_its_comparison(made, monkeypatch):
    """Models are sorted by the metric, and the line below is about the best two that were compared."""
    same = {
        "problems": "p",
        "sampling": "s",
        "grader": "g",
        "metric": "avg@2",
        "n": 4,
        "baseline": None,
        "p_value": None,
    }
    rows = [
        {**same, "model": model, "value": value, "low": 0.0, "high": 7.0}
        for model, value in (("a", 1.0), ("b", 3.0), ("c", 2.0))
    ]
    pairs = [
        {**rows[0], "model": model, "baseline": base, "p_value": 0.5}
        for model, base in (("a", "b"), ("c", "b"), ("a", "c"))
    ]
    monkeypatch.setattr(score_boards, "read_rows", lambda table, changed: rows + pairs)
    (board,) = score_boards.list_boards(recipes.Overview(made.results).read(book()), "scores/all")
    assert [line.row["model"] for line in board.lines] == ["b", "c", "a"]
    assert [(row["model"], row["baseline"]) for row in board.compared] == [("c", "b"), ("a", "b"), ("a", "c")]


def test_lost_attempts_are_next_to_the_score_and_lead_to_their_rows(made, client):
    """The chip and the cause link to exactly the rows that they count."""
    html = page(client, "/")
    lost = list(score_boards.list_lost(recipes.Overview(made.results).read(book()), "grades/program"))
    assert lost
    for each in lost:
        assert each.address.replace("&", "&amp;") in html
        matching = re.search(r"of ([\d,]+) that match", page(client, each.address))
        assert matching and int(matching[1]) == each.count, each
        assert f'class="chip {each.sort}"' in part(html, "scores") and f'class="chip {each.sort}"' in part(html, "look")


def test_only_recipes_with_results_are_in_the_table_of_recipes(client):
    """Others are folded, with their number of stages; every recipe has a link."""
    html = part(page(client, "/"), "recipes")
    table, _, folded = html.partition("<details")
    assert 'href="/recipe/r"' in table and "/recipe/empty" not in table
    assert 'href="/recipe/empty"' in folded and "1 recipe without results here" in folded


def test_start_without_results_names_two_commands(tmp_path):
    """The first page of an empty folder says what to type, and lists the recipes unfolded."""
    html = page(opened(tmp_path), "/")
    assert "snakemake -n r\nsnakemake r" in html and "<details open>" in html
    assert "Needs a look" not in html and "Running now" not in html
    for address in ("/scores", "/costs", "/recipe/r", "/search?q=x"):
        page(opened(tmp_path), address)


def test_running_job_has_its_progress_as_numbers(made, client):
    """A held lock is a running stage, with count, curve, speed and time left of its log's last run."""
    table = made.table("grades/later")
    lines = ["12:00:00  grades/later  1 of 90 rows (1 %), 9:00 left", "", "2026-11-22 12:00:00 UTC on vm"]
    lines += [
        f"12:00:0{n}  grades/later  step {n} of 48, loss 0.{n}, reward 0.{9 - n}, 21 steps/min" for n in (1, 2, 3)
    ]
    table.log.write_text(
        "\n".join([*lines, "12:00:09  grades/later  step 4 of 48, reward 0.62, 23 steps/min, 1:17 left"]) + "\n"
    )
    table.lock.parent.mkdir(parents=True, exist_ok=True)
    try:
        with locks.alone(table.lock, table.name):
            pages = [page(client, address) for address in ("/", "/recipe/r")]
    finally:
        table.log.unlink()
    for html in pages:
        shown = text_of(part(html, "now"))
        for number in ("step 4 of 48", "reward 0.62", "23 steps/min", "1:17 left"):
            assert number in shown, shown
        assert '<svg class="spark"' in part(html, "now") and "1 of 90" not in shown
    assert "1 job running" in pages[0] and 'class="running"' in pages[1]
    assert "Running now" not in page(client, "/")


def test_time_left_waits_for_something_to_estimate_from(made, client):
    """After one of 48 steps no time is shown."""
    table = made.table("grades/later")
    table.log.write_text("12:00:09  grades/later  1 of 48 rows (2 %), 4:18:04 left\n")
    try:
        with locks.alone(table.lock, table.name):
            shown = text_of(part(page(client, "/"), "now"))
    finally:
        table.log.unlink()
    assert "1 of 48 rows" in shown and "left" not in shown


def test_shards_at_work_are_a_running_stage(made, client):
    """Shards count as running although they write no table and hold no lock of it."""
    with ShardJournal(made.table("grades/later").calls, Shard(1, 2)):
        assert 'class="running"' in page(client, "/recipe/r")
    assert 'class="running"' not in page(client, "/recipe/r")


def test_failed_stage_is_above_everything_with_its_error_and_command(made, client):
    """The last line of the log in full, its end, and the command that repeats it are on both pages."""
    log = made.table("grades/later").log
    log.write_text("12:00:00  a line before\n12:00:01  TableError: grades/later: <b>lost</b>; expected it.\n")
    try:
        start, recipe = page(client, "/"), page(client, "/recipe/r")
    finally:
        log.unlink()
    for html in (part(start, "look"), part(recipe, "failed")):
        assert "&lt;b&gt;lost&lt;/b&gt;; expected it." in html and "a line before" in html
        assert f"snakemake {made.results}/grades/later.parquet" in html
    assert recipe.index('id="failed"') < recipe.index('id="map"') and 'class="failed"' in recipe
    assert 'class="failed"' not in page(client, "/recipe/r")


def test_damage_inside_tables_leaves_the_pages_readable(made, tmp_path):
    """Tables whose footer is intact and whose rows are not: other numbers stay, and nothing else fails."""
    shutil.copytree(made.results, tmp_path / "results")
    for name in ("sft/cold", "scores/all", "grades/program"):
        path = tmp_path / f"results/{name}.parquet"
        path.write_bytes(b"PAR1" + b"\0" * 400 + path.read_bytes()[404:])
    client = opened(tmp_path / "results")
    for address in ("/", "/recipe/r", "/scores", "/costs", "/search?q=x"):
        page(client, address)
    assert "is damaged" in page(client, "/scores") and 'href="/table/sft/cold"' in page(client, "/recipe/r")


def test_truncated_responses_count_once_for_two_graders(client):
    """`grades/cold` and `grades/program` are of the same responses: one link, and no response is counted twice."""
    html = part(page(client, "/"), "look")
    assert html.count("/table/responses/cold?where=stop_reason") == 1


def test_spent_budget_needs_a_look(made, monkeypatch):
    """Above 80 % of the budget a line leads to the costs, which have a bar."""
    monkeypatch.setattr(start_page.budget, "sum_costs", lambda folder: 4.5)
    client = opened(made.results, budget=5.0)
    assert "$4.50 of $5.00 are spent." in text_of(part(page(client, "/"), "look"))
    assert 'aria-label="90% of the budget is spent"' in page(client, "/costs")


# -------------------------------------------------------------------------------------------------------------- recipe


def test_map_counts_every_stage_once(client):
    """The boxes of the kinds count all stages, and lines are drawn only between kinds that the recipe joins."""
    html = part(page(client, "/recipe/r"), "map")
    boxes = re.findall(r'class="kind k-(\w+)".*?(\d+)(?: of (\d+)| done)</span></span>', html)
    assert len(boxes) == len({name.partition("/")[0] for name in RECIPE})
    assert sum(int(total or done) for _, done, total in boxes) == len(RECIPE)
    shown = recipes.stages(book(), "r", Path("nowhere"))
    assert ("responses", "grades") in recipes.edges(shown) and ("grpo", "responses") not in recipes.edges(shown)
    assert html.count('class="tip ') == 9


def test_lanes_have_a_named_link_for_each_stage(client):
    """Each square says its name and state, leads to its table, and knows its parents."""
    html = part(page(client, "/recipe/r"), "all")
    titles = re.findall(r'<a href="/table/[^"]+"[^>]* data-from="([^"]*)"><title>([^:]+): (\w+)', html)
    names = [name for _, name, _ in titles]
    assert sorted(names) == sorted(RECIPE)
    parents = {name: [names[int(n)] for n in numbers.split()] for numbers, name, _ in titles}
    assert parents["grades/cold"] == ["responses/cold", "schemes/bench"] and parents["problems/bench"] == []
    assert {state for _, name, state in titles if name != "grades/later"} == {"done"}


def views(*names: str, parents=lambda name: []) -> list[recipes.JobView]:
    return [recipes.JobView(name, "make", "", parents(name), Path("x.log")) for name in names]


@pytest.mark.parametrize(("stages", "seeds", "squares"), [(30, 4, 120), (31, 4, 31), (101, 3, 101)])
def test_seeds_are_folded_in_long_recipes(stages, seeds, squares):
    """Above 120 stages the seeds of a name share a square; all stages are still counted."""
    names = [f"sft/x{n}{f'@seed-{seed}' if seed else ''}" for n in range(stages) for seed in range(seeds)]
    if len(names) > recipes.FOLD_FAMILIES:
        names = [name.replace("/x", "/x@") for name in names]
        squares = 1
    lanes = recipes.arrange_lanes(views(*names))
    assert len(lanes.squares) == squares and sum(len(square.stages) for square in lanes.squares) == len(names)
    assert lanes.lanes[0][:2] == ("sft", len(names))


def test_squares_do_not_overlap_and_follow_their_parents():
    """However many stages there are in a column, squares are apart, inside their lane, and right of their parents."""
    names = [f"problems/p{n}" for n in range(3)] + [f"responses/r{n}" for n in range(40)] + ["scores/s"]
    of = {"problems": "", "responses": "problems/p1", "scores": "responses/r39"}
    lanes = recipes.arrange_lanes(views(*names, parents=lambda name: list(filter(None, [of[name.partition("/")[0]]]))))
    places = {(square.x, square.y) for square in lanes.squares}
    assert len(places) == len(names)
    assert all(abs(x - a) >= 18 or abs(y - b) >= 18 for x, y in places for a, b in places if (x, y) != (a, b))
    for square in lanes.squares:
        assert all(lanes.squares[parent].x < square.x for parent in square.parents)
        kind, _, top, height = next(lane for lane in lanes.lanes if lane[0] == square.name.partition("/")[0])
        assert top < square.y and square.y + 16 <= top + height and square.x + 16 <= lanes.width, kind


def test_trainings_have_a_curve_and_their_last_value(made, client):
    """The sparkline is of the logged loss; its last number is the table's."""
    html = part(page(client, "/recipe/r"), "trainings")
    losses = [row["value"] for row in made.table("sft/cold").rows() if row["metric"] == "loss"]
    assert f"loss {losses[-1]:.3g}" in text_of(html) and '<svg class="spark"' in html


def test_spark_keeps_at_most_sixty_points():
    """Long curves are thinned, and a constant one is drawn."""
    spark = recipes.draw_spark("loss", [1 / n for n in range(1, 5000)])
    assert spark.path.count("L") < 60 and spark.last == 1 / 4999
    assert "nan" not in recipes.draw_spark("loss", [2.0, float("nan"), 2.0]).path
    assert recipes.draw_spark("loss", [1.0]) is None


def test_new_table_log_and_source_are_seen(made, tmp_path):
    """The overview notices a finished table at once although stamps and states are kept between requests."""
    mill = Mill(tmp_path / "results", **NEW)
    config = expand({"empty": NEW})
    overview = recipes.Overview(mill.results)
    assert [stage.state for stage in overview.read(config).stages("empty")] == ["make"]
    mill.make("problems/other")
    (stage,) = overview.read(config).stages("empty")
    assert (stage.state, stage.rows) == ("done", 4)
    assert overview.read(config).stages("empty")[0] is stage
    edited = expand({"empty": {"problems/other": {**NEW["problems/other"], "rows": 5}}})
    assert overview.read(edited).stages("empty")[0].state == "make"


# -------------------------------------------------------------------------------------------------- scores, costs, search


def test_scores_are_shown_by_the_chosen_metric(made, client):
    """The select names every metric with an interval; another one changes numbers and scale."""
    assert "points of 7" in page(client, "/scores")
    html = page(client, "/scores?metric=solve-rate")
    rows = [row for row in made.table("scores/all").rows() if row["metric"] == "solve-rate" and row["baseline"] is None]
    for row in rows:
        if row["slice"] == "all":
            assert f"{row['value']:.1%} [{row['low']:.1%}, {row['high']:.1%}]" in text_of(html)
    assert "0 to 100%" in html and "<option selected>solve-rate</option>" in html
    assert "points of 7" in page(client, "/scores?metric=none")


def test_costs_are_sums_of_stamps_and_journals(made, client):
    """Compute, tokens and calls of a kind are those of its tables; a kind without calls has no dollars."""
    stamps = {name: made.table(name).stamp for name in RECIPE if name != "grades/later"}
    rows = {(row.kind, row.model): row for row in costs.sum_costs(stamps, made.results)}
    labelled = rows["schemes", "api/referee"]
    assert labelled.sums["seconds"] == sum(stamps[name]["seconds"] for name in stamps if name.startswith("schemes/"))
    assert labelled.sums["calls"] == sum(made.table(name).height for name in ("schemes/train", "schemes/bench"))
    shown = text_of(part(page(client, "/costs?recipe=r"), "rows"))
    assert f"schemes api/referee 2 0:0{round(labelled.sums['seconds'])}" in shown and "$0.00" in shown


@pytest.mark.parametrize(
    ("costs_of", "shown"),
    [([], ""), ([1.5, 2], "$3.50"), ([None], "no price"), ([1.5, None], "$1.50 + no price"), ([0.0], "$0.00")],
)
def test_unknown_price_is_not_zero(costs_of, shown):
    """A cost without a known price is said, never summed as $0.00; stages without calls do not count."""
    assert costs.format_dollars([{"tokens": 5, "cost": cost} for cost in costs_of] + [{"seconds": 3}]) == shown


def test_sum_of_costs_rises_to_the_total():
    """The curve is of dollars if there are some, and of compute otherwise."""
    curve = costs.draw_sum([(3.0, {"cost": 1.0}), (1.0, {"cost": 2.0}), (2.0, {"seconds": 9})])
    assert (curve["total"], curve["paid"], curve["path"]) == (3.0, True, "M0 100H0.00V33.33H50.00V33.33H100.00V0.00")
    assert not costs.draw_sum([(1.0, {"seconds": 1}), (2.0, {"seconds": 1})])["paid"]
    assert costs.draw_sum([(1.0, {"seconds": 1})]) is None


def test_search_lists_artifacts_then_problems(made, client):
    """Names come first, also of what is not made; problems are found by id and by statement, each once."""
    row = made.table("problems/bench").rows()[2]
    html = page(client, "/search?q=later")
    assert 'href="/table/grades/later"' in html and "not made yet" in html
    for text in (row["problem"][:10], row["statement"][3:40].swapcase()):
        hits = search(text, [], ["problems/bench", "problems/bench"], made.results)
        assert ("problems/bench", row["problem"], row["statement"]) in hits.problems
        assert len({problem for _, problem, _ in hits.problems}) == len(hits.problems)
    assert f'href="/problem/problems/bench/{row["problem"]}"' in page(client, f"/search?q={row['problem']}")
    assert "No artifact has this" in page(client, "/search?q=%00(]nothing")


def test_search_ends_in_time(made, monkeypatch):
    """A table that was not read to the end is named."""
    monkeypatch.setattr("proofmill.analysis.search.SECONDS", -1.0)
    assert search("x", [], ["problems/bench"], made.results).unread == ["problems/bench"]


# ---------------------------------------------------------------------------------------------------------------- live


def test_live_blocks_are_those_of_the_page(client):
    """One request has the asked blocks as the page has them, and costs nothing while they stay the same."""
    answer = client.get("/live", params={"page": "/recipe/r", "keys": "head,lanes"})
    html, blocks = page(client, "/recipe/r"), answer.json()
    assert sorted(blocks) == ["head", "lanes"] and all(block in html for block in blocks.values())
    again = client.get(
        "/live", params={"page": "/recipe/r", "keys": "head,lanes"}, headers={"If-None-Match": answer.headers["etag"]}
    )
    assert again.status_code == 304 and not again.content
    assert set(re.findall(r'data-live="(\w+)"', html)) == {"head", "look", "facts", "now", "folded", "lanes"}


def test_live_blocks_change_with_a_running_job(made, client):
    """A new state of a job changes the tag."""
    ask = {"params": {"page": "/", "keys": "head,now"}}
    before = client.get("/live", **ask)
    with locks.alone(made.table("grades/later").lock, "grades/later"):
        after = client.get("/live", **ask, headers={"If-None-Match": before.headers["etag"]})
    assert after.status_code == 200 and "grades/later" in after.json()["now"]


@pytest.mark.parametrize("address", ["/none", "/assets/page.js", "/live?page=/", "/grade", "", "/recipe/none", "//x"])
def test_live_blocks_of_other_addresses_are_refused(client, address):
    """Only pages have blocks."""
    assert client.get("/live", params={"page": address, "keys": "head"}).status_code == 404


# --------------------------------------------------------------------------------------------------------------- guard


def test_two_viewers_keep_their_cookies_apart(made):
    """The cookie has the port in its name, so that a browser logs in to several viewers of one machine."""
    cookies = {port: set(opened(made.results, port).cookies) for port in (8000, 8001)}
    assert cookies == {8000: {"proofmill-view-8000"}, 8001: {"proofmill-view-8001"}}


@pytest.mark.parametrize("origin", ["http://evil.example", "http://127.0.0.1:8001", "null", "http://localhost:8000"])
def test_forms_of_other_pages_are_refused(made, client, origin):
    """A POST must come from a page of this viewer."""
    response = made.table("responses/cold").rows("response")[0]["response"]
    form = {"responses": "responses/cold", "response": response, "grade": "3", "max_points": "7", "back": "/"}
    answer = client.post("/grade", data=form, headers={"Origin": origin}, follow_redirects=False)
    assert answer.status_code == 403 and not (made.results / "human/cold.jsonl").exists()
    own = client.post("/grade", data=form, headers={"Origin": "http://127.0.0.1:8000"}, follow_redirects=False)
    assert own.status_code == 303
    (made.results / "human/cold.jsonl").unlink()


@pytest.mark.parametrize("token", ["é", "%C3%A9", "%ff", "", "%00"])
def test_strange_tokens_are_refused(made, token):
    """A token that is not ASCII is a wrong one."""
    client = TestClient(application(book, made.results, TOKEN), base_url="http://127.0.0.1:8000")
    assert client.get(f"/?token={token}").status_code == 403
    assert client.get("/", headers={"Cookie": "proofmill-view-8000=\xe9".encode("latin-1")}).status_code == 403


STRANGE = ["9" * 5000, "-1", "٣", "1e9", "%00", "é", "../../etc", "a" * 5000, "'", "<b>", "{{ 1 }}", "%ff"]


@pytest.mark.parametrize("value", STRANGE)
def test_strange_addresses_are_no_fault_of_the_viewer(client, value):
    """No parameter and no path gives a 500; errors of the viewer would be raised here."""
    addresses = [f"/{route}/grades/{value}" for route in ("table", "row", "problem", "rollouts", "proposals")]
    addresses += [
        f"/recipe/{value}",
        f"/table/{value}/x",
        f"/{value}",
        f"/live?page={value}&keys={value}",
        f"/assets/{value}",
    ]
    addresses += [
        f"/scores?metric={value}",
        f"/costs?recipe={value}",
        f"/search?q={value}",
        f"/rollouts/sft/cold?step={value}",
    ]
    for address in addresses:
        answer = client.get(address)
        assert answer.status_code < 500 and "Traceback" not in answer.text, address


@pytest.mark.parametrize("number", ["9" * 5000, "-1", "1.5", "x"])
def test_page_numbers_that_no_table_has_are_refused(client, number):
    """The message is one sentence."""
    assert "no page" in page(client, f"/table/grades/cold?page={number}", 404)


def test_address_is_printed_before_the_configuration_is_read(tmp_path):
    """`proofmill view` prints the address although reading its configuration has not begun."""
    import signal
    import subprocess
    import sys

    os.mkfifo(tmp_path / "config.yaml")  # reading blocks until something is written
    command = [sys.executable, "-m", "proofmill", "view"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    timer = threading.Timer(20, process.kill)
    timer.start()
    try:
        assert process.stdout.readline().startswith("http://127.0.0.1:")
        assert process.poll() is None
    finally:
        timer.cancel()
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=20)
