"""Draw the scores of each stage with their intervals, smol-scores.svg and nano-scores.svg, from the tables in README.md.

python docs/images/scores.py
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
README = HERE.parents[1] / "README.md"
LEFT, WIDTH, GAP, HEIGHT, TOP = 330, 250, 60, 30, 58  # pixels; WIDTH spans 0 to the maximum, HEIGHT is that of a row
TEXT, LINE, MAIN, OTHER = "#7d8590", "#7d859055", "#2f81f7", "#d29922"  # visible on white and on black
# A row of a table: the stage, `the model`, and scores [low, high] or nothing.
STAGE = re.compile(r"^([^|`]+) \(`([^`]+)`[^|]*\)$")
SCORE = re.compile(r"^([\d.]+) \[([\d.]+), ([\d.]+)\]$")


@dataclass(frozen=True)
class Picture:
    """A picture: its table in README.md, its title, columns of the table by panel, and what a panel spans."""

    block: str
    title: str
    panels: dict[str, int]
    maximum: int
    ticks: int
    others: str  # stages that begin with this have the other color

    def x(self, score: float, panel: int) -> float:
        """Return the horizontal position of a score in a panel."""
        return round(LEFT + panel * (WIDTH + GAP) + WIDTH * score / self.maximum, 1)

    def draw(self) -> Iterator[str]:
        """Yield the lines of the SVG."""
        rows = list(self.rows())
        bottom = TOP + HEIGHT * len(rows)
        size = f'width="{self.x(self.maximum, len(self.panels) - 1) + GAP:g}" height="{bottom + 12}"'
        yield f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="14" fill="{TEXT}">'
        yield f"<title>{self.title}</title>"
        for panel, title in enumerate(self.panels):
            yield f'<text x="{self.x(self.maximum / 2, panel)}" y="18" text-anchor="middle">{title}</text>'
            for tick in range(self.ticks + 1):
                score = self.maximum * tick / self.ticks
                yield f'<text x="{self.x(score, panel)}" y="42" text-anchor="middle">{score:g}</text>'
                yield f'<path d="M{self.x(score, panel)} 50V{bottom}" stroke="{LINE}"/>'
        for number, (stage, model, cells) in enumerate(rows):
            y, color = TOP + HEIGHT * (number + 0.5), OTHER if stage.startswith(self.others) else MAIN
            yield f'<text x="{LEFT - 14}" y="{y + 5:g}" text-anchor="end">{stage}</text>'
            for panel, column in enumerate(self.panels.values()):
                if not (match := SCORE.match(cells[column])):
                    continue
                value, low, high = map(float, match.groups())
                bar = f"M{self.x(0, panel)} {y:g}H{self.x(value, panel)}"
                yield f'<path d="{bar}" stroke="{color}" stroke-width="12" opacity="0.45"/>'
                interval = f"M{self.x(low, panel)} {y:g}H{self.x(high, panel)}"
                yield f'<path d="{interval}" stroke="{color}" stroke-width="4"/>'
                circle = f'cx="{self.x(value, panel)}" cy="{y:g}" r="5" fill="{color}"'
                yield f"<circle {circle}><title>{model}</title></circle>"
                yield f'<text x="{self.x(self.maximum, panel) + 14}" y="{y + 5:g}">{value:.2f}</text>'
        yield "</svg>"

    def rows(self) -> Iterator[tuple[str, str, list[str]]]:
        """Yield stage, model and cells of each row of the table."""
        text = README.read_text(encoding="utf-8").split(f"<!-- numbers: {self.block} -->")[1].split("<!-- end -->")[0]
        for line in text.strip().splitlines()[2:]:
            first, *cells = (cell.strip() for cell in line.strip("|").split("|"))
            if match := STAGE.match(first):
                yield match[1], match[2], cells


PICTURES = {
    "smol-scores.svg": Picture(
        "smol",
        "Scores of SmolLM2-135M by training on held-out problems, with 95 % intervals",
        {"largest of four numbers": 0, "three numbers to sort": 1},
        maximum=1,
        ticks=4,
        others="or GRPO",
    ),
    "nano-scores.svg": Picture(
        "stages",
        "Mean grade of nano by stage on held-out problems, with 95 % intervals",
        {"usual problems, greedy": 1, "longer than any demonstration, greedy": 3},
        maximum=7,
        ticks=7,
        others="student",
    ),
}


def picture(name: str) -> str:
    """Return the complete file."""
    return "\n".join(PICTURES[name].draw()) + "\n"


if __name__ == "__main__":
    for name in PICTURES:
        (HERE / name).write_text(picture(name), encoding="utf-8")
