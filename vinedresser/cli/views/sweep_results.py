"""Results of a sweep: the table of its trials, and a summary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from vinedresser.cli.views.column_choice import fitted_table
from vinedresser.cli.views.console import plain
from vinedresser.sweeps.settings import Objective, SweepTable
from vinedresser.sweeps.trial import ALL_BEGUN, Trial, results_again, spread, told_line

if TYPE_CHECKING:
    # It imports Prefect, which takes seconds.
    from vinedresser.tasks.sweeping.sweep_result import SweepResult

__all__ = ["STYLES", "summary", "trials_table"]

# Colours of the trial states.
STYLES = {
    "finished": "green",
    "running": "cyan",
    "interrupted": "cyan",
    "pruned": "blue",
    "stopped": "yellow",
    "failed": "red",
}
# Rows of the table; MLflow has all trials.
_ROWS = 30
# Characters that a folded column has at least.
_FOLDED = 20


def trials_table(swept: SweepResult, settings: SweepTable, room: int | None = None) -> Table:
    """Return the table of the trials: all, or of many the best that finished.

    Args:
        room: characters of a line of the terminal, on which a narrow one leaves out columns; None:
            all columns.
    """
    trials = _shown(swept.trials, settings.goals[0])
    metrics = [goal.metric for goal in settings.goals]
    cells = [_cells(trial, metrics) for trial in trials]
    return fitted_table(
        {name: name for name in ("trial", "ended", "epochs", *metrics, "parameters", "why")},
        cells,
        room=room,
        dropped=["epochs", *metrics[:0:-1], "why", "parameters"],
        folded={"parameters": _FOLDED, "why": _FOLDED},
        figures=["epochs", *metrics],
    )


def _cells(trial: Trial, metrics: Sequence[str]) -> dict[str, str | Text]:
    """Return the cells of a trial's row by heading."""
    values = trial.result or tuple(trial.values.values())[-1:]
    shown = [f"{value:.4g}" for value in values] + [""] * (len(metrics) - len(values))
    return {
        "trial": trial.name,
        "ended": plain(trial.ending.state, STYLES[trial.ending.state]),
        "epochs": str(trial.epochs),
        **dict(zip(metrics, shown, strict=True)),
        "parameters": trial.configuration,
        "why": trial.why,
    }


def summary(swept: SweepResult, settings: SweepTable) -> Iterator[str]:
    """Yield lines about the best trials, how trials ended, and the epochs used."""
    yield from _best_lines(swept, settings)
    ends = Counter(trial.ending.state for trial in swept.trials)
    yield "trials           " + ", ".join(f"{count} {state}" for state, count in ends.items())
    if again := results_again(swept.trials, swept.best):
        told = f"{settings.goals[0].metric} {spread(again)}"
        seeds = "1 other seed" if len(again) == 1 else f"{len(again)} other seeds"
        yield f"again            {swept.best[0].name} with {seeds}: {told}"
    if swept.registered:
        yield f"registered       {swept.registered}"
    if settings.constraints:
        done = [trial for trial in swept.trials if trial.result]
        names = ", ".join(one.name for one in settings.constraints)
        kept = sum(trial.feasible for trial in done)
        yield f"feasible         {kept} of {len(done)} finished trials ({names})"
    broken = [trial.ending for trial in swept.trials if trial.ending.rule]
    if broken:
        rules = Counter(ending.rule for ending in broken)
        pruned = sum(ending.state == "pruned" for ending in broken)
        of = f" ({pruned} of them pruned)" if pruned else ""
        yield f"broken by        {', '.join(f'{rule} {n}' for rule, n in rules.most_common())}{of}"
    if swept.importance:
        shares = ", ".join(f"{name} {share:.2f}" for name, share in swept.importance.items())
        yield f"mattered         {shares}"
    used = sum(trial.epochs for trial in swept.trials)
    if settings.epochs is not None and swept.trials:
        whole = settings.epochs * len(swept.trials)
        yield f"epochs           {used} of {whole} ({100 * used / whole:.0f} %)"
    if swept.left:
        yield "left             other processes of the sweep run the rest, and report on it"
    if swept.over != ALL_BEGUN:
        yield f"ended            {swept.over}"


def _best_lines(swept: SweepResult, settings: SweepTable) -> Iterator[str]:
    head = "best             " if len(settings.goals) == 1 else "Pareto front     "
    for trial in swept.best:
        both = zip(settings.goals, trial.result, strict=True)
        values = ", ".join(f"{goal.metric} {value:.4g}" for goal, value in both)
        yield f"{head}{trial.name}: {values} with {trial.configuration}"
        if trial.line is not None:
            yield f"line             {told_line(trial, swept.trials)}"
    for doubt in swept.doubts:
        yield f"but              {doubt}"


def _shown(trials: Sequence[Trial], goal: Objective) -> Sequence[Trial]:
    if len(trials) <= _ROWS:
        return trials
    done = [trial for trial in trials if trial.result]
    sign = -1 if goal.direction == "maximize" else 1
    best = sorted(done, key=lambda trial: (not trial.feasible, sign * trial.result[0]))
    return best[:_ROWS]
