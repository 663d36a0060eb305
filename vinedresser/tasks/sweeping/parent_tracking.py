"""A sweep in MLflow: metrics for its row and its charts, and the tag of its Pareto front."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence

from vinedresser.errors import VinedresserError
from vinedresser.explain.comparison.compared_run import named_scalars
from vinedresser.infra.catalog.known_tracking import require_known
from vinedresser.infra.catalog.run_notes import stored_tracking
from vinedresser.infra.services.tracking import set_tags, tags_of
from vinedresser.objects import Location, open_storage
from vinedresser.store.reading.reader import open_run
from vinedresser.store.reading.store_runs import runs_in
from vinedresser.store.records import TrackingRecord
from vinedresser.sweeps.settings import Objective
from vinedresser.sweeps.trial import Trial
from vinedresser.tasks.lifecycle.earlier_runs import runs_of_trial

__all__ = ["PARETO_TAG", "parent_metrics", "tag_front"]

# Besides the course of the objective.
_MOST_SCALARS = 29

PARETO_TAG = "sweep.pareto"
# Of MLflow's run of a trial: "true", or "false" if it was on the front before.
_TAG = "pareto"


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


def tag_front(store: Location, tracking: TrackingRecord, front: tuple[Trial, ...]) -> list[str]:
    """Tag MLflow's runs of the trials on the front, and of those that were on it before.

    Args:
        tracking: MLflow's run of the sweep, as the trials' parent.
        front: the trials on the Pareto front.

    Returns:
        A sentence if MLflow did not accept it.
    """
    try:
        uri = require_known(store, tracking.uri)
        before = tags_of(uri, tracking.parent).get(PARETO_TAG, "")
        names = {trial.name: "true" for trial in front}
        changes = dict.fromkeys(filter(None, before.split(", ")), "false") | names
        for name, value in changes.items():
            runs = runs_of_trial(store, name)
            record = stored_tracking(runs[-1], open_storage(runs[-1])) if runs else None
            if record is not None:
                set_tags(uri, record.run_id, {_TAG: value})
    except VinedresserError as error:
        return [f"the tag {_TAG} of the trials on the Pareto front is not in MLflow: {error}"]
    return []
