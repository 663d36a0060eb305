"""The report of a pruning: one self-contained page."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vinedresser.explain.charts.axes import TICK_ROOM, Frame, Size, grid, nice_scale
from vinedresser.explain.charts.svg import Svg, chart, element, path_data
from vinedresser.explain.reports.templating import write_page
from vinedresser.pruning.folders import ResultRecord
from vinedresser.pruning.rounds.round_record import RoundRecord
from vinedresser.pruning.rounds.settings import PruneTable, Target
from vinedresser.store.finding import Finding

__all__ = ["PruningPage", "pareto", "write_pruning_report"]

_SIZE = Size(460.0, 220.0)
_COSTS: dict[Target, str] = {
    "parameters": "Parameters",
    "macs": "MACs",
    "latency": "Latency",
    "size": "Bytes",
}


@dataclass(frozen=True)
class PruningPage:
    """Contents of the page.

    Attributes:
        table: settings of the pruning.
        rounds: records of the complete rounds, from round 0.
        chosen: the round that is the result, and why; None if there is none.
        over: why the pruning ended.
        findings: findings of the rules by name of the run.
        missed: the targets that the result does not reach, and why; "" for none.
    """

    name: str
    table: PruneTable
    rounds: Sequence[RoundRecord]
    chosen: ResultRecord | None
    over: str
    findings: Mapping[str, Sequence[Finding]]
    missed: str = ""

    @property
    def result(self) -> RoundRecord | None:
        """Record of the round that is the result."""
        return self.rounds[self.chosen.round] if self.chosen is not None else None

    @property
    def is_reached(self) -> bool:
        """Whether the result is a pruned model that reaches all targets."""
        return self.chosen is not None and self.chosen.round > 0 and not self.missed

    @property
    def checks(self) -> list[str]:
        """Names of the checks of the pruned models."""
        return list(dict.fromkeys(name for one in self.rounds for name in one.checks))

    def share(self, one: RoundRecord, cost: Target) -> float:
        """Return a cost of a round as a share of the unpruned model's."""
        return one.costs[cost] / self.rounds[0].costs[cost]

    @property
    def notes(self) -> list[str]:
        """What of the models was not seen, each once."""
        return list(dict.fromkeys(note for one in self.rounds for note in one.notes))


def write_pruning_report(page: PruningPage, destination: str | os.PathLike[str]) -> Path:
    """Write the page and return its path; see `write_page`.

    Raises:
        StoreError: the file cannot be written.
    """
    number = page.chosen.round if page.chosen is not None else None
    charts = {
        name: _trade_off(_told(page.rounds, cost), cost, number, _SIZE)
        for cost, name in _COSTS.items()
        if page.rounds
    }
    channels = _channels_left(page.rounds) if page.rounds else None
    return write_page(destination, "pruning.html.j2", page=page, charts=charts, channels=channels)


def _told(rounds: Sequence[RoundRecord], cost: Target) -> list[RoundRecord]:
    """Return the rounds of which a cost is known."""
    return [one for one in rounds if cost != "latency" or one.share_of_latency.is_clear]


# Pixels above the points; of a row and a cell of the channels, and of the names before them.
_ROOM = 12.0
_ROW, _CELL, _NAMES = 15.0, 34.0, 230.0
_HEAD = 20.0


def pareto(rounds: Sequence[RoundRecord], cost: Target) -> list[RoundRecord]:
    """Return the rounds that no other beats in both figure and cost, cheapest first.

    Args:
        rounds: all rounds, from round 0.
    """
    front: list[RoundRecord] = []
    best = -np.inf
    for one in sorted(rounds, key=lambda one: (one.costs[cost], -one.figure)):
        if one.figure > best:
            front.append(one)
            best = one.figure
    return front


def _trade_off(rounds: Sequence[RoundRecord], cost: Target, chosen: int | None, size: Size) -> Svg:
    """Return a chart of the figure of each round against a cost, as a share of the unpruned one's.

    A line joins the Pareto front; small rings show the figures before fine-tuning.

    Args:
        rounds: all rounds, from round 0.
        chosen: number of the round that is the result; None if there is none.
    """
    original = rounds[0].costs[cost]
    share = {one.number: 100 * one.costs[cost] / original for one in rounds}
    figures = np.array([value for one in rounds for value in (one.figure, one.before)])
    bottom = _ROOM + size.height
    across = nice_scale(np.array([*share.values()]), size.left, size.width - size.right)
    frame = Frame(across, nice_scale(figures, bottom, _ROOM), _ROOM, bottom)
    front = pareto(rounds, cost)
    line = path_data(
        frame.x(np.array([share[one.number] for one in front])),
        frame.y(np.array([one.figure for one in front])),
    )
    points = [_point(frame, one, share[one.number], chosen=one.number == chosen) for one in rounds]
    return chart(
        f"figure of each round against its {cost}, in percent of the unpruned model's",
        size.width,
        bottom + TICK_ROOM,
        *grid(frame, size, values=True),
        element("path", d=line, class_="front"),
        *points,
    )


def _point(frame: Frame, one: RoundRecord, share: float, *, chosen: bool) -> Svg:
    x = float(frame.x(share))
    after, before = float(frame.y(one.figure)), float(frame.y(one.before))
    said = f"round {one.number}: {one.figure:.6g} at {share:.3g} %"
    if one.number:
        said += f", {one.before:.6g} before fine-tuning"
    return element(
        "g",
        element("title", said),
        element("line", x1=x, x2=x, y1=before, y2=after, class_="tuning"),
        element("circle", cx=x, cy=before, r=2.0, class_="before"),
        element("circle", cx=x, cy=after, r=6.0 if chosen else 3.5),
        element("text", str(one.number), x=x + 8, y=after - 6, class_="tick axis-label"),
        class_=f"round{' chosen' if chosen else ''}",
    )


def _channels_left(rounds: Sequence[RoundRecord]) -> Svg:
    """Return a table of bars: the share of channels left, by group and round.

    Args:
        rounds: all rounds, from round 0.
    """
    original = rounds[0].left
    drawn = [
        element("text", str(one.number), x=_NAMES + (place + 0.5) * _CELL, y=13, class_="tick x")
        for place, one in enumerate(rounds)
    ]
    for row, (name, whole) in enumerate(original.items()):
        top = _HEAD + row * _ROW
        drawn.append(element("text", name, x=_NAMES - 10, y=top + 11, class_="tick y"))
        for place, one in enumerate(rounds):
            left = one.left.get(name, 0)
            width = (_CELL - 6) * left / whole if whole else 0.0
            corner = _NAMES + place * _CELL
            drawn.append(
                element(
                    "g",
                    element("title", f"{name}, round {one.number}: {left} of {whole} left"),
                    element("rect", x=corner, y=top + 3, width=_CELL - 6, height=9, class_="all"),
                    element("rect", x=corner, y=top + 3, width=width, height=9, class_="left"),
                )
            )
    width = _NAMES + len(rounds) * _CELL
    height = _HEAD + len(original) * _ROW
    label = "channels left by group and round"
    return chart(label, width, height, *drawn, kind="channels", style=f"width: {width:g}px")
