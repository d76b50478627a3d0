"""Curves in Chromium: hair, zoom, keys and runs of a training's page, its dark mode, its width, and a job that runs."""

import io
import json
import time

import numpy as np
import pytest
import yaml

from browsing import chromium, chromium_path, opened, page_of, viewing
from logged_training import train
from proofmill.artifacts.tables import Table
from proofmill.runtime import locks
from proofmill.schema.columns import COLUMNS

pytestmark = [pytest.mark.browser, pytest.mark.sampled(0, "light")]
TWO = "/training/grpo/short?with=grpo/bare"
RECIPE = {
    "problems/x": {"source": "arithmetic", "rows": 4},
    "base/x": {"source": "scratch", "problems": "problems/x"},
    "grpo/new": {
        **{"model": "base/x", "problems": "problems/x", "grader": "arithmetic", "rewards": {"grade": 1}},
        **{"unscored": "drop", "steps": 40},
    },
}


@pytest.fixture(scope="module")
def viewed(tmp_path_factory):
    """Write trainings and scores, and run `proofmill view` on them; yield the results folder and the address."""
    chromium_path()
    folder = tmp_path_factory.mktemp("curves")
    for name, steps in (("short", 20), ("long", 3000)):
        train(folder / "results", f"grpo/{name}", steps)
    train(folder / "results", "grpo/bare", 30, rollouts=False, evaluate=False)
    blank = {
        **dict.fromkeys(COLUMNS["scores"]),
        "problems": "problems/p",
        "grader": "g",
        "sampling": "s",
        "slice": "all",
    }
    rows = [
        {**blank, "model": model, "metric": f"pass@{k}", "value": k / 9, "low": 0.1, "high": 0.9} for model in "mn" for k in (1, 2, 4, 8)
    ]  # fmt: skip
    stamp = {"entry": {}, "fingerprint": "f", "parents": {}, "counts": {}}
    Table("scores/x", folder / "results").write(rows, stamp)
    (folder / "config.yaml").write_text(yaml.safe_dump({"r": RECIPE}))
    with viewing(folder) as address:
        yield folder / "results", address


@pytest.fixture(scope="module")
def browser(viewed):
    with chromium() as started:
        yield started


@pytest.fixture
def page(browser, viewed):
    with page_of(browser, width=1360) as page:
        page.goto(viewed[1])
        yield page
        assert page.said == []


def at(page, share, metric="grade"):
    """Return the point of a panel at a share of its axis, on the screen."""
    plot = page.locator(f"figure[data-metric='{metric}'] svg")
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    return box["x"] + box["width"] * (44 + 350 * share) / 400, box["y"] + box["height"] / 2


def until(page, expression, seconds=10):
    """Wait until an expression is true. Playwright's own waiting evaluates texts, which the policy of the pages forbids."""
    end = time.monotonic() + seconds
    while not page.evaluate(expression):
        assert time.monotonic() < end, expression
        time.sleep(0.05)


def values(page):
    return page.locator("figure output").all_inner_texts()


def test_hair_shows_one_step_in_all_panels(page, viewed):
    """Values of every panel that differ by step change, and the step is said."""
    opened(page, viewed[1], TWO)
    until(page, "document.querySelector('#at').textContent.includes('last')")
    before = values(page)
    page.mouse.move(*at(page, 0.38))
    until(page, "document.querySelector('#at').textContent.includes('step 11')")  # of 30
    after = values(page)
    assert page.locator("line.hair").count() == len(after)
    changed = [one != other for one, other in zip(before, after, strict=True)]
    assert sum(changed) >= len(changed) - 3, "but constants"
    assert "Rollouts of step 11" in page.locator("#rolled").inner_text()


def test_range_is_zoomed_in_all_panels_and_is_in_the_address(page, viewed):
    """Dragging a range shows finer points of a long training; the address leads there, and a button back."""
    opened(page, viewed[1], "/training/grpo/long")
    assert page.locator("#reset").is_hidden()
    page.mouse.move(*at(page, 0.40))
    page.mouse.down()
    page.mouse.move(*at(page, 0.44), steps=4)
    assert page.locator("rect.brush").count() == page.locator("figure[data-metric]").count()
    page.mouse.up()
    until(
        page,
        "data.panels[0].lines[0].step.length < 160 && data.panels[0].lines[0].step[1] - data.panels[0].lines[0].step[0] === 1",
    )
    assert page.locator("#reset").is_visible() and "from=12" in page.url
    page.reload()
    assert page.evaluate("data.from") == pytest.approx(1200, abs=20)
    page.click("#reset")
    until(page, "data.from === 0 && data.to === 3000")
    assert page.locator("#reset").is_hidden() and "from" not in page.url


def test_hidden_run_has_no_paths(page, viewed):
    """An unticked run leaves all panels, and returns."""
    opened(page, viewed[1], TWO)
    assert page.locator("svg.plot path.c2").count() > 0
    page.uncheck("input[data-run='grpo/bare']")
    until(page, "document.querySelectorAll('svg.plot path.c2').length === 0")
    assert page.locator("svg.plot path.c1").count() > 0 and "off=grpo%2Fbare" in page.url
    page.check("input[data-run='grpo/bare']")
    until(page, "document.querySelectorAll('svg.plot path.c2').length > 0")


def test_panel_is_moved_by_keys(page, viewed):
    """Arrows change the step, plus zooms, 0 resets, and Enter opens the rollouts of the step."""
    opened(page, viewed[1], "/training/grpo/short")
    page.locator("figure[data-metric='grade']").focus()
    page.keyboard.press("ArrowLeft")
    until(page, "document.querySelector('#at').textContent.startsWith('step 19: ')")
    page.keyboard.press("+")
    until(page, "!document.querySelector('#reset').hidden && data.from > 0")
    page.keyboard.press("0")
    until(page, "document.querySelector('#reset').hidden && data.from === 0")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    until(page, "document.querySelector('#at').textContent.startsWith('step 18')")
    page.keyboard.press("Enter")
    page.wait_for_url("**/rollouts/grpo/short?step=18")


def test_click_on_a_point_opens_its_rollouts(page, viewed):
    """The point under the hair is a way to the rollouts of its step."""
    opened(page, viewed[1], "/training/grpo/short")
    page.mouse.move(*at(page, 0.5))
    circle = page.locator("figure[data-metric='grade'] circle.hit")
    circle.wait_for(state="attached")
    box = circle.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.wait_for_timeout(100)
    page.mouse.down()
    page.mouse.up()
    page.wait_for_url("**/rollouts/grpo/short?step=10")


def test_smoothing_axis_and_added_runs_are_in_the_address(page, viewed):
    """Each choice changes the picture and the address, from which the page opens as it was."""
    opened(page, viewed[1], "/training/grpo/long")
    line = "document.querySelector(\"figure[data-metric='loss'] path.line\").getAttribute('d')"
    first = page.evaluate(line)
    page.locator("input[name=smooth]").fill("0.95")
    until(page, f"{line} !== {json.dumps(first)}")
    page.select_option("select[name=x]", "tokens")
    until(page, "data.to > 200000")
    page.select_option("select[name=with]", "grpo/short")
    page.wait_for_url("**with=grpo*")
    assert page.locator("input[data-run]").count() == 2 and "smooth=0.95" in page.url and "x=tokens" in page.url
    assert page.locator("input[name=smooth]").input_value() == "0.95" and page.evaluate("data.to") > 200000
    assert page.locator("select[name=x]").input_value() == "tokens"


def test_lines_are_there_without_a_script(browser, viewed):
    """The server draws all panels."""
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(viewed[1])
    opened(page, viewed[1], TWO)
    figures = page.locator("figure[data-metric]")
    assert figures.count() > 6
    for n in range(figures.count()):
        assert figures.nth(n).locator("path.line").count() >= 1
    assert page.locator("noscript button").count() == 1
    context.close()


@pytest.mark.parametrize("path", [TWO, "/rollouts/grpo/short", "/rollout/grpo/short/1"])
def test_page_fits_any_width(browser, viewed, path):
    """Nothing is wider than the window, but for what has a box that scrolls, and nothing is asked of elsewhere."""
    for width in (320, 390, 768, 1360):
        with page_of(browser, width=width) as page:
            requests = []
            page.on("request", lambda request: requests.append(request.url))  # noqa: B023
            page.goto(viewed[1])
            opened(page, viewed[1], path)
            page.wait_for_load_state("networkidle")
            for summary in page.locator("main summary").all():
                summary.click()
            assert page.evaluate("document.documentElement.scrollWidth") <= width, (path, width)
            outside = """[...document.querySelectorAll('main *')].filter(e => e.getBoundingClientRect().right > innerWidth + 1
                && !e.closest('.scroll, .card, pre, svg')).map(e => e.outerHTML.slice(0, 100))"""
            assert page.evaluate(outside) == []
            assert page.locator("[style]").count() == 0
            assert all(url.startswith(viewed[1].split("/?")[0]) for url in requests) and page.said == []


def test_dark_page_has_no_white_plate(browser, viewed):
    """Curves follow the color scheme."""
    from PIL import Image

    light = {}
    for scheme in ("light", "dark"):
        with page_of(browser, scheme, 1360) as page:
            page.goto(viewed[1])
            opened(page, viewed[1], TWO)
            page.wait_for_load_state("networkidle")
            picture = Image.open(io.BytesIO(page.screenshot(full_page=True))).convert("L")
            light[scheme] = float(np.asarray(picture).mean()) / 255
    assert light["dark"] < 0.2 and light["light"] > 0.8


def test_running_job_adds_points_while_a_zoom_stays(browser, viewed):
    """New steps of the log arrive without a reload, which would lose the focus."""
    table = Table("grpo/new", viewed[0])
    table.log.parent.mkdir(parents=True, exist_ok=True)
    lines = "\n2026-11-22 10:00:00 UTC on vm\n" + "".join(
        f"10:{n:02d}:00  grpo/new  step {n} of 40, loss {0.5 / n:.3f}, 3 steps/min, 12:00 left\n" for n in range(1, 9)
    )
    table.log.write_text(lines)
    table.scratch.mkdir(parents=True, exist_ok=True)
    with locks.alone(table.lock, table.name), page_of(browser) as page:
        page.goto(viewed[1])
        opened(page, viewed[1], "/training/grpo/new?from=2&to=6")
        assert "so far: step 8 of 40" in page.locator(".head").inner_text()
        page.locator("figure[data-metric='loss']").focus()
        with open(table.log, "a") as file:
            file.write("10:09:00  grpo/new  step 12 of 40, loss 0.031, 3 steps/min, 12:00 left\n")
        until(page, "document.querySelector('#state').textContent.includes('step 12')", 15)
        assert page.evaluate("[data.from, data.to]") == [2, 6]
        assert page.evaluate("document.activeElement.dataset.metric") == "loss"
