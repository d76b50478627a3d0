"""The pages about recipes in Chromium: width, policy, contrast, keys, lanes, and blocks that follow a running job."""

import re
import shutil
from itertools import pairwise

import pytest
import yaml

from browsing import chromium, chromium_path, opened, page_of, pictured, pressed, viewing
from mill import REFEREE, ROOT, SMALL, Mill
from proofmill.runtime import locks

pytestmark = pytest.mark.browser
RECIPE = {
    **SMALL,
    "scores/cold": {"grades": ["grades/cold"], "metrics": ["avg-at-k"], "max-unscored": 1},
    "grades/later": {"responses": "responses/cold", "grader": "final-answer"},
}
OTHERS = {f"other-{n}": {f"problems/other-{n}": {"source": "arithmetic", "rows": 4, "seed": n}} for n in range(39)}
ADDRESSES = ("/", "/recipe/r", "/scores", "/costs", "/search?q=bench", "/recipe/none")
STYLE = (ROOT / "src/proofmill/viewer/assets/style.css").read_text()


@pytest.fixture(scope="module")
def viewed(small, tmp_path_factory):
    """Start the viewer of a folder with 40 recipes, of which one has results; yield its chain and the address."""
    chromium_path()
    folder = tmp_path_factory.mktemp("recipes")
    shutil.copytree(small.results, folder / "results")
    made = Mill(folder / "results", **RECIPE)
    made.make("scores/cold")
    (folder / "config.yaml").write_text(yaml.safe_dump({"r": {"api/referee": REFEREE, **RECIPE}, **OTHERS}))
    with viewing(folder) as address:
        yield made, address


@pytest.fixture(scope="module")
def browser(viewed):
    with chromium() as started:
        yield started


@pytest.fixture
def page(browser, viewed):
    with page_of(browser) as page:
        page.goto(viewed[1])
        yield page


@pytest.mark.parametrize("width", [320, 390, 768, 1360])
def test_no_page_scrolls_sideways(browser, viewed, width):
    """At each width every page fits, only named boxes scroll, and the console stays empty."""
    with page_of(browser, "dark" if width == 390 else "light", width) as page:
        page.goto(viewed[1])
        for address in ADDRESSES:
            page.goto(viewed[1].split("/?")[0] + address)
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), address
            outside = "e => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest('.wide, .card, .skip')"
            assert not page.evaluate(
                f"[...document.querySelectorAll('main *')].filter({outside}).map(e => e.outerHTML)"
            )
            assert page.locator("[style]").count() == 0 and page.locator("h1").count() == 1
            assert not page.evaluate(
                "[...document.querySelectorAll('*')].some(e => e.getAttributeNames().some(n => n.startsWith('on')))"
            )
            if width in (390, 1360):
                pictured(page, f"{re.sub('[^a-z]+', '-', address).strip('-') or 'start'}-{width}")
        assert [line for line in page.said if "404" not in line] == []


def test_pages_load_few_files_of_their_own(browser, viewed):
    """A page asks for at most four files, all of this viewer, within the sizes of the design."""
    here, sizes = viewed[1].split("/?")[0], {}
    with page_of(browser) as page:
        page.goto(viewed[1])
        for address in ADDRESSES[:5]:
            asked = []
            page.on("response", lambda answer, asked=asked: asked.append(answer))
            page.goto(here + address)
            assert len(asked) <= 4 and all(answer.url.startswith(here) for answer in asked)
            sizes |= {answer.url.removeprefix(here): len(answer.body()) for answer in asked}
            assert page.locator("*").count() <= 1500
    assert sizes["/"] < 60_000 and sizes["/recipe/r"] < 60_000 and sizes["/assets/page.js"] < 6_000


def test_every_recipe_is_reached_from_the_start(page):
    """All 40 recipes are visible after the fold is opened, and none is clipped."""
    page.locator("details summary", has_text="39 recipes without results here").click()
    links = page.locator("a[href^='/recipe/']")
    assert {link.get_attribute("href") for link in links.all()} >= {
        "/recipe/r",
        *(f"/recipe/{name}" for name in OTHERS),
    }
    assert all(link.is_visible() and link.bounding_box()["width"] > 5 for link in links.all())


def _luminance(color: str) -> float:
    parts = [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(one: str, other: str) -> float:
    high, low = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("mode", [0, 1])
def test_colours_of_the_sheet_have_contrast(mode):
    """Text has 4.5 on its grounds, lines of charts and edges of fields 3, in both modes."""
    values = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", re.findall(r":root \{(.*?)\}", STYLE, re.DOTALL)[mode]))
    texts = [
        ("ink", "page"),
        ("ink", "panel"),
        ("quiet", "page"),
        ("quiet", "panel"),
        ("link", "page"),
        ("link", "panel"),
        ("link", "tint"),
    ]
    texts += [(name, ground) for name in ("done", "failed", "warn") for ground in ("page", f"{name}-tint")] + [
        ("kept", "page")
    ]
    for name, ground in texts:
        assert _contrast(values[name], values[ground]) >= 4.5, (name, ground)
    for name in ("s1", "s2", "s3", "s4", "edge", "gap"):
        assert _contrast(values[name], values["page"]) >= 3, name


def test_keys_reach_everything_on_the_start_page(page):
    """Tab begins with the skip link; `/` is the search; j and k move over recipes; g r goes to them; ? lists the keys."""
    pressed(page, "Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    pressed(page, "/")
    assert page.evaluate("document.activeElement.name") == "q"
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    assert page.locator("#keys").is_visible() and "search" in page.locator("#keys").inner_text()
    page.keyboard.press("Escape")
    assert not page.locator("#keys").is_visible()
    for key in "gr":
        page.keyboard.press(key)
    page.wait_for_url("**/#recipes")
    page.keyboard.press("j")
    assert page.evaluate("document.activeElement.textContent") == "r"
    page.keyboard.press("Enter")
    page.wait_for_url("**/recipe/r")
    assert page.said == []


def test_lanes_join_a_stage_with_its_parents(page, viewed):
    """Hovering or focusing a square draws lines to what it is made from, and a sentence counts them."""
    opened(page, viewed[1], "/recipe/r")
    squares = page.locator(".lanes a")
    assert squares.count() == len(RECIPE) and all(title for title in page.locator(".lanes a title").all_text_contents())
    square = page.locator(".lanes a[href='/table/grades/cold']")
    square.hover()
    said = page.locator("#lane-said").inner_text()
    assert said.startswith("grades/cold: made from 2 directly") and "1 are made from it" in said
    assert page.locator(".lanes path").count() == 3 and page.locator(".lanes .self").count() == 1
    page.mouse.move(5, 5)
    assert page.locator(".lanes path").count() == 0
    square.focus()
    assert page.locator(".lanes path").count() == 3


def test_running_job_changes_numbers_in_place(page, viewed):
    """Numbers of a running job change; focus, an open fold and the scroll position stay; a hidden tab asks nothing."""
    from playwright.sync_api import expect

    made, address = viewed
    table, asked = made.table("grades/later"), []
    page.on("request", lambda request: "/live" in request.url and asked.append(request.url))
    opened(page, address, "/")
    page.locator("details summary", has_text="recipes without").click()
    page.locator("a[href='/recipe/other-3']").focus()
    page.evaluate("scrollTo(0, 150)")
    try:
        with locks.alone(table.lock, table.name):
            for step in (4, 9):
                table.log.write_text(f"12:00:00  grades/later  {step} of 24 rows ({step} %), 0:09 left\n")
                expect(page.locator("main")).to_contain_text(f"{step} of 24 rows", timeout=8000)
        expect(page.locator("main")).not_to_contain_text("of 24 rows", timeout=8000)
    finally:
        table.log.unlink()
    assert page.evaluate("document.activeElement.textContent") == "other-3"
    assert page.locator("details[open] summary", has_text="recipes without").count() == 1
    assert page.evaluate("scrollY") >= 100 and page.locator("#said").inner_text() == "no job is running"
    page.evaluate(
        "Object.defineProperty(document, 'hidden', {get: () => true}); document.dispatchEvent(new Event('visibilitychange'))"
    )
    page.wait_for_timeout(300)
    before = len(asked)
    page.wait_for_timeout(4500)
    assert before > 2 and len(asked) == before and page.said == []


def test_bars_and_headings_are_named(page, viewed):
    """Headings go down without a gap, drawings have a label or are hidden, and fields, links and regions have names."""
    for address in ADDRESSES[:5]:
        opened(page, viewed[1], address)
        levels = page.evaluate(
            "[...document.querySelectorAll('h1, h2, h3')].filter(h => h.closest('main')).map(h => Number(h.tagName[1]))"
        )
        assert levels[0] == 1 and all(after - before <= 1 for before, after in pairwise(levels)), address
        bare = "s => !s.closest('[aria-hidden]') && !s.getAttribute('aria-label') && s.getAttribute('aria-hidden') !== 'true'"
        assert page.evaluate(f"[...document.querySelectorAll('svg')].filter({bare}).length") == 0, address
        unnamed = "a => !a.textContent.trim() && !a.getAttribute('aria-label')"
        assert page.evaluate(f"[...document.querySelectorAll('a, button')].filter({unnamed}).length") == 0, address
        ids = page.evaluate("[...document.querySelectorAll('[id]')].map(e => e.id)")
        assert len(ids) == len(set(ids)), address
        assert page.locator("[aria-current='page']").count() <= 1
