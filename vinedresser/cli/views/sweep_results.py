"""Results of a sweep: the table of its trials, and a summary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.table import Table

from vinedresser.cli.views.console import plain, plain_table
from vinedresser.sweeps.settings import Objective, SweepTable
from vinedresser.sweeps.trial import Trial

if TYPE_CHECKING:
    # It imports Prefect, which takes seconds.
    from vinedresser.tasks.sweeping.sweep_result import SweepResult

__all__ = ["STYLES", "summary", "trials_table"]

# Colours of the trial states.
STYLES = {
    "finished": "green",
    "running": "cyan",
    "pruned": "blue",
    "stopped": "yellow",
    "failed": "red",
}
# Rows of the table; MLflow has all trials.
_ROWS = 30


def trials_table(swept: SweepResult, settings: SweepTable) -> Table:
    """Return the table of the trials: all, or of many the best that finished."""
    table = plain_table()
    table.add_column("trial", no_wrap=True)
    table.add_column("ended", no_wrap=True)
    table.add_column("epochs", justify="right", no_wrap=True)
    for goal in settings.goals:
        table.add_column(goal.metric, justify="right", no_wrap=True)
    for heading in ("parameters", "why"):
        table.add_column(heading)
    for trial in _shown(swept.trials, settings.goals[0]):
        values = trial.result or tuple(trial.values.values())[-1:]
        table.add_row(
            trial.name,
            plain(trial.ending.state, STYLES[trial.ending.state]),
            str(trial.epochs),
            *(f"{value:.4g}" for value in values),
            *("" for _ in settings.goals[len(values) :]),
            trial.configuration,
            trial.ending.why,
        )
    return table


def summary(swept: SweepResult, settings: SweepTable) -> Iterator[str]:
    """Yield lines about the best trials, how trials ended, and the epochs used."""
    for trial in swept.best:
        both = zip(settings.goals, trial.result, strict=True)
        values = ", ".join(f"{goal.metric} {value:.4g}" for goal, value in both)
        yield f"best             {trial.name}: {values} with {trial.configuration}"
    ends = Counter(trial.ending.state for trial in swept.trials)
    yield "trials           " + ", ".join(f"{count} {state}" for state, count in ends.items())
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
    if swept.over != "all trials have begun":
        yield f"ended            {swept.over}"


def _shown(trials: Sequence[Trial], goal: Objective) -> Sequence[Trial]:
    if len(trials) <= _ROWS:
        return trials
    done = [trial for trial in trials if trial.result]
    best = sorted(done, key=lambda trial: trial.result[0], reverse=goal.direction == "maximize")
    return best[:_ROWS]
