"""Metrics of a sweep in MLflow, which make its row and its charts."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence

from vinedresser.explain.comparison.compared_run import named_scalars
from vinedresser.objects import Location
from vinedresser.store.reading.reader import open_run
from vinedresser.store.reading.store_runs import runs_in
from vinedresser.sweeps.settings import Objective
from vinedresser.sweeps.trial import Trial

# Besides the course of the objective.
_MOST_SCALARS = 29


def parent_metrics(
    store: Location, goals: Sequence[Objective], trials: Sequence[Trial], best: Sequence[Trial]
) -> Mapping[str, list[tuple[int, float]]]:
    """Return the metrics of a sweep: those of its best trial, and the best value so far by trial.

    Args:
        goals: objectives of the sweep; several have no best trial.
        trials: trials of the sweep, by number.
        best: the best trial, or the Pareto front.

    Returns:
        Step and value of each point by key: last losses and metrics of the best trial under their
        own keys, such as ``eval/accuracy``, and under ``sweep/best_METRIC`` the best value so far,
        whose steps are numbers of trials. {} without a best trial.

    Raises:
        StoreError: the store refused a request.
        CorruptData: a record of the best trial is damaged.
    """
    if len(goals) != 1 or not best:
        return {}
    goal = goals[0]
    better = max if goal.direction == "maximize" else min
    done = [trial for trial in trials if trial.competes]
    values = itertools.accumulate((trial.result[0] for trial in done), better)
    found = {
        f"sweep/best_{goal.metric}": [
            (trial.number, value) for trial, value in zip(done, values, strict=True)
        ]
    }
    # A trial that crashed or was interrupted has several runs.
    own = re.compile(rf"{best[0].name}(-\d+)?")
    runs = [place for place in runs_in(store) if own.fullmatch(place.name)]
    if runs:
        last = max(map(open_run, runs), key=lambda run: run.info.created)
        columns = named_scalars(last)
        for key, column in list(columns.items())[:_MOST_SCALARS]:
            if math.isfinite(column.values[-1]):
                found[key] = [(int(column.steps[-1]), float(column.values[-1]))]
    return found
