"""Time line of a run: each finding from its first sign to its detection, and changes by hand."""

from __future__ import annotations

from collections.abc import Sequence

from vinedresser.explain.charts.axes import TICK_ROOM, Frame, Scale, Size, grid, step_axis
from vinedresser.explain.charts.svg import Svg, chart, element
from vinedresser.explain.formatting import shortened
from vinedresser.explain.reports.cards import Card
from vinedresser.store.records import ControlRecord

__all__ = ["severity_sign", "timeline"]

_MOST_ROWS = 30
_ROW = 22.0
_TOP = 6.0
_INDENT = 14.0
_CHARACTER, _LONGEST = 6.3, 30
_CHANGES = "changed by hand"


def timeline(
    cards: Sequence[Card],
    controls: Sequence[ControlRecord],
    extent: tuple[int, int],
    width: float,
) -> Svg:
    """Return the time line, a row per finding, in the order of the page, and one of the changes.

    Args:
        cards: root causes; the first 30 of them and their symptoms are drawn.
        controls: what was changed in the training from outside. There is at least one of both.
        extent: first and last step of the axis.
        width: pixels.
    """
    cards = [each for card in cards for each in card.all][:_MOST_ROWS]
    names = [shortened(f"{card.number}  {card.title}", _LONGEST) for card in cards]
    left = 26.0 + _INDENT + _CHARACTER * max(map(len, [*names, _CHANGES]))
    size = Size(width, _ROW * (len(cards) + bool(controls)), left=left, right=18.0)
    x = step_axis(extent, size)
    bottom = _TOP + size.height
    frame = Frame(x, Scale(0, 1, bottom, _TOP), _TOP, bottom)
    rows = enumerate(zip(cards, names, strict=True))
    drawn = [_row(card, name, x, _TOP + _ROW * (place + 0.5)) for place, (card, name) in rows]
    if controls:
        drawn.append(_changes(controls, x, _TOP + _ROW * (len(cards) + 0.5)))
    changes = f" and {len(controls)} changes by hand" if controls else ""
    return chart(
        f"{len(cards)} findings{changes} over the steps",
        width,
        bottom + TICK_ROOM,
        *grid(frame, size, values=False),
        *drawn,
        kind="timeline",
    )


def severity_sign(severity: str, x: float, y: float) -> Svg:
    """Return the sign of a severity: square for stop, triangle for warning, disc for info.

    Args:
        severity: severity of a finding.
        x: centre of the sign, pixels.
        y: centre of the sign, pixels.
    """
    if severity == "stop":
        return element("rect", x=x - 5.5, y=y - 5.5, width=11, height=11, rx=1, class_="sign")
    if severity == "warning":
        outline = f"M{x:.1f} {y - 6.5:.1f}l6.5 11.5h-13z"
        return element("path", d=outline, class_="sign")
    return element("circle", cx=x, cy=y, r=5, class_="sign")


def _changes(controls: Sequence[ControlRecord], x: Scale, y: float) -> Svg:
    """Return the row of the changes: a diamond at the step of each."""
    signs = [
        element(
            "path",
            element("title", f"step {control.step:,}: {control.words}"),
            d=f"M{float(x(control.step)):.1f} {y - 6.5:.1f}l6.5 6.5l-6.5 6.5l-6.5 -6.5z",
            class_="sign",
            data_step=control.step,
        )
        for control in controls
    ]
    name = element("text", _CHANGES, x=6.0, y=y + 4, class_="name")
    return element("g", name, *signs, class_="entry info changes")


def _row(card: Card, name: str, x: Scale, y: float) -> Svg:
    finding = card.finding
    since, sure = float(x(finding.since)), float(x(finding.step))
    title = (
        f"{card.title} ({finding.severity}): seen since step {finding.since:,}, detected at step "
    )
    bar = (
        [element("line", x1=since, x2=sure, y1=y, y2=y, class_="span")]
        if finding.since < finding.step
        else []
    )
    start = 6.0 + (_INDENT if card.is_symptom else 0.0)
    return element(
        "g",
        element("title", f"{title}{finding.step:,}"),
        element("line", x1=start, x2=x.end, y1=y + _ROW / 2, y2=y + _ROW / 2, class_="grid"),
        element("text", name, x=start, y=y + 4, class_="name"),
        *bar,
        severity_sign(finding.severity, sure, y),
        class_=f"entry {finding.severity}{' symptom' if card.is_symptom else ''}",
        data_since=finding.since,
        data_step=finding.step,
    )
