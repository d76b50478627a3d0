"""Draw docs/images/nano-scores.svg: the mean grade of each stage with its interval, from the table in README.md.

python docs/images/nano-scores.py
"""

import re
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
README = HERE.parents[1] / "README.md"
# A row of the table: the stage, `the model`, and up to four grades [low, high]. The second and the fourth are greedy.
GRADE = r" (?:([\d.]+) \[([\d.]+), ([\d.]+)\] )?\|"
ROW = re.compile(rf"^\| ([^|`]+) \(`([^`]+)`[^|]*\) \|{GRADE * 4}", re.MULTILINE)
PANELS = {"usual problems, greedy": 1, "longer than any demonstration, greedy": 3}  # title: index of the grade
MAX_POINTS = 7
LEFT, WIDTH, GAP, HEIGHT, TOP = 300, 270, 60, 30, 58  # pixels; WIDTH spans 0 to MAX_POINTS, HEIGHT is that of a row
TEXT, LINE, MAIN, STUDENT = "#7d8590", "#7d859055", "#2f81f7", "#d29922"  # visible on white and on black


def x(grade: float, panel: int) -> float:
    """Return the horizontal position of a grade in a panel."""
    return round(LEFT + panel * (WIDTH + GAP) + WIDTH * grade / MAX_POINTS, 1)


def draw(rows: list[tuple[str, ...]]) -> Iterator[str]:
    """Yield the lines of the SVG."""
    bottom = TOP + HEIGHT * len(rows)
    size = f'width="{x(MAX_POINTS, len(PANELS) - 1) + GAP:g}" height="{bottom + 12}"'
    yield f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="14" fill="{TEXT}">'
    yield "<title>Mean grade of nano by stage on held-out problems, with 95 % intervals</title>"
    for panel, title in enumerate(PANELS):
        yield f'<text x="{x(MAX_POINTS / 2, panel)}" y="18" text-anchor="middle">{title}</text>'
        for grade in range(MAX_POINTS + 1):
            yield f'<text x="{x(grade, panel)}" y="42" text-anchor="middle">{grade}</text>'
            yield f'<path d="M{x(grade, panel)} 50V{bottom}" stroke="{LINE}"/>'
    for number, (stage, model, *numbers) in enumerate(rows):
        y, color = TOP + HEIGHT * (number + 0.5), STUDENT if stage.startswith("student") else MAIN
        yield f'<text x="{LEFT - 14}" y="{y + 5:g}" text-anchor="end">{stage}</text>'
        for panel, place in enumerate(PANELS.values()):
            if not numbers[3 * place]:
                continue
            value, low, high = map(float, numbers[3 * place :][:3])
            start = x(0, panel)
            yield f'<path d="M{start} {y:g}H{x(value, panel)}" stroke="{color}" stroke-width="12" opacity="0.45"/>'
            yield f'<path d="M{x(low, panel)} {y:g}H{x(high, panel)}" stroke="{color}" stroke-width="4"/>'
            circle = f'cx="{x(value, panel)}" cy="{y:g}" r="5" fill="{color}"'
            yield f"<circle {circle}><title>{model}</title></circle>"
            yield f'<text x="{x(MAX_POINTS, panel) + 14}" y="{y + 5:g}">{value:.2f}</text>'
    yield "</svg>"


def picture() -> str:
    """Return the complete file."""
    return "\n".join(draw(ROW.findall(README.read_text(encoding="utf-8")))) + "\n"


if __name__ == "__main__":
    (HERE / "nano-scores.svg").write_text(picture(), encoding="utf-8")
