"""The report of a sweep: one self-contained page."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vinedresser.explain.charts.axes import Size
from vinedresser.explain.reports.sweep.causes import causes
from vinedresser.explain.reports.sweep.charts import coordinates, learning_curves
from vinedresser.explain.reports.templating import write_page
from vinedresser.sweeps.settings import SweepTable
from vinedresser.sweeps.space import Space
from vinedresser.sweeps.trial import LEAST_RESULTS, Trial, saved_share

__all__ = ["SweepPage", "without_links", "write_sweep_report"]

# As the template writes them.
_LINK = re.compile(r'<a class="report" href="[^"]*">([^<]*)</a>')

_SIZE = Size(950.0, 260.0)
# Rows of the table; MLflow has all trials.
_ROWS = 25


@dataclass(frozen=True)
class SweepPage:
    """Contents of the page.

    Attributes:
        name: name of the sweep.
        settings: settings of the sweep.
        space: search space.
        trials: all trials that were started, by number.
        best: the best trial, or the Pareto front.
        importance: importance of each hyperparameter, from 0 to 1; empty if too few trials
            finished.
        over: why the sweep ended.
        reports: reports of trials, by name of the trial, relative to the page.
    """

    name: str
    settings: SweepTable
    space: Space
    trials: Sequence[Trial]
    best: Sequence[Trial]
    importance: Mapping[str, float]
    over: str
    reports: Mapping[str, str] = field(default_factory=dict)

    @property
    def unimportant(self) -> str:
        """Why the importance of hyperparameters cannot be told; "" if it can."""
        if self.importance:
            return ""
        results = {trial.result[0] for trial in self.trials if trial.result}
        known = f"{len(results)}" if results else "none"
        return (
            f"Cannot be told: it needs {LEAST_RESULTS} finished trials with different results, "
            f"and there {'is' if len(results) == 1 else 'are'} {known}."
        )

    @property
    def ends(self) -> Counter[str]:
        """Number of trials by state."""
        return Counter(trial.ending.state for trial in self.trials)

    @property
    def epochs(self) -> int:
        """Epochs of all trials."""
        return sum(trial.epochs for trial in self.trials)

    @property
    def saved(self) -> float | None:
        """The share of the epochs of all trials that was not run; None if unknown.

        Trials that crashed save nothing.
        """
        if self.settings.epochs is None or not self.trials:
            return None
        return saved_share(self.trials, self.settings.epochs)

    def rows(self) -> list[Trial]:
        """Return the trials to list: the best of those with a value."""
        goal = self.settings.goals[0]
        sign = -1 if goal.direction == "maximize" else 1
        known = [trial for trial in self.trials if trial.result or trial.values]
        return sorted(known, key=lambda trial: sign * _value(trial))[:_ROWS]


def write_sweep_report(page: SweepPage, destination: str | os.PathLike[str]) -> Path:
    """Write the page: one self-contained HTML file with a light and a dark theme.

    Args:
        page: contents of the page.
        destination: file to write; replaced atomically.

    Returns:
        Path of the file.

    Raises:
        StoreError: the file cannot be written.
    """
    metric = page.settings.goals[0].metric
    return write_page(
        destination,
        "sweep.html.j2",
        page=page,
        metric=metric,
        value=_value,
        curves=learning_curves(page.trials, _SIZE, f"{metric} of every trial over the epochs"),
        coordinates=coordinates(
            page.trials, page.space, metric, _SIZE, "every configuration as a line"
        ),
        causes=causes(page.trials, page.space, page.best),
    )


def without_links(page: str) -> str:
    """Return the page without its links to the reports of trials, for a copy elsewhere.

    Args:
        page: HTML of `write_sweep_report`.
    """
    return _LINK.sub(r"\1", page)


def _value(trial: Trial) -> float:
    """Return the result of a trial's first objective, or its last reported value."""
    return trial.result[0] if trial.result else list(trial.values.values())[-1]
