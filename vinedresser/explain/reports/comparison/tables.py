"""Tables of a comparison: all runs, configurations, settings that differ, where runs part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vinedresser.explain.comparison.compared_run import ComparedRun
from vinedresser.explain.comparison.comparing import Comparison
from vinedresser.explain.comparison.parting import Parting
from vinedresser.explain.formatting import count, number, plain, shortened

__all__ = ["Table", "environment_table", "group_table", "part_words", "run_table", "setting_table"]

# Settings as columns of the table of all runs; the table of settings has all.
_MOST_COLUMNS = 6
_LONGEST = 60


@dataclass(frozen=True)
class Table:
    """A table of texts.

    Attributes:
        head: heading of each column.
        rows: cells of each row.
        note: what is left out; "" for nothing.
    """

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


def run_table(comparison: Comparison) -> Table:
    """Return the table of all runs, the best first."""
    goal = comparison.goal.metric if comparison.goal else ""
    scalars = [name for name in dict.fromkeys((goal, "train/loss")) if name]
    settings = dict(list(comparison.settings.items())[:_MOST_COLUMNS])
    rows = [
        [
            run.name,
            run.verdict,
            f"{run.steps:,}",
            *(_figure(run.results.get(name)) for name in scalars),
            *(_cell(values[place]) for values in settings.values()),
        ]
        for place, run in enumerate(comparison.runs)
    ]
    return Table(["run", "verdict", "steps", *scalars, *settings], rows)


def group_table(comparison: Comparison) -> Table | None:
    """Return the table of configurations; None if each has one run."""
    goal = comparison.goal
    if goal is None or all(len(group.runs) == 1 for group in comparison.groups):
        return None
    rows = [
        [
            ", ".join(run.name for run in group.runs),
            f"{len(group.values)} of {len(group.runs)}",
            _figure(group.mean),
            _figure(group.spread),
            f"{_figure(min(group.values))} to {_figure(max(group.values))}" if group.values else "",
        ]
        for group in comparison.groups
    ]
    return Table(["runs", "counted", f"mean {goal.metric}", "spread over seeds", "range"], rows)


def setting_table(comparison: Comparison) -> Table | None:
    """Return the settings that differ, of the runs drawn; None if none does."""
    places = [comparison.runs.index(run) for run in comparison.drawn]
    return _differences(
        comparison,
        {name: [values[place] for place in places] for name, values in comparison.settings.items()},
    )


def environment_table(comparison: Comparison) -> Table | None:
    """Return what differs in the environment, of the runs drawn; None if nothing does."""
    return _differences(comparison, comparison.environment)


def part_words(reference: ComparedRun, other: ComparedRun, parting: Parting) -> list[str]:
    """Return when two runs part as cells: the other run, bit for bit, beyond noise."""
    if not parting.compared:
        exact = "nothing was captured at the same steps"
    elif parting.exact is None or parting.values is None:
        exact = f"identical in {count(parting.compared, 'common value')}"
    else:
        one, two = (f"{value:.9g}" for value in parting.values)
        mode = "" if parting.mode == "train" else f" ({parting.mode})"
        exact = f"step {parting.exact:,}{mode}: {parting.quantity} {one} and {two}"
    if parting.noise is not None:
        noise = f"from step {parting.noise:,}"
    else:
        noise = "not in the common steps" if parting.judged else "too few common training losses"
    return [f"{reference.name} and {other.name}", exact, noise]


def _differences(comparison: Comparison, values: Mapping[str, Sequence[Any]]) -> Table | None:
    if not values:
        return None
    rows = [[name, *map(_cell, entries)] for name, entries in values.items()]
    return Table(["", *(run.name for run in comparison.drawn)], rows)


def _cell(value: object) -> str:
    return "" if value is None else shortened(plain(value), _LONGEST)


def _figure(value: float | None) -> str:
    return "" if value is None else number(value)
