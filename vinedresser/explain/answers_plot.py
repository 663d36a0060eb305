"""Charts of the answers to a query, of several runs in one picture."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from vinedresser.errors import ConfigError
from vinedresser.explain.charts.axes import Size
from vinedresser.explain.charts.lines import Line, legend_of, line_of, lines_chart
from vinedresser.explain.charts.plot import Plot, panel_of
from vinedresser.explain.charts.scatter import hue
from vinedresser.explain.charts.standalone import WIDTH, Panel
from vinedresser.explain.charts.svg import Svg
from vinedresser.queries.answer import Answer
from vinedresser.queries.frames import labelled_numbers

# Labels that have a chart of their own, the first ones.
_MOST_PANELS = 12
_KINDS = ("scalar", "by", "vector")


def plot_answers(sources: Mapping[str, Iterable[Answer]], title: str = "") -> Plot:
    """Draw answers over the steps: a chart for each label, with a line for each source.

    A notebook shows the result; `Plot.save` writes it to a file.

    Args:
        sources: answers by the name of their source, such as this run's live stream and stored
            streams of others. Answers of several ranks are lines of their own.
        title: the line at the top; "": the query.

    Raises:
        ConfigError: there is nothing to draw: no answers, or none with numbers by step.
        CorruptData: while they are read; likewise any error of a source.
    """
    queries: dict[str, None] = {}
    lines = _lines(sources, queries)
    names = dict.fromkeys(name for each in lines.values() for name in each)
    colours = {name: hue(place) for place, name in enumerate(names)}
    steps = np.concatenate([one.steps for each in lines.values() for one in each.values()])
    extent = int(steps.min()), int(steps.max())
    shown = [*lines][:_MOST_PANELS]
    size = Size(WIDTH - 40, 380 if len(shown) == 1 else 180)
    panels = []
    for label in shown:
        told = f"{label or 'answers'} by step, {len(lines[label])} lines"
        panels.append(panel_of(label, lines_chart(told, lines[label], colours, size, extent)))
    if len(lines) > len(shown):
        note = f"{len(lines) - len(shown)} more labels are not drawn"
        panels.append(Panel(note, Svg(""), 1.0))
    return Plot(title or " · ".join(queries), legend_of(colours), panels)


def _lines(
    sources: Mapping[str, Iterable[Answer]], queries: dict[str, None]
) -> dict[str, dict[str, Line]]:
    """Return the lines of each label by their names; note the queries."""
    points: dict[str, dict[str, list[tuple[int, float]]]] = {}
    others: dict[str, None] = {}
    for name, answers in sources.items():
        for answer in answers:
            if answer.kind not in _KINDS:
                others.setdefault(answer.error or answer.kind)
                continue
            queries.setdefault(answer.query)
            whose = f"{name}, rank {answer.rank}" if answer.rank else name
            for label, value in labelled_numbers(answer):
                line = points.setdefault(label, {}).setdefault(whose, [])
                line.append((answer.step, value))
    if not points:
        told = f"; there are {', '.join(others)}" if others else ""
        raise ConfigError(f"no answers that are numbers by step{told}")
    return {
        label: {name: line_of(line) for name, line in each.items()}
        for label, each in points.items()
    }
