"""Progress of a sweep: a summary, and each trial as it ends."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from vinedresser.cli.views.beside import shown_when_observed
from vinedresser.cli.views.column_choice import columns_that_fit
from vinedresser.cli.views.console import console, plain, plain_table, tell
from vinedresser.cli.views.latest_values import LatestValues, fitting
from vinedresser.cli.views.sweep_results import STYLES
from vinedresser.errors import VinedresserError
from vinedresser.store.reading.reader import Run, open_run
from vinedresser.sweeps.settings import Objective
from vinedresser.sweeps.trial import Trial, saved_share
from vinedresser.tasks.lifecycle.earlier_runs import runs_of_trial
from vinedresser.tasks.sweeping.sweep_runner import Standing, SweepRunner, observer

__all__ = ["SweepView", "running_table", "sweep_progress"]

# Seconds between two polls.
_POLL = 0.25
# Running trials that are listed; more are only counted.
_ROWS = 16
# Characters of a trial's latest values, and the least of its parameters.
_NOW, _CUT = 36, 16
# Seconds between two looks at the runs of the running trials.
_READ = 1.0
# Levels of log lines by state of the trial.
_LEVELS = {"failed": "error", "stopped": "warning"}


def sweep_progress(begins: Callable[[], object]) -> AbstractContextManager[None]:
    """Show the progress of the sweep that runs in the body.

    Draw a table of the running trials and a summary on a terminal; elsewhere print a line when a
    trial ends, and when one of the first begins.

    Args:
        begins: called when there is something to show.
    """

    def show(runner: SweepRunner, over: threading.Event) -> None:
        begins()
        _show(runner, over)

    return shown_when_observed(observer, show)


class SweepView:
    """Text about the state of a sweep.

    Args:
        standing: the state at first; trials that ended earlier are counted but not printed.
        now: seconds of a monotonic clock.
    """

    def __init__(self, standing: Standing, now: float) -> None:
        self._begun = now
        self._earlier = self._printed = len(standing.ended)
        self._best: Trial | None = None
        self._ends: Counter[str] = Counter()
        for trial in standing.ended:
            self._count(trial, standing.sweep.settings.goals)

    def ends(self, standing: Standing) -> Iterator[tuple[Trial, Text]]:
        """Yield each trial that has ended since the last call, with a line about it."""
        for trial in standing.ended[self._printed :]:
            self._printed += 1
            self._count(trial, standing.sweep.settings.goals)
            yield trial, _end(trial, standing.sweep.settings.goals, standing.sweep.settings.epochs)

    def summary(self, standing: Standing, now: float) -> str:
        """Return a line about all trials."""
        settings = standing.sweep.settings
        done = len(standing.ended)
        of = f" of {standing.sweep.planned}" if standing.sweep.planned is not None else ""
        parts = [f"{done}{of} trials ended"]
        if self._ends:
            parts[0] += f" ({', '.join(f'{n} {state}' for state, n in self._ends.items())})"
        # The next trial is prepared before the process of an earlier one is gone.
        running = min(len(standing.running), standing.sweep.experiment.max_concurrent)
        parts.append(f"{running} running")
        if self._best is not None:
            goal = settings.goals[0]
            parts.append(f"best {self._best.name}: {goal.metric} {self._best.result[0]:.4g}")
        if settings.epochs is not None and done:
            saved = saved_share(standing.ended, settings.epochs)
            parts.append(f"{100 * saved:.0f} % of the epochs saved")
        if (left := self._left(standing, now)) is not None:
            parts.append(f"{_duration(left)} left")
        return ", ".join(parts)

    def _left(self, standing: Standing, now: float) -> float | None:
        """Estimate the seconds left, from the trials of this process and the time budget."""
        settings = standing.sweep.settings
        done = len(standing.ended) - self._earlier
        spent = now - self._begun
        left = []
        planned = standing.sweep.planned
        if planned is not None and done > standing.sweep.experiment.max_concurrent:
            left.append((planned - len(standing.ended)) * spent / done)
        if settings.seconds is not None:
            left.append(max(settings.seconds - spent, 0.0))
        return min(left, default=None)

    def _count(self, trial: Trial, goals: Sequence[Objective]) -> None:
        self._ends[trial.ending.state] += 1
        if not trial.competes or len(goals) > 1:
            return
        sign = 1 if goals[0].direction == "maximize" else -1
        if self._best is None or sign * trial.result[0] > sign * self._best.result[0]:
            self._best = trial


def _show(runner: SweepRunner, over: threading.Event) -> None:
    """Show the sweep until it ends."""
    view = SweepView(runner.standing(), time.monotonic())
    if not console.is_terminal:
        _show_lines(runner, view, over)
        return
    now = _Now()
    with Live(console=console, auto_refresh=False, transient=True) as live:
        last = False
        while not last:
            last = over.wait(_POLL)
            standing = runner.standing()
            for _, line in view.ends(standing):
                live.console.print(line)
            text = plain(view.summary(standing, time.monotonic()))
            table = running_table(standing, now.of(standing), console.width)
            live.update(Group(table, text), refresh=True)


def _show_lines(runner: SweepRunner, view: SweepView, over: threading.Event) -> None:
    """Print a line when a trial ends, and a summary after each tenth of the trials."""
    tenths = 0
    begun: set[str] = set()
    last = False
    while not last:
        last = over.wait(_POLL)
        standing = runner.standing()
        if not standing.ended:
            for trial in standing.running:
                if trial.name not in begun:
                    begun.add(trial.name)
                    begins = f"{trial.name} begins with {trial.configuration}"
                    if not tell(begins, run=trial.name):
                        console.print(begins, soft_wrap=True)
        for trial, line in view.ends(standing):
            level = _LEVELS.get(trial.ending.state, "info")
            if not tell(line.plain, level, to=console, **_fields(trial)):
                console.print(line, soft_wrap=True)
        planned = standing.sweep.planned
        reached = 10 * len(standing.ended) // planned if planned else 0
        if reached > tenths and not last:
            tenths = reached
            console.print(view.summary(standing, time.monotonic()), soft_wrap=True)


def running_table(standing: Standing, now: Mapping[str, str], room: int) -> Table:
    """Return the table of the running trials.

    Args:
        standing: the standing of the sweep.
        now: latest values of the running trials, by name; "" before the first step.
        room: characters of a line; a narrow terminal leaves out columns.
    """
    settings = standing.sweep.settings
    metric = settings.goals[0].metric
    of = f" of {settings.epochs}" if settings.epochs is not None else ""
    cells = []
    for trial in standing.running[:_ROWS]:
        value = trial.values.get(trial.epochs)
        shown = "" if value is None else f"{value:.4g}"
        row = (trial.name, f"{trial.epochs}{of}", shown, now.get(trial.name) or "starting")
        cells.append((*row, trial.configuration))
    headings = ("running", "epoch", metric, "now", "parameters")
    rows = [dict(zip(headings, row, strict=True)) for row in cells]
    widths = {name: max(map(len, (name, *(row[name] for row in rows)))) for name in headings}
    # Parameters may be cut off.
    widths["parameters"] = min(widths["parameters"], _CUT)
    kept = columns_that_fit(widths, ("parameters", "epoch", "now"), room) if rows else []
    table = plain_table()
    for name in kept:
        table.add_column(name, no_wrap=True, min_width=widths[name])
    for shown_row in rows:
        table.add_row(*(shown_row[name] for name in kept))
    return table


class _Now:
    """The latest step, loss and metric of the running trials, read from their runs.

    Those on an object store would cost requests.
    """

    def __init__(self) -> None:
        self._watched: dict[str, tuple[Run, LatestValues]] = {}
        self._shown: dict[str, str] = {}
        self._next = 0.0

    def of(self, standing: Standing) -> dict[str, str]:
        """Return a text for each running trial by name; read anew about once a second."""
        store = standing.sweep.experiment.store
        if time.monotonic() < self._next or not isinstance(store, Path):
            return self._shown
        names = [trial.name for trial in standing.running[:_ROWS]]
        self._watched = {name: self._watched[name] for name in names if name in self._watched}
        self._shown = {name: self._read(store, name) for name in names}
        self._next = time.monotonic() + _READ
        return self._shown

    def _read(self, store: Path, name: str) -> str:
        try:
            if name not in self._watched:
                runs = runs_of_trial(store, name)
                if not runs:
                    return ""
                run = open_run(runs[-1])
                self._watched[name] = run, LatestValues(run)
            run, values = self._watched[name]
            step = run.status.step
            if step is None:
                return ""
            return fitting([f"step {step + 1}", *values.parts(step + 1, None)], _NOW)
        except VinedresserError:
            # Not begun, or removed or damaged meanwhile, as the trial's end will say.
            return ""


def _end(trial: Trial, goals: Sequence[Objective], epochs: int | None) -> Text:
    """Return a line about how a trial ended."""
    of = f" of {epochs}" if epochs is not None else ""
    values = trial.result or tuple(trial.values.values())[-1:]
    shown = ", ".join(
        f"{goal.metric} {value:.4g}" for goal, value in zip(goals, values, strict=False)
    )
    line = plain(f"{trial.name}   epoch {trial.epochs}{of}   {shown}{'   ' if shown else ''}")
    ending = trial.ending
    pruned = ending.state == "pruned"
    by = f" by {ending.rule}" if ending.rule and not pruned else ""
    said = ending.why if pruned else ending.reason
    reason = f": {said}" if said else ""
    state = plain(ending.state, STYLES[ending.state])
    return line.append_text(state).append_text(plain(f"{by}{reason}"))


def _fields(trial: Trial) -> dict[str, object]:
    """Return what is known of the end of a trial, as fields of a log line."""
    ending = trial.ending
    return {
        "run": trial.name,
        "state": ending.state,
        "reason": ending.reason or None,
        "rule": ending.rule or None,
        "remedy": ending.remedy or None,
    }


def _duration(seconds: float) -> str:
    """Return a duration in a suitable unit."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
