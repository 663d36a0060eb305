"""Answers to queries in a terminal: the form follows the kind of the answer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rich.cells import cell_len
from rich.console import RenderableType

from vinedresser.cli.views.console import figure, plain, plain_lines, plain_table
from vinedresser.plain_text import visible
from vinedresser.queries.answer import Answer

# More labels than this, or longer lines, become a table.
_MOST_IN_A_LINE = 4
_MOST_ROWS = 40
_BARS = "▁▂▃▄▅▆▇█"


def answer_view(answer: Answer, *, ranks: bool = False) -> list[RenderableType]:
    """Return what to print for an answer.

    Args:
        ranks: whether to name the rank.
    """
    where = _where(answer, ranks=ranks)
    if answer.error is not None:
        return [plain(f"{where}  {answer.error}", "red")]
    value = answer.value
    match answer.kind:
        case "by" if len(value) > _MOST_IN_A_LINE:
            return [plain(where, "dim"), _table(value)]
        case "top" if len(value) > 1:
            return [plain(where, "dim"), _top(value)]
        case "confusion" | "examples":
            table = _confusion if answer.kind == "confusion" else _examples
            return [plain(where, "dim"), table(value)]
        case "histograms":
            lines = (f"  {label}  {_histogram(one)}" for label, one in value.items())
            return [plain(where, "dim"), *map(plain, lines)]
    return [plain("").append_text(plain(f"{where}  ", "dim")).append_text(plain(_line(answer)))]


def _where(answer: Answer, *, ranks: bool) -> str:
    """Return the steps of the window, and how many windows and events were left out."""
    steps = f"{answer.step}" if answer.since == answer.step else f"{answer.since}-{answer.step}"
    words = [f"{'step' if answer.since == answer.step else 'steps'} {steps}"]
    words += [f"rank {answer.rank}"] if ranks else []
    words += [f"({answer.dropped} left out)"] if answer.dropped else []
    words += [f"(thinned: {answer.thinned} not looked at)"] if answer.thinned else []
    return " ".join(words)


def _line(answer: Answer) -> str:
    """Return the value in a line."""
    value = answer.value
    match answer.kind:
        case "scalar":
            line = figure(value)
        case "by":
            line = "  ".join(f"{label}={figure(one)}" for label, one in value.items())
        case "vector":
            line = " ".join(map(figure, value[:_MOST_ROWS])) + _more(value)
        case "histogram":
            line = _histogram(value)
        case "top":
            line = "".join(f"{figure(one['value'])} at {one['at']}" for one in value)
        case "image":
            line = f"image of {value['height']} x {value['width']} x {value['channels']}"
        case "points":
            line = f"{len(value['x']):,} points"
        case _:
            line = str(value)
    return line


def _more(values: Sequence[Any]) -> str:
    return f" … ({len(values):,} in all)" if len(values) > _MOST_ROWS else ""


def _table(value: Mapping[str, float]) -> RenderableType:
    """Return numbers by label, one below the other.

    A table of rich looks the same, and takes ten times as long for hundreds of labels.
    """
    rows = [("", "value"), *((visible(label), figure(one)) for label, one in value.items())]
    wide, long = (max(cell_len(row[column]) for row in rows) for column in (0, 1))
    lines = [f"{label}{' ' * (wide - cell_len(label))}  {number:>{long}}" for label, number in rows]
    text = plain_lines(lines)
    text.stylize("bold", 0, len(lines[0]))
    return text


def _top(value: Sequence[Mapping[str, Any]]) -> RenderableType:
    table = plain_table()
    for head in ("value", "at", "step"):
        table.add_column(head)
    for one in value:
        table.add_row(figure(one["value"]), one["at"], str(one["step"]))
    return table


def _confusion(value: Mapping[str, Any]) -> RenderableType:
    table = plain_table()
    table.add_column("label")
    for one in value["classes"][:_MOST_ROWS]:
        table.add_column(visible(one), justify="right")
    for label, row in zip(value["classes"], value["counts"], strict=True):
        table.add_row(label, *(f"{count:g}" for count in row[:_MOST_ROWS]))
    return table


def _examples(value: Sequence[Mapping[str, Any]]) -> RenderableType:
    table = plain_table()
    for head in ("label", "prediction", "sample"):
        table.add_column(head)
    for one in value:
        row = " ".join(map(figure, one["row"])) if "row" in one else "image"
        wrong = "" if one["label"] == one["prediction"] else " (wrong)"
        table.add_row(str(one["label"]), f"{one['prediction']}{wrong}", row)
    return table


def _histogram(value: Mapping[str, Sequence[float]]) -> str:
    """Return a histogram as bars between its ends."""
    counts, edges = value["counts"], value["edges"]
    most = max((count for count in counts if math.isfinite(count)), default=0) or 1
    bars = "".join(
        _BARS[min(int(count / most * (len(_BARS) - 1) + 0.5), len(_BARS) - 1)] if count > 0 else " "
        for count in counts
    )
    return f"{figure(edges[0])} {bars} {figure(edges[-1])}"
