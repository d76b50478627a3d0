"""`proofmill show ARTIFACT`: its facts, its rows by id or condition, full texts, and JSON."""

import json
import subprocess
import sys

import pytest

from mill import Mill
from proofmill import __main__ as command
from proofmill.analysis import show_artifact
from proofmill.artifacts.checked_parquet import CheckedParquet
from proofmill.artifacts.stamps import new_stamp
from proofmill.artifacts.tables import Table
from proofmill.schema.columns import COLUMNS
from proofmill.schema.errors import SettingError


def shown(monkeypatch, capsys, small, *arguments):
    monkeypatch.setattr(sys, "argv", ["proofmill", "show", *arguments, "--results", str(small.results)])
    command.main()
    return capsys.readouterr().out


def test_facts_come_from_the_stamp_alone(small, monkeypatch):
    """Own fields, parents, outcomes and columns; not one row is read."""

    def refuse(*_):
        raise AssertionError("rows were read")

    monkeypatch.setattr(CheckedParquet, "batches", refuse)
    table = small.table("grades/cold")
    said = list(show_artifact.facts(table))
    assert said[0].startswith("grades/cold: 24 rows, ")
    assert "  responses: responses/cold" in said and "  schemes: schemes/bench" in said
    assert not any(line.startswith("  prompt:") for line in said)  # it is at its default
    assert any(line.startswith("  built from responses/cold") for line in said)
    assert any(line.startswith("  calls: ") and line.endswith("cost $0.0000") for line in said)
    assert said[-1].startswith("  columns: response, problem, attempt, grade")


def test_rows_are_those_that_the_condition_is_true_of(small):
    """SQL over the columns; the id is always shown, and no more rows than were asked for."""
    table = small.table("grades/cold")
    every = table.rows("response", "attempt")
    found = show_artifact.rows(table, where="attempt = 1", columns=["attempt"], most=5)
    assert found.columns == ["response", "attempt"]
    assert found.rows() == [(row["response"], 1) for row in every if row["attempt"] == 1][:5]


def test_row_is_found_by_the_beginning_of_its_id(small):
    """A full id or a prefix; a training's row, which has none, by its number."""
    table = small.table("responses/cold")
    first = table.rows()[3]
    (row,) = show_artifact.rows(table, first["response"][:12]).to_dicts()
    assert row == first
    (step,) = show_artifact.rows(small.table("sft/cold"), "2").to_dicts()
    assert step == {"number": 2, **small.table("sft/cold").rows()[2]}


def test_exact_id_is_found_among_longer_ones(tmp_path):
    """`t20` is a row although `t200` begins with it."""
    rows = "".join(f'{{"nr": "t{number}", "q": "What is {number}?"}}\n' for number in (2, 20, 200))
    (tmp_path / "p.jsonl").write_text(rows)
    entry = {"source": "table", "path": str(tmp_path / "p.jsonl"), "columns": {"problem": "nr", "statement": "q"}}
    table = Mill(tmp_path / "results", **{"problems/p": entry}).make("problems/p")
    (row,) = show_artifact.rows(table, "t20").to_dicts()
    assert row["problem"] == "t20"
    with pytest.raises(SettingError, match="several rows have this prefix"):
        show_artifact.rows(table, "t")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"row": "none"}, "no row has this id; expected a `response`"),
        ({"row": ""}, r"several rows have this prefix, e\.g\. \w+ and \w+; expected"),
        ({"columns": ["grad"]}, "has no column `grad`; expected some of .*Did you mean `grade`"),
        (
            {"where": "grad < 3"},
            "--where 'grad < 3': no column `grad`; expected some of .*Did you mean `grade`",
        ),
        ({"where": "grade <"}, "expected a condition in SQL"),
        ({"where": "attempt"}, "expected a condition"),
    ],
)
def test_mistakes_name_the_remedy(small, arguments, said):
    """An id, a column or an expression that is not, each with what there is."""
    with pytest.raises(SettingError, match=said):
        show_artifact.rows(small.table("grades/cold"), **arguments)


def test_command_shows_a_table_a_page_and_json(small, monkeypatch, capsys):
    """Rows as a table, one row in full, and both as JSON."""
    ident = small.table("responses/cold").rows("response")[0]["response"]
    table = shown(monkeypatch, capsys, small, "responses/cold", "--columns", "stop_reason", "--rows", "2")
    assert table.startswith("| response ") and table.count("\n") == 4
    page = shown(monkeypatch, capsys, small, "responses/cold", "--row", ident)
    assert f"response          {ident}" in page and "steps             –" in page
    (data,) = json.loads(shown(monkeypatch, capsys, small, "responses/cold", "--row", ident, "--json"))["artifacts"]
    assert (data["name"], data["rows_n"], data["rows"][0]["response"]) == ("responses/cold", 24, ident)
    assert data["stamp"]["entry"]["model"] == "sft/cold"
    (data,) = json.loads(shown(monkeypatch, capsys, small, "responses/cold", "--json"))["artifacts"]
    assert data["built"] and "rows" not in data


def test_artifact_is_shown_with_its_place(small, monkeypatch, capsys):
    """Facts, and where it lies; of one that was never made, that."""
    said = shown(monkeypatch, capsys, small, "responses/cold").splitlines()
    assert said[0].startswith("responses/cold: 24 rows, ") and said[-1].startswith("1 of 1 tables are in ")
    assert (
        shown(monkeypatch, capsys, small, "grades/round-2").splitlines()[-1].startswith("Not built yet: grades/round-2")
    )


def test_rows_of_a_recipe_are_refused(small, monkeypatch):
    """Rows are of one artifact."""
    monkeypatch.setattr(sys, "argv", ["proofmill", "show", "nano", "--rows", "3", "--results", str(small.results)])
    with pytest.raises(SystemExit, match="need one artifact; expected one <kind>/<name>"):
        command.main()


def test_long_texts_are_cut_in_a_table_and_whole_on_a_page(small):
    """Sixty characters in a table; every line on its own in a single row."""
    table = small.table("schemes/bench")
    row = table.rows()[0]
    assert max(map(len, row["scheme"].splitlines())) > 20
    assert row["scheme"] not in show_artifact.as_table(show_artifact.rows(table, columns=["scheme"]))
    page = list(show_artifact.as_page(row))
    assert all(f"    {line}" in page for line in row["scheme"].splitlines())


@pytest.mark.parametrize("words", ["show {} --row p", "show {} --columns statement tags", "why {} --row p"])
def test_control_sequences_of_a_text_are_escaped(tmp_path, monkeypatch, capsys, words):
    """A terminal neither obeys them nor shows text in another order."""
    text = "\x1b[2JProve\xa0it\x9b31m \u202eneve\u202c\rnow."
    mill = Mill(tmp_path, **{"problems/p": {"source": "arithmetic", "rows": 1}})
    row = {**mill.make("problems/p").rows()[0], "problem": "p", "statement": text, "tags": [text]}
    mill.table("problems/p").write([row], dict(mill.table("problems/p").stamp))
    line = ["proofmill", *words.format("problems/p").split(), "--results", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", line)
    command.main()
    said = capsys.readouterr().out
    assert "\\x1b[2JProve" in said and "\\u202eneve" in said
    assert all(c == "\n" or c == "\xa0" or c.isprintable() for c in said)


def test_first_rows_of_a_long_table_end_the_command_well(tmp_path):
    """Of 60,000 rows the first ones that a condition is true of: exit status 0, although the rest of the file is unread."""
    blank = dict.fromkeys(COLUMNS["grades"])
    rows = (
        {**blank, "response": f"r{n}", "tokens": n % 7, "stop_reason": "end", "reason": "ok"} for n in range(60_000)
    )
    stamp = new_stamp("grades/long", '{"entry": {}}', "f", {}, {})
    Table("grades/long", tmp_path).write(rows, stamp)
    command = [sys.executable, "-m", "proofmill", "show", "grades/long", "--results", str(tmp_path), "--json"]
    for _ in range(3):
        done = subprocess.run([*command, "--where", "tokens = 6", "--rows", "2"], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
        assert [row["response"] for row in json.loads(done.stdout)["artifacts"][0]["rows"]] == ["r6", "r13"]


def test_numbers_of_rows_are_columns(small):
    """Of a kind without ids the number is the id: in conditions, among the columns, and for one row."""
    table = small.table("sft/cold")
    assert show_artifact.rows(table, where="number >= 3", columns=["step"], most=2)["number"].to_list() == [3, 4]
    assert show_artifact.rows(table, row="3").drop("number").to_dicts() == [table.rows()[3]]
