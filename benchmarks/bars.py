"""Pictures of the tables that users read first: `python -m benchmarks.bars`.

Reads the tables under "What users ask" in docs/performance.md, and writes a picture of each to the
place where the document shows it. A line across a bar is its budget.
"""

from __future__ import annotations

import re
from html import escape
from pathlib import Path
from typing import NamedTuple

__all__ = ["Bar", "Chart", "charts", "main", "svg"]

DOCUMENT = Path(__file__).parents[1] / "docs" / "performance.md"
_ROW, _LABELS, _BARS, _RIGHT = 26, 380, 300, 60
_STYLE = "font-family: system-ui, sans-serif; font-size: 13px"
# Of every chart: legible on a white and on a black page.
_INK, _BAR, _BUDGET = "#6b7280", "#4d7c5a", "#c2410c"


class Bar(NamedTuple):
    """A bar; `budget` is None if there is none."""

    label: str
    value: float
    budget: float | None


class Chart(NamedTuple):
    """A table of the document and the place of its picture, relative to the document."""

    unit: str
    bars: list[Bar]
    place: str


def main() -> None:
    """Write the pictures."""
    for chart in charts(DOCUMENT.read_text(encoding="utf-8")):
        (DOCUMENT.parent / chart.place).write_text(svg(chart), encoding="utf-8")


def charts(document: str) -> list[Chart]:
    """Return the tables of a document that a picture follows.

    Raises:
        ValueError: a cell is no number.
    """
    found = []
    for table, place in re.findall(r"((?:^\|.*\n)+)\n!\[.*\]\((.*\.svg)\)", document, re.MULTILINE):
        heads, _, *rows = [
            [cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()
        ]
        bars = [
            Bar(label, float(value), float(budget) if budget else None)
            for label, value, budget in rows
        ]
        found.append(Chart(heads[0], bars, place))
    return found


def svg(chart: Chart) -> str:
    """Return the picture of a chart."""
    height = _ROW * (len(chart.bars) + 1)
    width = _LABELS + _BARS + _RIGHT
    scale = _BARS / max(max(bar.value, bar.budget or 0) for bar in chart.bars)
    lines = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
            f'style="{_STYLE}">'
        ),
        f'<text x="{_LABELS}" y="17" fill="{_INK}">{escape(chart.unit)}</text>',
    ]
    for number, bar in enumerate(chart.bars, 1):
        top = number * _ROW
        long = bar.value * scale
        lines += [
            (
                f'<text x="{_LABELS - 8}" y="{top + 17}" text-anchor="end" fill="{_INK}">'
                f"{escape(bar.label)}</text>"
            ),
            f'<rect x="{_LABELS}" y="{top + 4}" width="{long:.1f}" height="18" fill="{_BAR}"/>',
        ]
        right = long
        if bar.budget is not None:
            place = bar.budget * scale
            right = max(right, place)
            lines.append(
                f'<rect x="{_LABELS + place - 1:.1f}" y="{top + 1}" width="2" height="24" '
                f'fill="{_BUDGET}"><title>budget {bar.budget:g}</title></rect>'
            )
        lines.append(
            f'<text x="{_LABELS + right + 6:.1f}" y="{top + 17}" fill="{_INK}">{bar.value:g}</text>'
        )
    return "\n".join([*lines, "</svg>", ""])


if __name__ == "__main__":
    main()
