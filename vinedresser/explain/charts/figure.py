"""Charts with captions, and sections of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vinedresser.explain.charts.svg import Svg

__all__ = ["Figure", "Section"]


@dataclass(frozen=True)
class Figure:
    """A chart with its caption.

    Attributes:
        note: last values, and anything left out of the chart.
    """

    title: str
    note: str
    svg: Svg


@dataclass(frozen=True)
class Section:
    """Charts of one subject.

    Attributes:
        name: identifier in the page.
        title: heading.
        note: how to read the charts.
        figures: the charts; empty if there is nothing to draw.
        missing: what to capture for this section; "" if something is drawn.
    """

    name: str
    title: str
    note: str
    figures: Sequence[Figure]
    missing: str = ""
