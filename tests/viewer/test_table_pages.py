"""Pages of tables: columns with texts, histograms, shortcuts, conditions with limits, search, and exports."""

import csv
import io
import json
import re
import time
from types import SimpleNamespace

import polars as pl
import pytest

from proofmill.calls.journal import Journal
from proofmill.runtime import locks
from proofmill.schema.errors import SettingError
from proofmill.viewer import table_pages
from proofmill.viewer.table_pages import PageSettings
from proofmill.viewer.tables.histograms import histogram, round_edges
from proofmill.viewer.tables.limited_call import LimitedCall
from viewed import make_viewed, open_viewer, read_page

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return make_viewed(tmp_path_factory.mktemp("viewed") / "results")


@pytest.fixture(scope="module")
def client(made):
    return open_viewer(made.results)


def cells(html: str) -> list[list[str]]:
    """Return the cells of the rows of a table page, without tags."""
    body = html.partition('<table class="data flat">')[2].partition("<tbody>")[2].partition("</tbody>")[0]
    rows = re.findall(r"<tr>(.*?)</tr>", body, re.DOTALL)
    return [
        [re.sub(r"<[^>]+>", "", cell).strip() for cell in re.findall(r"<td.*?</td>", row, re.DOTALL)] for row in rows
    ]


# ---------------------------------------------------------------------------------------------------------------- rows


@pytest.mark.parametrize("kind", ["problems/bench", "schemes/bench", "responses/cold", "grades/cold", "examples/cold"])
def test_first_column_is_the_statement_and_leads_to_the_row(made, client, kind):
    """No id of 16 hexadecimal digits is in the first column; it has the beginning of the statement, as a link."""
    rows = cells(read_page(client, f"/table/{kind}"))
    assert len(rows) == min(50, made.table(kind).height)
    assert all(not re.search(r"\b[0-9a-f]{16}\b", row[0]) and len(row[0]) > 15 for row in rows)
    assert "data-row>" in read_page(client, f"/table/{kind}")


def test_grades_are_shown_with_the_texts_of_their_responses(made, client):
    """A row has the grade as a chip, the verdict, the end of the response, and the tokens of the response."""
    responses = {row["response"]: row for row in made.table("responses/cold").rows()}
    grades = made.table("grades/cold").rows()
    for grade, row in zip(grades, cells(read_page(client, "/table/grades/cold")), strict=True):
        assert row[1] == str(grade["attempt"])
        scored = {"empty": "empty, 0", "no-verdict": "unscored: no-verdict"}
        assert row[2] == (scored.get(grade["reason"]) or f"{grade['grade']:g} of 7")
        assert row[-1] == str(responses[grade["response"]]["tokens"])


def test_chosen_columns_follow_the_statement(client):
    """Ids are shown by choice; the statement stays the first column."""
    rows = cells(read_page(client, "/table/grades/cold?columns=response&columns=reason"))
    assert len(rows[0]) == 3 and re.fullmatch(r"[0-9a-f]{16}", rows[0][1]) and not re.match("[0-9a-f]{16}", rows[0][0])


def test_sorted_column_says_so(made, client):
    """The header has `aria-sort`, and the rows of all pages are in that order."""
    html = read_page(client, "/table/grades/cold?sort=grade&down=1")
    assert html.count("aria-sort") == 1 and 'aria-sort="descending"' in html
    grades = [row["grade"] for row in made.table("grades/cold").rows() if row["grade"] is not None]
    shown = [row[2] for row in cells(html)]
    assert [int(re.search(r"\d", text)[0]) for text in shown[:-1]] == sorted(map(int, grades), reverse=True)
    assert shown[-1] == "unscored: no-verdict"


def test_overlaps_show_both_statements(tmp_path):
    """A row of `overlaps` has the statements of both problems."""
    entries = {
        "problems/a": {"source": "arithmetic", "rows": 6},
        "problems/b": {"source": "problems/a"},
        "overlaps/ab": {"problems": ["problems/a"], "against": ["problems/b"], "methods": ["exact"]},
    }
    from mill import Mill

    mill = Mill(tmp_path / "results", **entries)
    mill.make(*entries)
    rows = cells(read_page(open_viewer(mill.results, entries), "/table/overlaps/ab"))
    assert len(rows) == 6 and all(row[0] == row[1] and len(row[0]) > 15 for row in rows)


# ---------------------------------------------------------------------------------------------------------- histograms


def bars_of(values, column="x", **others):
    return histogram(column, pl.DataFrame({column: values, **others})).bars


def test_grades_have_one_bar_a_point_with_empty_bins_and_parts():
    """0 to 7 are eight bars in order, those without rows too; the first has the empty attempts as a part."""
    bars = bars_of(
        [0.0, 0.0, 0.0, 3.0, None], "grade", max_points=[7] * 5, reason=["empty", "ok", "ok", "ok", "no-verdict"]
    )
    assert [bar.label for bar in bars] == [*"01234567", "null"]
    assert [bar.count for bar in bars] == [3, 0, 0, 1, 0, 0, 0, 0, 1]
    assert (bars[0].part, bars[3].part) == (1, 0)
    assert (bars[3].where, bars[-1].where) == ("grade = 3", "grade IS NULL")


@pytest.mark.parametrize(
    "values",
    [
        range(14, 177, 3),
        [0.5],
        [-3, 8],
        [0.1, 0.2, 0.30000000000000004, 0.7],
        [1e-9, 1e9],
        [float("inf"), 1.5, float("nan"), 2.25],
        [10**12, 3],
    ],
)
def test_bars_of_numbers_count_every_number_once(values):
    """At most 16 bars in order; the condition of each selects exactly its rows."""
    frame = pl.DataFrame({"x": list(values)})
    bars = histogram("x", frame).bars
    finite = [value for value in values if abs(value) < float("inf")]
    assert 1 <= len(bars) <= 16 and sum(bar.count for bar in bars) == len(finite)
    for bar in bars:
        assert frame.filter(pl.sql_expr(bar.where)).height == bar.count, bar
    assert [float(bar.label) for bar in bars] == sorted(float(bar.label) for bar in bars)


def test_words_are_sorted_by_frequency_and_the_rest_is_one_bar():
    """Twelve words, then the others, then the rows without a value."""
    values = [word for n in range(15) for word in [f"it's {n:02}"] * (20 - n)] + [None]
    bars = bars_of(values)
    assert [bar.count for bar in bars] == [*range(20, 8, -1), 8 + 7 + 6, 1]
    assert bars[-2].label == "3 others" and not bars[-2].where
    assert pl.DataFrame({"x": values}).filter(pl.sql_expr(bars[0].where)).height == 20


def test_words_of_lists_are_counted_each():
    """A list of words counts for each of its words; the condition selects the rows that contain it."""
    frame = pl.DataFrame({"x": [["a", "b"], ["a"], [], None]})
    bars = histogram("x", frame).bars
    assert [(bar.label, bar.count) for bar in bars] == [("a", 2), ("b", 1), ("null", 1)]
    assert frame.filter(pl.sql_expr(bars[0].where)).height == 2


def test_edges_are_round_and_enclose_the_numbers():
    """For many ranges, edges are few, ascending, and around both numbers."""
    for low in (-1e6, -7.3, 0.0, 0.001, 12.0):
        for span in (0.0, 1e-7, 0.3, 1.0, 7.0, 163.0, 1e9):
            edges = round_edges(low, low + span)
            assert edges == sorted(edges) and edges[0] <= low and edges[-1] > low + span and len(edges) <= 17


def test_page_has_the_histogram_of_grades_in_order(made, client):
    """The chart of grades has eight bars from 0 to 7, and each leads to its rows."""
    html = read_page(client, "/table/grades/base?histogram=grade")
    chart = html.partition('aria-label="grade"')[2].partition("</svg>")[0]
    labels = re.findall(r'aria-label="grade (\w+): ([\d,]+)', chart)
    grades = [row["grade"] for row in made.table("grades/base").rows()]
    assert labels[:8] == [(str(n), str(grades.count(n))) for n in range(8)]
    most = max(set(grades), key=grades.count)
    link = re.search(rf'href="([^"]+)" aria-label="grade {most:g}:', chart)[1].replace("&amp;", "&")
    assert f"of {grades.count(most)} that match" in read_page(client, f"/table/grades/base{link}")


def test_shortcuts_count_their_rows(made, client):
    """Each chip has the number of rows that its condition selects."""
    html = read_page(client, "/table/grades/cold")
    chips = re.findall(r'<a class="chip \w+" href="(\?where=[^"]+)">([a-z0 ]+) (\d+)</a>', html)
    assert chips
    for link, word, count in chips:
        link = link.replace("&amp;", "&")
        assert f"of {count} that match" in read_page(client, f"/table/grades/cold{link}"), word


# ---------------------------------------------------------------------------------------------------------- conditions


@pytest.mark.parametrize(
    "where", ["grad < 3", "grade <", "attempt", "1; DROP TABLE x", "grade < (SELECT 1)", "x" * 1999]
)
def test_invalid_condition_keeps_its_text_and_all_rows(client, where):
    """The message is below the field, the field keeps its text, and the rows are shown without the condition."""
    from html import escape

    html = client.get("/table/grades/cold", params={"where": where}).text
    assert 'id="fault"' in html and "expected" in html and "1 to 24 of 24" in html
    assert f'value="{escape(where, quote=True)}"'.replace("&#x27;", "&#39;") in html


def test_condition_beyond_the_limits_ends_and_the_viewer_responds(made, client):
    """A condition that would take 12 GB is ended within seconds; the next one works."""
    read_page(client, "/table/problems/bench?where=year+IS+NULL")  # the child has started
    start = time.monotonic()
    html = read_page(client, "/table/problems/bench?where=LENGTH(LPAD(statement,1000000000,'x'))>1")
    assert time.monotonic() - start < 8  # 2 s, and a loaded machine
    assert "this filter takes more than" in html and "1 to 12 of 12" in html
    assert "1 to 12 of 12 that match" in read_page(client, "/table/problems/bench?where=year+IS+NULL")


def test_call_that_does_not_return_is_ended():
    """A call of ten seconds is ended after two, with a message, and another child serves the next call."""
    call = LimitedCall(time.sleep)
    with pytest.raises(SettingError, match="takes more than 2 s"):
        call(10)
    assert call(0) is None


@pytest.mark.parametrize(
    "address",
    [
        f"/table/grades/cold?page={'9' * 5000}", "/table/grades/cold?page=-1", "/table/grades/cold?page=x",
        "/table/grades/cold?where=" + "x" * 3000, "/table/nothing/x", "/table/grades/none", f"/table/grades/{'x' * 3000}",
        "/export/grades/cold/xlsx", "/export/grades/none/csv", "/proposals/sft/cold", "/problem/grades/cold/x",
        "/rollouts/grades/cold", "/disagreements?one=responses/cold&other=grades/cold", "/table/grades/cold%00",
    ],
)  # fmt: skip
def test_address_that_leads_nowhere_has_a_message(client, address):
    """4xx with one sentence, never a traceback."""
    html = read_page(client, address, 404)
    assert "expected" in html and "Traceback" not in html


@pytest.mark.parametrize(
    "setting", ["sort=none", "columns=none", "histogram=none", "histogram=opinions", "page=9999999"]
)
def test_unknown_columns_and_far_pages_are_shown_as_such(client, setting):
    """An unknown column is a message; a page beyond the last has no rows."""
    assert ("expected some of" in read_page(client, f"/table/grades/cold?{setting}")) == ("none" in setting)


# -------------------------------------------------------------------------------------------------------------- search


def test_search_finds_statements_texts_and_verdicts_in_any_case(made, client):
    """Rows match by the statement of their problem, by the text of their response, and by their verdict."""
    problem = made.table("problems/bench").rows()[2]
    words = re.escape(problem["statement"][:40]).replace("\\", "")
    html = client.get("/table/grades/cold", params={"q": words.upper()}).text
    assert "1 to 2 of 2 that match" in html
    response = next(row for row in made.table("responses/cold").rows() if row["text"])
    found = table_pages.find("grades/cold", made.results, PageSettings(q=response["text"][-9:]))
    assert response["response"] in [made.table("grades/cold").rows()[place]["response"] for place in found.places]
    verdict = next(row["verdict"] for row in made.table("grades/cold").rows() if row["verdict"])
    assert table_pages.find("grades/cold", made.results, PageSettings(q=verdict[3:20])).matching >= 1
    assert table_pages.find("grades/cold", made.results, PageSettings(q="(?x) no such text")).matching == 0


def test_search_and_condition_hold_together(made):
    """With both, rows match both; the search counts all rows if there was time for them."""
    found = table_pages.find("grades/cold", made.results, PageSettings(q="a", where="attempt = 1"))
    alone = table_pages.find("grades/cold", made.results, PageSettings(q="a"))
    assert 0 < found.matching <= alone.matching and alone.searched is None


def test_search_without_time_says_how_far_it_came(made, monkeypatch):
    """If the time is over after some rows, only these are searched, and their number is given. A file is refused."""
    monkeypatch.setattr(table_pages, "SEARCH_SECONDS", -1)
    monkeypatch.setattr(
        "proofmill.artifacts.tables.CheckedParquet.batches", lambda file, columns=None, size=0: short(file, columns)
    )
    assert table_pages.find("problems/train", made.results, PageSettings(q="a")).searched == 10
    with pytest.raises(SettingError, match=r"problems/train: there was time to search 10 of [\d,]+ rows; expected all"):
        table_pages.list_places(made.table("problems/train"), PageSettings(q="a"), table_pages.find)


def short(file, columns):
    """Yield the rows of a file, ten at a time."""
    import pyarrow.parquet as parquet

    yield from parquet.ParquetFile(file.path).iter_batches(10, columns=columns)


# -------------------------------------------------------------------------------------------------------------- export


def test_export_has_the_rows_that_match_with_all_columns(made, client):
    """CSV and JSONL have the same rows as the page, in the order of the table; lists are JSON in CSV."""
    rows = [row for row in made.table("grades/cold").rows() if row["attempt"] == 1]
    answer = client.get("/export/grades/cold/jsonl?where=attempt+%3D+1&sort=grade")
    assert [json.loads(line) for line in answer.text.splitlines()] == rows
    assert answer.headers["content-disposition"] == 'attachment; filename="grades-cold.jsonl"'
    table = list(csv.DictReader(io.StringIO(client.get("/export/grades/cold/csv?where=attempt+%3D+1").text)))
    assert [(row["response"], row["grade"] and float(row["grade"]), json.loads(row["opinions"])) for row in table] == [
        (row["response"], "" if row["grade"] is None else row["grade"], row["opinions"]) for row in rows
    ]
    assert len(client.get("/export/problems/train/jsonl").text.splitlines()) == made.table("problems/train").height


def test_export_of_an_invalid_condition_is_refused(client):
    """A file is never one of other rows than asked for."""
    assert "no column `grad`" in read_page(client, "/export/grades/cold/csv?where=grad=1", 404)


# ------------------------------------------------------------------------------------------------------------- facts


def test_facts_lead_to_parents_and_children(client):
    """The page links to the parents of the table, and to the tables that are made from it."""
    html = read_page(client, "/table/grades/cold")
    for name in ("responses/cold", "schemes/bench", "scores/small"):
        assert f'href="/table/{name}"' in html.partition("</dl>")[0], name


def test_unmade_table_says_why_and_from_what(made, client):
    """An artifact without a table has its reason and parents; while it runs, the outputs in its journal, headed so far."""
    html = read_page(client, "/table/grades/later")
    assert "never made" in html and "1 of 1 done" in html and "snakemake grades/later" in html and "So far" not in html
    table = made.table("grades/later")
    table.lock.parent.mkdir(parents=True, exist_ok=True)
    from proofmill.calls.model_requests import ModelOutput

    with locks.alone(table.lock, table.name), Journal(table.calls) as journal:
        journal.add(SimpleNamespace(key="a" * 32), ModelOutput("<points>3</points>", "end", "ok", tokens=12, cost=0.5))
        html = read_page(client, "/table/grades/later")
    assert "So far" in html and 'class="chip running"' in html and "$0.50" in html and "<h4>points</h4>" in html
