"""A chart with its words, and the sections that charts stand in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vinedresser.explain.charts.svg import Svg

__all__ = ["Figure", "Section"]


@dataclass(frozen=True)
class Figure:
    """A chart with its words.

    Attributes:
        title: what it shows.
        note: its last values, and what is not in the picture.
        svg: the chart.
    """

    title: str
    note: str
    svg: Svg


@dataclass(frozen=True)
class Section:
    """Charts of one subject.

    Attributes:
        name: an identifier.
        title: what they are about.
        note: how to read them.
        figures: the charts, [] where there is nothing to draw.
        missing: what to capture for it where nothing was; "" where something is drawn.
    """

    name: str
    title: str
    note: str
    figures: Sequence[Figure]
    missing: str = ""
