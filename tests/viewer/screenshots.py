"""Take pictures of every page of the viewer at 1360 and 390 pixels, light and dark: build/screenshots/*.png.

python tests/viewer/screenshots.py FOLDER

FOLDER has a configuration and results, such as a clone in which `make run` has finished.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "fixtures"))

from browsing import chromium, page_of, pictured, viewing
from proofmill.artifacts.tables import Table
from proofmill.schema.kinds import KINDS

WIDTHS = (1360, 390)


def addresses(results: Path) -> Iterator[tuple[str, str]]:
    """Yield name and path of each page: those of all recipes, then a page of each kind, of a row and of a problem."""
    yield from {"start": "/", "scores": "/scores", "costs": "/costs", "search": "/search?q=bench"}.items()
    yield from {"recipe": "/recipe/nano", "disagreements": "/disagreements", "missing": "/table/grades/none"}.items()
    yield from {"models": "/compare", "compare": "/compare?a=grpo/nano&b=sft/rejection"}.items()
    for kind in KINDS:
        made = sorted(results.glob(f"{kind}/*.parquet"), key=lambda path: -path.stat().st_mtime)
        for path in made[:1]:
            yield f"table-{kind}", f"/table/{kind}/{path.stem}"
            if kind in ("problems", "responses", "grades"):
                (row,) = Table(f"{kind}/{path.stem}", results).at([0]).to_dicts()
                yield f"row-{kind}", f"/row/{kind}/{path.stem}/{row[KINDS[kind].key]}"
            if kind == "problems":
                yield "problem", f"/problem/{kind}/{path.stem}/{row['problem']}"
            if kind == "grades":
                yield "filtered", f"/table/{kind}/{path.stem}?where=grade+%3C+3&histogram=grade"
                yield "fault", f"/table/{kind}/{path.stem}?where=grad+%3C+3"
                yield "proposals", f"/proposals/{kind}/{path.stem}"
            if kind == "grpo":
                yield "rollouts", f"/rollouts/{kind}/{path.stem}"


def main(folder: Path) -> None:
    """Take all pictures."""
    with viewing(folder) as address, chromium() as browser:
        for width in WIDTHS:
            for scheme in ("light", "dark"):
                with page_of(browser, scheme, width) as page:
                    page.goto(address)
                    for name, path in addresses(folder / "results"):
                        page.goto(address.split("/?")[0] + path)
                        pictured(page, f"{name}-{width}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
