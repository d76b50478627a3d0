"""The viewer of a finished chain in Chromium: drawing, links, comparison, grading, and hostile texts."""

import json

import pytest
import yaml

from browsing import chromium, chromium_path, opened, page_of, pictured, pressed, read_from_disk, viewing
from mill import REFEREE, SMALL, Mill
from proofmill.config.config import expand
from proofmill.viewer import report

pytestmark = [pytest.mark.browser, pytest.mark.sampled(0, "light")]
ATTACK = (
    "<script>window.attacked = 1</script> <img src=x onerror='window.attacked = 2'> [here](javascript:window.attacked=3) "
    "$\\href{javascript:window.attacked=4}{x}$ <svg onload='window.attacked = 5'> "
)
RECIPE = {
    **SMALL,
    "problems/attacks": {"source": "table", "path": "attacks.jsonl"},
    "responses/attacks": {"problems": "problems/attacks", "model": "solutions"},
    "grades/attacks": {"responses": "responses/attacks", "grader": "final-answer"},
    "responses/right": {"problems": "problems/bench", "model": "solutions"},
    "grades/right": {"responses": "responses/right", "grader": "arithmetic"},
    "responses/lost": {"problems": "problems/bench", "model": "base/tiny", "max-tokens": 16},
    "grades/lost": {"responses": "responses/lost", "grader": "arithmetic"},
    "scores/cold": {"grades": ["grades/cold", "grades/right"], "metrics": ["avg-at-k"], "max-unscored": 1},
}


@pytest.fixture(scope="module")
def viewed(tmp_path_factory):
    """Run a chain with a hostile problem and attempt, and `proofmill view` on it; yield the chain and the address."""
    chromium_path()
    folder = tmp_path_factory.mktemp("viewed")
    row = {"statement": "Find $x$. " + ATTACK, "solution": ATTACK + "So \\boxed{5}.", "answer": "5"}
    (folder / "attacks.jsonl").write_text(json.dumps(row) + "\n")
    entries = {**RECIPE, "problems/attacks": {**RECIPE["problems/attacks"], "path": str(folder / "attacks.jsonl")}}
    made = Mill(folder / "results", **entries)
    made.make(*entries)
    (folder / "config.yaml").write_text(yaml.safe_dump({"r": {"api/referee": REFEREE, **entries}}))
    with viewing(folder) as address:
        yield made, address


@pytest.fixture(scope="module")
def browser(viewed):
    """Start the browser after the chain has run."""
    with chromium() as started:
        yield started


@pytest.fixture(params=["light", "dark"])
def page(request, browser, viewed):
    """Open a page with the cookie, in both color schemes."""
    with page_of(browser, request.param) as page:
        page.goto(viewed[1])
        yield page


def problem_of(made) -> str:
    return made.table("problems/bench").rows("problem")[1]["problem"]


def test_recipe_leads_to_a_table_and_the_table_to_a_problem(page, viewed):
    """Clicks lead from a recipe's stages to a problem; keys lead to the next problem and back."""
    opened(page, viewed[1], "/recipe/r")
    page.click("svg a[href='/table/problems/bench']")
    assert page.title() == "problems/bench · proofmill"
    page.click("tbody a[data-row] >> nth=0")
    assert "Problem 1 of 12" in page.locator("h1").inner_text()
    first = page.url
    pressed(page, "j")
    page.wait_for_url(lambda url: url != first)
    assert "Problem 2 of 12" in page.locator("h1").inner_text()
    pressed(page, "ArrowLeft")
    page.wait_for_url(first)
    assert page.said == []


def test_formulas_are_drawn_by_the_browser(page, viewed):
    """The statement shows no dollar sign, and each formula has a size."""
    opened(page, viewed[1], f"/problem/problems/bench/{problem_of(viewed[0])}?show=grades/cold&show=grades/right")
    statement = page.locator(".statement")
    assert "$" not in statement.inner_text()
    boxes = [statement.locator("math").nth(n).bounding_box() for n in range(statement.locator("math").count())]
    assert boxes and all(box["width"] > 3 and box["height"] > 5 for box in boxes)
    assert pictured(page, "problem").stat().st_size > 10_000
    assert page.said == []


def test_two_tables_are_shown_in_columns(page, viewed):
    """The chosen tables are columns with their attempts and grades; the choice is in the address."""
    opened(page, viewed[1], f"/problem/problems/bench/{problem_of(viewed[0])}?show=grades/cold&show=grades/right")
    columns = [page.locator(".column").nth(n).bounding_box() for n in range(2)]
    assert columns[0]["y"] == columns[1]["y"] and columns[0]["x"] < columns[1]["x"]
    assert page.locator(".column").nth(1).locator("h3 .chip.solved").count() == 1
    page.click("details.choose summary")
    page.check("input[value='grades/lost']")
    page.click("form.filter button")
    assert page.locator(".column").count() == 3 and "show=grades%2Flost" in page.url


def test_rows_are_filtered_and_the_address_is_shared(page, viewed, browser):
    """Another reader with the address and the token sees the same filtered rows."""
    opened(page, viewed[1], "/table/grades/cold")
    pressed(page, "/")
    page.keyboard.type("attempt = 0")
    page.keyboard.press("Enter")
    page.wait_for_url("**where=attempt**")
    assert "1 to 12 of 12" in page.locator(".paging").inner_text()
    pictured(page, "table")
    other = browser.new_context().new_page()
    assert other.goto(page.url).status == 403
    token = viewed[1].partition("?")[2]
    other.goto(f"{page.url}&{token}")
    assert "1 to 12 of 12" in other.locator(".paging").inner_text() and "token=" not in other.url
    other.context.close()


def test_entered_grade_is_on_the_page_and_in_the_file(page, viewed):
    """A grade typed into the form of an attempt is on the page and in the file for `grader: human`."""
    made = viewed[0]
    opened(page, viewed[1], f"/problem/problems/bench/{problem_of(made)}?show=grades/cold")
    article = page.locator("article").first
    article.locator("input[name=grade]").fill("4")
    article.locator("input[name=comment]").fill(f"in {page.scheme}")
    article.locator("button").click()
    page.wait_for_load_state()
    assert "human: 4 of 7" in page.locator("article").first.inner_text()
    lines = [json.loads(line) for line in (made.results / "human/cold.jsonl").read_text().splitlines()]
    assert (lines[-1]["grade"], lines[-1]["comment"]) == (4, f"in {page.scheme}")


def test_texts_of_a_model_run_nothing(page, viewed):
    """Scripts, event handlers and links of an attempt and a statement neither run, load nor navigate."""
    made, requests = viewed[0], []
    page.on("request", lambda request: requests.append(request.url))
    problem = made.table("problems/attacks").rows("problem")[0]["problem"]
    response = made.table("responses/attacks").rows("response")[0]["response"]
    for address in (
        f"/problem/problems/attacks/{problem}",
        f"/row/responses/attacks/{response}",
        "/table/problems/attacks",
    ):
        opened(page, viewed[1], address)
        for summary in page.locator("main summary").all():
            summary.click()
        page.wait_for_timeout(100)
        assert page.evaluate("window.attacked") is None
        assert page.locator("main script, main img, main iframe, main a[href^='javascript']").count() == 0
    here = viewed[1].split("/?")[0]
    assert all(url.startswith(here) for url in requests)
    assert page.said == []


def test_report_opens_from_disk_and_prints(page, viewed, tmp_path):
    """The file opens without a network, with an empty console and its images, and prints."""
    made, file = viewed[0], tmp_path / "report.html"
    config = expand(
        {"r": {"api/referee": REFEREE, **{name: entry for name, entry in RECIPE.items() if "attacks" not in name}}}
    )
    file.write_text(report.write(config, "r", made.results))
    read_from_disk(page, file)
    pictured(page, "report")


def test_screenshots_of_recipe_and_scores_are_taken(page, viewed):
    """The lanes have a square for each artifact, and the score page has a table."""
    opened(page, viewed[1], "/recipe/r")
    assert page.locator(".lanes a").count() == len(RECIPE) and page.locator(".lanes a[class]").count() == 0
    pictured(page, "recipe")
    opened(page, viewed[1], "/table/scores/cold")
    assert "grades" not in page.locator("h1").inner_text() and page.locator(".written table").count() >= 1
    pictured(page, "scores")
