"""What the terminal says of a pruning: each round as it ends, the table of all, and the result."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from rich.table import Table

from vinedresser.cli.views.beside import shown_when_observed
from vinedresser.cli.views.console import console, plain_table, tell
from vinedresser.pruning.rounds.round_record import RoundRecord
from vinedresser.pruning.sensitivity import amounts_within
from vinedresser.tasks.pruning.round_queue import RoundQueue, round_observer

if TYPE_CHECKING:
    # It imports MLflow, which takes seconds.
    from vinedresser.tasks.pruning.pruning_result import PruningResult

__all__ = [
    "pruning_summary",
    "round_progress",
    "rounds_table",
    "sensitivity_lines",
    "sensitivity_table",
]

# Seconds between two polls.
_POLL = 0.25


def round_progress() -> AbstractContextManager[None]:
    """Print a line when a round of the pruning in the body ends."""
    return shown_when_observed(round_observer, _show)


def _show(queue: RoundQueue, over: threading.Event) -> None:
    shown = len(queue.rounds)
    last = False
    while not last:
        last = over.wait(_POLL)
        for one in queue.rounds[shown:]:
            line = _line(one, queue.rounds[0])
            if not tell(line, "info", to=console, **_fields(one)):
                console.print(line, soft_wrap=True)
            shown += 1


def _fields(one: RoundRecord) -> dict[str, object]:
    """Return the fields of a log line about a round that has ended."""
    counts = {"removed": one.removed, "parameters": one.parameters, "macs": one.macs}
    figures = {"before": one.before, "figure": one.figure}
    finite = {name: value for name, value in figures.items() if math.isfinite(value)}
    return {"run": one.run, "round": one.number, **counts, **finite}


def _line(one: RoundRecord, original: RoundRecord) -> str:
    """Return a line about a round that has ended."""
    if one.number == 0:
        return f"round 0   figure {one.figure:.6g}   {one.parameters:,} parameters, unpruned"
    parameters = f"{100 * one.parameters / original.parameters:.3g} % of the parameters"
    macs = f"{100 * one.macs / original.macs:.3g} % of the MACs"
    return (
        f"round {one.number}   {one.removed} filters removed   figure {one.before:.6g}, "
        f"{one.figure:.6g} fine-tuned   {parameters}, {macs}"
    )


def rounds_table(pruned: PruningResult) -> Table:
    """Return the table of the rounds."""
    table = plain_table()
    for name in ("round", "removed", "parameters", "MACs", "latency", "before", "figure"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("")
    for one in pruned.rounds:
        first = pruned.rounds[0]
        table.add_row(
            str(one.number),
            str(one.removed) if one.number else "",
            f"{100 * one.parameters / first.parameters:.3g} %",
            f"{100 * one.macs / first.macs:.3g} %",
            str(one.share_of_latency),
            f"{one.before:.6g}" if one.number else "",
            f"{one.figure:.6g}",
            "result" if pruned.chosen and pruned.chosen.round == one.number else "",
        )
    return table


def pruning_summary(pruned: PruningResult) -> Iterator[str]:
    """Yield lines about the result, and why the pruning ended."""
    for note in dict.fromkeys(note for one in pruned.rounds for note in one.notes):
        yield f"note             {note}"
    if pruned.chosen is not None:
        yield f"result           round {pruned.chosen.round}: {pruned.chosen.why}"
    if not pruned.problem:
        rule = f"{pruned.rule}: " if pruned.rule else ""
        yield f"ended            {rule}{pruned.over}"


def sensitivity_table(scanned: dict[str, dict[int, float]]) -> Table:
    """Return the table of a scan: the figure by group and number of removed channels."""
    table = plain_table()
    table.add_column("group", no_wrap=True)
    table.add_column("removed: figure")
    for name, figures in scanned.items():
        cells = [f"{count}: {figure:.4g}" for count, figure in figures.items()]
        table.add_row(name, "   ".join(cells))
    return table


def sensitivity_lines(
    scanned: dict[str, dict[int, float]], max_drop: float | None
) -> Iterator[str]:
    """Yield a table for the file: the most of each group that costs little enough.

    Args:
        scanned: result of a scan.
        max_drop: the most that the figure may drop; None: a hundredth of the unpruned model's.
    """
    before = next(iter(next(iter(scanned.values())).values()))
    drop = abs(before) / 100 if max_drop is None else max_drop
    amounts = amounts_within(scanned, drop)
    if not amounts:
        yield f"every amount lowers the figure by more than {drop:.3g}"
        return
    yield f"each of these alone lowers the figure by at most {drop:.3g}:"
    yield "[prune.amount]"
    for name, count in amounts.items():
        yield f"{json.dumps(name)} = {count}"
