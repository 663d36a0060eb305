"""Markers of findings: numbered vertical lines in charts over the steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vinedresser.explain.charts.svg import Svg, element
from vinedresser.store.finding import Severity

__all__ = ["Marker", "draw_markers", "marker_room"]

_FLAG = 15.0


@dataclass(frozen=True)
class Marker:
    """A vertical line at the step of a finding.

    Attributes:
        number: number of the finding in the page.
        severity: severity, which decides the colour.
        title: tooltip.
    """

    number: int
    step: int
    severity: Severity
    title: str


def marker_room(places: Sequence[float]) -> float:
    """Return the height above a plot that the numbers of the markers need, in pixels.

    Args:
        places: places of the markers, pixels.
    """
    return 6.0 + _FLAG * (max(_rows(places), default=-1) + 1)


def draw_markers(markers: Sequence[Marker], places: Sequence[float], bottom: float) -> list[Svg]:
    """Return the markers: a dashed line from a number at the top down to ``bottom``.

    Args:
        places: places of the markers, pixels.
        bottom: bottom of the plot, pixels.
    """
    drawn = []
    for marker, place, row in zip(markers, places, _rows(places), strict=True):
        height = 2.0 + _FLAG * (row + 0.5)
        drawn.append(
            element(
                "g",
                element("title", marker.title),
                element("line", x1=place, x2=place, y1=height, y2=bottom),
                element("circle", cx=place, cy=height, r=6.5),
                element("text", str(marker.number), x=place, y=height + 3.2),
                class_=f"marker {marker.severity}",
                data_step=marker.step,
            )
        )
    return drawn


def _rows(places: Sequence[float]) -> list[int]:
    """Return the row of each number, such that none covers another."""
    ends: list[float] = []
    rows = []
    for place in places:
        row = next((row for row, end in enumerate(ends) if abs(place - end) > _FLAG), len(ends))
        ends[row : row + 1] = [place]
        rows.append(row)
    return rows
