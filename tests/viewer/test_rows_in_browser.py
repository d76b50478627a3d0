"""Pages of tables, rows, problems and comparisons in Chromium: widths, keys, charts, errors, and contrast."""

import re

import pytest
import yaml

from browsing import chromium, chromium_path, opened, page_of, pressed, viewing
from mill import REFEREE
from project import ROOT
from viewed import VIEWED, make_viewed

pytestmark = [pytest.mark.browser, pytest.mark.sampled(0, "1360", "390")]
OUTSIDE = """() => [...document.querySelectorAll('main *')].filter(one =>
    one.getBoundingClientRect().right > innerWidth + 1 && !one.closest('[role=region], .proof, .statement, .verdict')
    && getComputedStyle(one).position !== 'absolute').map(one => one.outerHTML.slice(0, 200))"""


@pytest.fixture(scope="module")
def viewed(tmp_path_factory):
    """Build the chain and run `proofmill view` on it; yield the chain and the address."""
    chromium_path()
    folder = tmp_path_factory.mktemp("viewed")
    made = make_viewed(folder / "results")
    (folder / "config.yaml").write_text(yaml.safe_dump({"r": {"api/referee": REFEREE, **VIEWED}}))
    with viewing(folder) as address:
        yield made, address


@pytest.fixture(scope="module")
def browser(viewed):
    with chromium() as started:
        yield started


@pytest.fixture
def page(browser, viewed):
    with page_of(browser, width=1360) as page:
        page.goto(viewed[1])
        page.said.clear()
        yield page


def addresses(made) -> list[str]:
    """Return an address of each page about rows."""
    grade = made.table("grades/cold").rows()[5]
    return [
        *(f"/table/{name}" for name in VIEWED if name != "grades/later"),
        "/table/grades/cold?where=grad+%3C+3", "/table/grades/cold?q=residue", "/table/grades/later",
        f"/row/grades/cold/{grade['response']}", f"/row/schemes/bench/{grade['problem']}", "/row/scores/small/0",
        f"/problem/problems/bench/{grade['problem']}?show=grades/cold&show=grades/right", "/proposals/grades/cold",
        "/compare", "/compare?a=sft/cold&b=base/tiny&on=problems/bench", "/disagreements?one=grades/cold&other=grades/program",
    ]  # fmt: skip


@pytest.mark.parametrize("width", [320, 390, 768, 1360])
def test_pages_fit_their_width_with_an_empty_console(browser, viewed, width):
    """No page scrolls sideways, no element outside of a named box ends right of the window, nothing is inline or foreign."""
    with page_of(browser, width=width) as page:
        page.goto(viewed[1])
        page.said.clear()
        requests = []
        page.on("request", lambda request: requests.append(request.url))
        for address in addresses(viewed[0]):
            opened(page, viewed[1], address)
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), address
            assert page.evaluate(OUTSIDE) == [], address
            assert page.locator("[style]").count() == 0, address
            assert not re.search(r"<[^>]+ on\w+=", page.content()), address
        assert page.said == []
        assert all(url.startswith(viewed[1].split("/?")[0]) for url in requests)


def test_keys_lead_through_rows(page, viewed):
    """Tab reaches skip link, pages and field; `/` the filter; `j` twice and Enter open the second row; arrows the next."""
    opened(page, viewed[1], "/table/grades/cold")
    seen = []
    for _ in range(20):
        page.keyboard.press("Tab")
        seen.append(
            page.evaluate(
                "document.activeElement.className || document.activeElement.name || document.activeElement.tagName"
            )
        )
    assert seen[0] == "skip" and "q" in seen and page.locator("nav a").count() == 5
    page.keyboard.press("Escape")
    pressed(page, "/")
    assert page.evaluate("document.activeElement.name") == "where"
    page.keyboard.press("Escape")
    second = page.locator("tbody a[data-row]").nth(1).get_attribute("href")
    pressed(page, "j")
    pressed(page, "j")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**{second}")
    following = page.locator("a[rel=prev], a[rel=next]").first.get_attribute("href")
    pressed(page, "ArrowLeft" if "previous" in page.locator(".paging a").first.inner_text() else "ArrowRight")
    page.wait_for_url(f"**{following}")


def test_keys_lead_through_attempts(page, viewed):
    """On a problem, `l` and `h` move between the attempts, and `j` opens the next problem."""
    problem = viewed[0].table("problems/bench").rows()[0]["problem"]
    opened(page, viewed[1], f"/problem/problems/bench/{problem}?show=grades/base")
    ids = [article.get_attribute("id") for article in page.locator("article").all()]
    for key, place in (("l", 0), ("l", 1), ("h", 0)):
        pressed(page, key)
        page.wait_for_url(f"**#{ids[place]}", timeout=10_000)  # a browser changes the address a moment later
    first = page.url
    pressed(page, "j")
    page.wait_for_url(lambda url: "/problem/" in url and problem not in url and url != first)
    assert "Problem 2 of 12" in page.locator("h1").inner_text()


def test_bar_of_a_histogram_leaves_its_rows(page, viewed):
    """The bars of grades are 0 to 7, the first split by empty; a click on bar 4 leaves exactly its rows."""
    opened(page, viewed[1], "/table/grades/cold?histogram=grade")
    bars = page.locator("svg.hist[aria-label=grade] a")
    labels = [bars.nth(n).get_attribute("aria-label") for n in range(8)]
    assert [label.split(":")[0] for label in labels] == [f"grade {n}" for n in range(8)]
    assert "1 of them empty" in labels[0] and bars.nth(0).locator("rect.gap").count() == 1
    count = labels[4].split(": ")[1]
    bars.nth(4).click()
    page.wait_for_url("**where=grade**")
    assert page.locator("tbody a[data-row]").count() == int(count) > 0
    assert page.locator("td").first.inner_text() and not re.match(
        "[0-9a-f]{16}", page.locator("tbody td").first.inner_text()
    )


def test_condition_keeps_its_text_below_the_message(page, viewed):
    """A condition with an error keeps its text; one beyond the limits ends, and the next page is shown."""
    for where in ("grad < 3", "LENGTH(LPAD(verdict, 1000000000, 'x')) > 1"):
        opened(page, viewed[1], "/table/grades/cold")
        page.fill("input[name=where]", where)
        page.press("input[name=where]", "Enter")
        page.wait_for_url("**where=**")
        assert page.input_value("input[name=where]") == where and page.locator("[role=alert]").count() == 1
        assert page.locator("tbody a[data-row]").count() == 24
    opened(page, viewed[1], "/table/grades/cold?where=attempt+%3D+0")
    assert page.locator("tbody a[data-row]").count() == 12


def _luminance(color: str) -> float:
    parts = [int(color[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("place", [0, 1], ids=["light", "dark"])
def test_colors_of_texts_and_bars_have_contrast(place):
    """Texts have 4.5 on page, panel and their own tint, parts of bars and edges 3, in both modes."""
    sheet = (ROOT / "src/proofmill/viewer/assets/style.css").read_text()
    colors = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", re.findall(r":root \{(.*?)\}", sheet, re.DOTALL)[place]))

    def contrast(one: str, other: str) -> float:
        high, low = sorted((_luminance(colors[one]), _luminance(colors[other])), reverse=True)
        return (high + 0.05) / (low + 0.05)

    texts = [(text, ground) for text in ("ink", "quiet", "link") for ground in ("page", "panel")]
    texts += [("done", "page"), ("failed", "page"), ("warn", "page"), ("kept", "page")]
    texts += [
        ("done", "done-tint"),
        ("failed", "failed-tint"),
        ("warn", "warn-tint"),
        ("link", "tint"),
        ("ink", "tint"),
        ("ink", "warn-tint"),
    ]
    assert not [pair for pair in texts if contrast(*pair) < 4.5]
    assert not [name for name in ("edge", "gap", "s1", "s2", "failed") if contrast(name, "page") < 3]
