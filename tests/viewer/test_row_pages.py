"""Pages of rows and problems: texts, verdict next to the response, other attempts; and addresses of any form."""

import random
import re

import pytest

from viewed import make_viewed, open_viewer, read_page

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return make_viewed(tmp_path_factory.mktemp("viewed") / "results")


@pytest.fixture(scope="module")
def client(made):
    return open_viewer(made.results, raise_server_exceptions=False)


def test_row_of_grades_has_statement_response_verdict_and_scheme(made, client):
    """The page has all texts, the numbers, the way to the source, and a form for a grade by hand."""
    row = next(row for row in made.table("grades/right").rows() if row["verdict"])
    html = read_page(client, f"/row/grades/right/{row['response']}")
    assert (
        html.index('class="statement"')
        < html.index("<h2>Response")
        < html.index("Verdict")
        < html.index("Grading scheme")
    )
    assert "Back to the source" in html and 'action="/grade"' in html and "<summary>Reasoning" in html
    assert f"/problem/problems/bench/{row['problem']}?show=grades/right#{row['response']}" in html


def test_row_has_the_other_attempts_as_chips(made, client):
    """Chips lead to the attempts of all tables; arrows to the attempts of this one."""
    rows = [row for row in made.table("grades/base").rows()][:3]
    assert len({row["problem"] for row in rows}) == 1
    html = read_page(client, f"/row/grades/base/{rows[1]['response']}")
    for row in rows:
        assert f'href="/row/grades/base/{row["response"]}"' in html
    assert html.count("/row/grades/right/") >= 1 and html.count("/row/grades/cold/") >= 2
    assert re.search(rf'rel="prev" href="/row/grades/base/{rows[0]["response"]}"', html)
    assert re.search(rf'rel="next" href="/row/grades/base/{rows[2]["response"]}"', html)
    assert html.count('<span class="here">') == 1


def test_row_of_responses_leads_to_its_grades(made, client):
    """A response without a grade of its own table has the grades of others as chips."""
    row = made.table("responses/cold").rows()[0]
    html = read_page(client, f"/row/responses/cold/{row['response']}")
    assert "Not graded" in html and f"/row/grades/program/{row['response']}" in html


@pytest.mark.parametrize("kind", ["problems/bench", "schemes/bench", "examples/cold", "base/tiny", "scores/small"])
def test_every_kind_has_row_pages(made, client, kind):
    """The first link of each table leads to a page of its row; trainings have curves instead (test_training_page.py)."""
    link = re.search(r'href="(/(?:row|problem)/[^"]+)" data-row', read_page(client, f"/table/{kind}"))[1]
    assert "<h1>" in read_page(client, link)


def test_problem_has_a_strip_of_all_attempts(made, client):
    """Each table with attempts has a line, each attempt a chip; graded responses have the lines of their grades alone."""
    problem = made.table("problems/bench").rows()[3]["problem"]
    html = read_page(client, f"/problem/problems/bench/{problem}?show=grades/cold")
    strip = html.partition('aria-label="All attempts at this problem"')[2].partition("</table>")[0]
    lines = {
        name: strip.count(f"/row/{name}/") for name in ("grades/base", "grades/cold", "grades/right", "grades/program")
    }
    assert lines == {"grades/base": 3, "grades/cold": 2, "grades/right": 1, "grades/program": 2}
    assert "/row/responses/" not in strip


def test_verdict_in_tags_is_shown_as_parts(client, made):
    """Assessment, errors and points of a judge's output are headings with their texts, not tags."""
    row = next(row for row in made.table("grades/right").rows() if "<assessment>" in (row["verdict"] or ""))
    html = read_page(client, f"/row/grades/right/{row['response']}")
    assert "<h4>assessment</h4>" in html and "<h4>points</h4>" in html and "&lt;assessment&gt;" not in html


KINDS = (
    "problems",
    "labels",
    "schemes",
    "base",
    "responses",
    "grades",
    "examples",
    "sft",
    "grpo",
    "scores",
    "overlaps",
    "nothing",
)
STRANGE = (
    *("", "0", "-1", "9" * 5000, "1e9", "NaN", "é", "٣", "²", "\x00", "\ud7ff", "a/b", "..", "../../etc/passwd", "%", "%00"),
    *("'", '"', "<script>alert(1)</script>", "{{7*7}}", "x" * 3000, "null", "grade", "grades/cold", "sft/cold", "scores/small"),
    *("1=1", "grade < 3", "grade IS", "statement = 1", "response LIKE '%'", "number", "grade / 0 > 1", "CAST(problem AS INT) = 1"),
    *("ARRAY_LENGTH(opinions) > 0", "opinions = 1", "1", "true", "SUM(grade) > 1", "grade = MAX(grade)", "POW(9, 999999) > 1"),
)  # fmt: skip
NAMES = ("cold", "bench", "tiny", "small", "right", "train", "none", *STRANGE)
ROUTES = (
    "/", "/recipe/{n}", "/table/{k}/{n}", "/row/{k}/{n}/{s}", "/problem/{k}/{n}/{s}", "/rollouts/{k}/{n}", "/rollout/{k}/{n}/{s}",
    "/proposals/{k}/{n}", "/disagreements", "/curves.svg", "/compare", "/export/{k}/{n}/{s}", "/assets/{n}", "/{n}",
    "/training/{k}/{n}", "/curves.json", "/scores", "/costs", "/search", "/live",
)  # fmt: skip
PARAMETERS = (
    "where", "sort", "down", "page", "columns", "histogram", "q", "step", "apart", "show", "one", "other", "a", "b", "on", "of",
    "keys", "with", "from", "to", "metric",
)  # fmt: skip


def test_no_address_is_an_error_of_the_server(made, client):
    """300 strange addresses with strange parameters: each is answered below 500."""
    draw = random.Random(7)
    failed = []
    for _ in range(300):
        from urllib.parse import quote

        route = draw.choice(ROUTES)
        path = route.format(k=draw.choice(KINDS), n=quote(draw.choice(NAMES)), s=quote(draw.choice(STRANGE)))
        chosen = draw.sample(PARAMETERS, draw.randint(0, 4))
        answer = client.get(path, params=[(name, draw.choice(STRANGE)) for name in chosen])
        if answer.status_code >= 500 or "Traceback" in answer.text:
            failed.append(str(answer.request.url)[:300])
    assert not failed, "\n".join(failed)


@pytest.mark.parametrize("parameter", ["where", "sort", "columns", "histogram", "q", "page"])
@pytest.mark.parametrize("table", ["grades/cold", "problems/bench", "scores/small", "sft/cold", "examples/cold"])
def test_no_setting_of_a_table_is_an_error_of_the_server(client, table, parameter):
    """Each strange value of each setting of a table's page is answered below 500."""
    failed = [value for value in STRANGE if client.get(f"/table/{table}", params={parameter: value}).status_code >= 500]
    assert not failed


def test_no_form_is_an_error_of_the_server(client):
    """Strange grades by hand are answered below 500, and none is stored."""
    for value in STRANGE:
        for field in ("responses", "response", "grade", "max_points", "back"):
            form = {
                "responses": "responses/cold",
                "response": "x",
                "grade": "9",
                "max_points": "7",
                "back": "/",
                field: value,
            }
            assert client.post("/grade", data=form, follow_redirects=False).status_code < 500, (field, value)
