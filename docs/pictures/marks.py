"""Draws docs/pictures/marks.svg: the marks of each stage with their intervals, as the table of README.md has them.

python docs/pictures/marks.py
"""

import re
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
README = HERE.parents[1] / "README.md"
# One row of the table: what was done, `the model`, its mark at T=1 [low, high].
ROW = re.compile(r"^\| ([^|`]+) \(`([^`]+)`[^|]*\) \| ([\d.]+) \[([\d.]+), ([\d.]+)\] \|", re.MULTILINE)
OUT_OF = 7
LEFT, WIDTH, HEIGHT, TOP = 330, 350, 30, 34  # of the scale from 0 to OUT_OF, and of a row, in pixels
TEXT, LINE, OURS, STUDENT = "#7d8590", "#7d859055", "#2f81f7", "#d29922"  # are seen on white and on black


def x(mark: float) -> float:
    """Where a mark stands on the scale."""
    return round(LEFT + WIDTH * mark / OUT_OF, 1)


def drawn(rows: list[tuple[str, ...]]) -> Iterator[str]:
    """The lines of the SVG."""
    bottom = TOP + HEIGHT * len(rows)
    size = f'width="{x(OUT_OF) + 70:g}" height="{bottom + 12}"'
    yield f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="14" fill="{TEXT}">'
    yield "<title>Held-out marks of nano by stage, with 95 % intervals</title>"
    for mark in range(OUT_OF + 1):
        yield f'<text x="{x(mark)}" y="18" text-anchor="middle">{mark}</text>'
        yield f'<path d="M{x(mark)} 26V{bottom}" stroke="{LINE}"/>'
    for number, (what, model, *numbers) in enumerate(rows):
        value, low, high = map(float, numbers)
        y, colour = TOP + HEIGHT * (number + 0.5), STUDENT if what.startswith("student") else OURS
        yield f'<text x="{LEFT - 14}" y="{y + 5:g}" text-anchor="end">{what}</text>'
        yield f'<path d="M{x(0)} {y:g}H{x(value)}" stroke="{colour}" stroke-width="12" opacity="0.45"/>'
        yield f'<path d="M{x(low)} {y:g}H{x(high)}" stroke="{colour}" stroke-width="4"/>'
        yield f'<circle cx="{x(value)}" cy="{y:g}" r="5" fill="{colour}"><title>{model}</title></circle>'
        yield f'<text x="{x(OUT_OF) + 14}" y="{y + 5:g}">{value:.2f}</text>'
    yield "</svg>"


def picture() -> str:
    """The whole file."""
    return "\n".join(drawn(ROW.findall(README.read_text(encoding="utf-8")))) + "\n"


if __name__ == "__main__":
    (HERE / "marks.svg").write_text(picture(), encoding="utf-8")
