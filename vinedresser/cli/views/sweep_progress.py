"""What a sweep says while it runs: how it stands, and each trial as it ends."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from vinedresser.cli.views.sweep_terminal import STYLES
from vinedresser.cli.views.terminal import console
from vinedresser.sweeps.settings import Objective
from vinedresser.sweeps.trial import Trial
from vinedresser.tasks.sweeping.sweep_runner import Standing, SweepRunner, observer

__all__ = ["SweepView", "sweep_progress"]

_LOOK = 0.25
# More running trials than these are only counted.
_ROWS = 16


@contextmanager
def sweep_progress() -> Iterator[None]:
    """Show how the sweep stands that runs in the body.

    On a terminal a table of the running trials with a line about all, elsewhere a plain line
    whenever a trial ends.
    """
    over = threading.Event()
    views: list[threading.Thread] = []

    def look(conductor: SweepRunner) -> None:
        views.append(threading.Thread(target=_show, args=(conductor, over), daemon=True))
        views[-1].start()

    token = observer.set(look)
    try:
        yield
    finally:
        observer.reset(token)
        over.set()
        for view in views:
            view.join()


class SweepView:
    """How a sweep stands, in words.

    Args:
        standing: when it was first looked at: what ended before then is counted, and not told.
        now: seconds, of a clock that is used for all.
    """

    def __init__(self, standing: Standing, now: float) -> None:
        self._begun = now
        self._earlier = self._told = len(standing.ended)
        self._best: Trial | None = None
        self._ends: Counter[str] = Counter()
        self._epochs = 0
        for trial in standing.ended:
            self._count(trial, standing.sweep.settings.goals)

    def ends(self, standing: Standing) -> Iterator[Text]:
        """Yield a line about each trial that has ended since it was asked before."""
        for trial in standing.ended[self._told :]:
            self._told += 1
            self._count(trial, standing.sweep.settings.goals)
            yield _end(trial, standing.sweep.settings.goals, standing.sweep.settings.epochs)

    def summary(self, standing: Standing, now: float) -> str:
        """Return in a line what all trials have come to."""
        settings = standing.sweep.settings
        done = len(standing.ended)
        of = f" of {settings.trials}" if settings.trials is not None else ""
        parts = [f"{done}{of} trials over"]
        if self._ends:
            parts[0] += f" ({', '.join(f'{n} {state}' for state, n in self._ends.items())})"
        parts.append(f"{len(standing.running)} running")
        if self._best is not None:
            goal = settings.goals[0]
            parts.append(f"best {self._best.name}: {goal.metric} {self._best.result[0]:.4g}")
        if settings.epochs is not None and done:
            saved = 1 - self._epochs / (settings.epochs * done)
            parts.append(f"{100 * max(saved, 0.0):.0f} % of the epochs saved")
        if (left := self._left(standing, now)) is not None:
            parts.append(f"{_duration(left)} left")
        return ", ".join(parts)

    def _left(self, standing: Standing, now: float) -> float | None:
        """Return the seconds that the sweep has left, as far as its trials so far tell."""
        settings = standing.sweep.settings
        done = len(standing.ended) - self._earlier
        spent = now - self._begun
        left = []
        if settings.trials is not None and done > standing.sweep.experiment.max_concurrent:
            left.append((settings.trials - len(standing.ended)) * spent / done)
        if settings.seconds is not None:
            left.append(max(settings.seconds - spent, 0.0))
        return min(left, default=None)

    def _count(self, trial: Trial, goals: Sequence[Objective]) -> None:
        self._ends[trial.ending.state] += 1
        self._epochs += trial.epochs
        if not trial.result or len(goals) > 1:
            return
        sign = 1 if goals[0].direction == "maximize" else -1
        if self._best is None or sign * trial.result[0] > sign * self._best.result[0]:
            self._best = trial


def _show(conductor: SweepRunner, over: threading.Event) -> None:
    """Show the sweep until it is over."""
    view = SweepView(conductor.standing(), time.monotonic())
    if not console.is_terminal:
        _show_lines(conductor, view, over)
        return
    with Live(console=console, auto_refresh=False, transient=True) as live:
        last = False
        while not last:
            last = over.wait(_LOOK)
            standing = conductor.standing()
            for line in view.ends(standing):
                live.console.print(line)
            text = Text(view.summary(standing, time.monotonic()))
            live.update(Group(_table(standing), text), refresh=True)


def _show_lines(conductor: SweepRunner, view: SweepView, over: threading.Event) -> None:
    """Print a line whenever a trial ends, and a summary at each tenth of them."""
    tenths = 0
    last = False
    while not last:
        last = over.wait(_LOOK)
        standing = conductor.standing()
        for line in view.ends(standing):
            console.print(line, soft_wrap=True)
        trials = standing.sweep.settings.trials
        reached = 10 * len(standing.ended) // trials if trials else 0
        if reached > tenths and not last:
            tenths = reached
            console.print(view.summary(standing, time.monotonic()), soft_wrap=True)


def _table(standing: Standing) -> Table:
    """Return the table of the running trials."""
    settings = standing.sweep.settings
    table = Table(header_style="bold", box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for name in ("running", "epoch", settings.goals[0].metric, "parameters"):
        table.add_column(name, no_wrap=True)
    of = f" of {settings.epochs}" if settings.epochs is not None else ""
    for trial in standing.running[:_ROWS]:
        value = trial.values.get(trial.epochs)
        shown = "" if value is None else f"{value:.4g}"
        table.add_row(trial.name, f"{trial.epochs}{of}", shown, trial.configuration)
    return table


def _end(trial: Trial, goals: Sequence[Objective], epochs: int | None) -> Text:
    """Return how a trial ended, in a line."""
    of = f" of {epochs}" if epochs is not None else ""
    values = trial.result or tuple(trial.values.values())[-1:]
    said = ", ".join(
        f"{goal.metric} {value:.4g}" for goal, value in zip(goals, values, strict=False)
    )
    line = Text(f"{trial.name}   epoch {trial.epochs}{of}   {said}{'   ' if said else ''}")
    line.append(trial.ending.state, style=STYLES[trial.ending.state])
    if trial.ending.rule:
        line.append(f" by {trial.ending.rule}")
    if trial.ending.reason:
        line.append(f": {trial.ending.reason}")
    return line


def _duration(seconds: float) -> str:
    """Return a time in the unit that fits it."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
