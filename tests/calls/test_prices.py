"""Prices of models that declare none, by data/prices.csv."""

import re
from datetime import date

import pytest

from mill import ROOT, Mill
from proofmill.calls import prices
from proofmill.config.identity import identity_of
from proofmill.planning.plan import RunPlan
from proofmill.schema.entries.declared import Api
from proofmill.schema.errors import RecipeError
from served import GOOD, server

ENTRIES = {
    "api/judge": {"id": "gpt-5.4-mini-2026-03-17", "expected-tokens": {"input": 1000, "output": 500}, "max-failed": 1},
    "problems/p": {"source": "arithmetic", "rows": 4},
    "schemes/p": {"problems": "problems/p", "model": "api/judge"},
}


def test_each_price_has_a_date_and_an_address():
    """A row has the date and source of its price; no model occurs twice; no id is a path that anyone may serve."""
    text = (ROOT / "data/prices.csv").read_text()
    rows = [line.split(",") for line in text.splitlines() if not line.startswith("#")][1:]
    assert len(rows) >= 15 and len({row[0] for row in rows}) == len(rows)
    for model, provider, read, cached, written, day, source in rows:
        assert provider and "/" not in model and re.match(r"https://\S+$", source)
        assert 0 < float(cached or read) <= float(read) <= float(written)
        assert date(2026, 1, 1) <= date.fromisoformat(day)


@pytest.mark.parametrize(
    ("model", "found"),
    [("gpt-5.4-mini", "gpt-5.4-mini"), ("gpt-5.4", "gpt-5.4"), ("claude-opus-4-5-20251101", "claude-opus-4-5"),
     ("gpt-5.4-micro", None), ("openai/gpt-5.4", None), ("my-model", None), ("claude-opus-4", None)],
)  # fmt: skip
def test_price_is_found_by_id_or_dated_version(model, found):
    """Another model, and the same one at a reseller, have no price of the provider's."""
    listed = prices.list_price(Api(id=model))
    assert (listed and listed.id) == found


def test_own_price_wins_and_a_missing_one_is_a_mistake():
    """A declared price counts, also `unknown`; without a declared or listed price the recipe is invalid."""
    assert prices.price_of(Api(id="gpt-5.4", price="unknown")) == "unknown"
    assert prices.price_of(Api(id="gpt-5.4", price={"input": 7.0, "output": 8.0})) == {"input": 7.0, "output": 8.0}
    with pytest.raises(RecipeError, match=r"`price` is missing, and data/prices\.csv has none for `my-model`"):
        Mill(ROOT, **{"api/mine": {"id": "my-model"}})


def test_plan_has_dollars_on_the_first_evening_and_the_stamp_has_the_price(tmp_path, monkeypatch):
    """Without `price`, 4 calls of 1,000 + 500 tokens cost $0.012 in the plan, the table and its stamp."""
    monkeypatch.setenv("PROOFMILL_JUDGE_URL", "http://127.0.0.1:9/v1")
    mill = Mill(tmp_path / "results", **ENTRIES)
    plan = RunPlan(mill.config, "schemes/p", mill.results)
    assert plan.totals.dollars.value == pytest.approx(4 * (1000 * 0.75 + 500 * 4.5) / 1e6)
    line = (
        "gpt-5.4-mini: $0.75 input, $0.075 cached input, $4.5 output per million tokens (https://developers.openai.com"
    )
    assert any(line in text for text in plan.lines())
    usage = {"prompt_tokens": 1000, "completion_tokens": 2}
    with server(lambda *_: (200, {**GOOD, "usage": usage}, {})) as (url, _):
        monkeypatch.setenv("PROOFMILL_JUDGE_URL", url)
        table = mill.make("problems/p", "schemes/p")
    assert table.stamp["cost"] == pytest.approx(4 * (1000 * 0.75 + 2 * 4.5) / 1e6)
    assert line in table.stamp["prices"]["api/judge"] and "2026-" in table.stamp["prices"]["api/judge"]


def test_newer_price_makes_no_table_stale(monkeypatch):
    """data/prices.csv does not affect the fingerprint of an entry."""
    mill = Mill(ROOT, **ENTRIES)
    before = identity_of(mill.config.entries["schemes/p"], mill.config.declared)
    dearer = [prices.Listed("gpt-5.4-mini", {"input": 99.0, "output": 99.0}, "2027-01-01", "https://x")]
    monkeypatch.setattr(prices, "_rows", lambda: dearer)
    assert prices.price_of(mill.config.declared["api/judge"])["input"] == 99.0
    assert identity_of(mill.config.entries["schemes/p"], mill.config.declared) == before
