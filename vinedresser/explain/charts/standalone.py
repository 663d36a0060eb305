"""Standalone SVG documents: a title and charts, with an embedded stylesheet.

Many viewers do not support CSS variables, so the colours of the light page are filled in.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.resources import files
from typing import NamedTuple

from vinedresser.explain.charts.svg import Svg, element

__all__ = ["Panel", "WIDTH", "legend_line", "standalone"]

WIDTH = 960.0
_MARGIN, _TITLE, _CAPTION, _GAP = 20.0, 22.0, 20.0, 14.0
_CHARACTER = 6.6
_EXTRA = """
text { font-family: system-ui, "Segoe UI", "Helvetica Neue", "DejaVu Sans", Arial, sans-serif; }
.surface { fill: var(--surface); }
.head { font-size: 15px; font-weight: 600; fill: var(--ink); }
.caption { font-size: 12px; fill: var(--muted); }
"""


class Panel(NamedTuple):
    """A chart in a standalone picture.

    Attributes:
        caption: a line above the chart; "" for none.
        svg: the chart, WIDTH - 40 pixels wide.
        height: of the chart, pixels.
    """

    caption: str
    svg: Svg
    height: float


def standalone(title: str, legend: Sequence[Svg], panels: Sequence[Panel]) -> Svg:
    """Return an SVG document.

    Args:
        legend: entries, each drawn from the origin of a line 20 pixels high.
        panels: the charts, from top to bottom.
    """
    width = WIDTH - 2 * _MARGIN
    y = _MARGIN + _TITLE
    drawn = [element("text", title, x=_MARGIN, y=_MARGIN + 12.0, class_="head")]
    if legend:
        drawn.append(element("g", *legend, transform=f"translate({_MARGIN:g} {y:g})"))
        y += 30.0
    for panel in panels:
        if panel.caption:
            drawn.append(element("text", panel.caption, x=_MARGIN, y=y + 13.0, class_="caption"))
            y += _CAPTION
        place = {"x": _MARGIN, "y": y, "width": width, "height": panel.height}
        drawn.append(element("svg", panel.svg, **place))
        y += panel.height + _GAP
    height = y - _GAP + _MARGIN
    return element(
        "svg",
        element("title", title),
        element("style", Svg(_style())),
        element("rect", width="100%", height="100%", class_="surface"),
        *drawn,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {WIDTH:g} {height:g}",
        width=f"{WIDTH:g}",
        height=f"{height:g}",
    )


def legend_line(entries: Sequence[tuple[str, str]]) -> list[Svg]:
    """Return legend entries side by side.

    Args:
        entries: CSS class of a line, and its label.
    """
    drawn = []
    x = 0.0
    for kind, label in entries:
        drawn.append(element("path", d=f"M{x:g} 8H{x + 20:g}", class_=kind))
        drawn.append(element("text", label, x=x + 26.0, y=12.0, class_="caption"))
        x += 46.0 + _CHARACTER * len(label)
    return drawn


def _style() -> str:
    """Return the stylesheet of the charts with the variables of the light page filled in."""
    folder = files("vinedresser.explain.charts")
    light = folder.joinpath("colours.css").read_text("utf-8").partition("@media")[0]
    colours = dict(re.findall(r"--([\w-]+): ([^;]+);", light))
    rules = folder.joinpath("charts.css").read_text("utf-8") + _EXTRA
    filled = re.sub(r"var\(--([\w-]+)\)", lambda found: colours.get(found[1], found[0]), rules)
    # Rules of markers set variables; standalone pictures have no markers.
    return "\n".join(line for line in filled.splitlines() if "--" not in line)
