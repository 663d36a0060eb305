"""A saved view of MLflow's table of runs: verdict, its cause, results, and parameters that differ.

MLflow's UI keeps a saved view in a tag of the experiment: a JSON object with the name of the view,
the times at which it was created and changed, and, as JSON again, the state of the page.
"""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from vinedresser.infra.catalog.tracking_uri import absolute_uri
from vinedresser.infra.services.tracking.client import connected
from vinedresser.infra.services.tracking.runs import NOTE_TAG, PARENT_NAME_TAG

if TYPE_CHECKING:
    from mlflow.entities import Run as MlflowRun

_KEY = "vinedresser"
_VIEW_TAG = f"mlflow.sharedViewState.{_KEY}"
# MLflow shows the first line, and the rest if it is unfolded.
_NOTE = """\
**verdict**: how a run ended and what its rules found; **verdict.since**: first step with the \
symptom; **verdict.cause**: likely cause.

The page of a run says what to try, and has the report of the run. Examples of filters: \
``tags.`verdict.rule` = "nonfinite"``, ``attributes.status = "KILLED"``.
"""

# Widths in pixels, in the order of the columns. A window of 1,400 pixels has room for those up to
# the results while MLflow's assistant is open, as at the first visit, and else for the settings and
# the begin of the cause.
_BEFORE_METRICS = {"tags.`verdict`": 210}
_METRIC_WIDTH, _PARAMETER_WIDTH, _PARENT_WIDTH = 85, 75, 120
_AFTER_METRICS = {
    "tags.`verdict.cause`": 330,
    "duration": 80,
    "tags.`verdict.since`": 100,
    "tags.`verdict.rule`": 180,
}
_NEWEST = 100
_MOST_METRICS, _MOST_PARAMETERS = 2, 3
# What the hook and the rules measure in every run, and the course of a sweep.
_NOT_RESULTS = ("training/", "rule/", "sweep/", "system/")


def save_verdict_view(uri: str, experiment_id: str) -> str:
    """Save the view "Verdicts" of an experiment, and describe its columns in the experiment's note.

    A view that the user has changed and a note that exists are kept. Saving it again adds the
    metrics of newer runs.

    Returns:
        The key of the view, for `mlflow_page`.

    Raises:
        TrackingError: the server or its database refused or is unavailable.
    """
    with connected(absolute_uri(uri)) as client:
        tags = client.get_experiment(experiment_id).tags
        created = _created(tags.get(_VIEW_TAG, ""))
        if created is not None:
            newest = client.search_runs([experiment_id], max_results=_NEWEST)
            view = _view(newest, created)
            client.set_experiment_tag(experiment_id, _VIEW_TAG, view)
        if NOTE_TAG not in tags:
            client.set_experiment_tag(experiment_id, NOTE_TAG, _NOTE)
    return _KEY


def _created(saved: str) -> int | None:
    """Return when a view was created, in ms since the epoch; None if the user has changed it."""
    try:
        view = json.loads(saved)
        created, updated = int(view["createdAt"]), int(view["updatedAt"])
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        # There is none, or MLflow could not read it either.
        return round(time.time() * 1000)
    return created if created == updated else None


def _view(newest: Sequence[MlflowRun], created: int) -> str:
    """Return the value of the tag for the newest runs of an experiment."""
    parents = {run.data.tags.get(PARENT_NAME_TAG) for run in newest} - {None}
    # Trials of two sweeps have the same names.
    widths = {f"tags.`{PARENT_NAME_TAG}`": _PARENT_WIDTH} if len(parents) > 1 else {}
    widths |= _BEFORE_METRICS
    widths |= {f"metrics.`{key}`": _METRIC_WIDTH for key in _main_metrics(newest)}
    widths |= {f"params.`{key}`": _PARAMETER_WIDTH for key in _differing_parameters(newest)}
    widths |= _AFTER_METRICS
    state = {
        # Under this name of the start time MLflow lists trials beside their sweep; under the usual
        # one it folds them away.
        "orderByKey": "attributes.`Created`",
        "orderByAsc": False,
        "selectedColumns": [column for column in widths if "." in column],
        "columnOrder": list(widths),
        "columnWidths": widths,
    }
    view = {"name": "Verdicts", "createdAt": created, "updatedAt": created}
    return json.dumps({**view, "state": json.dumps(state)})


def _main_metrics(newest: Sequence[MlflowRun]) -> list[str]:
    """Return the keys of a loss and of the metrics that most of the newest runs have."""
    counts = Counter(
        key for run in newest for key in run.data.metrics if not key.startswith(_NOT_RESULTS)
    )
    ranked = sorted(counts, key=lambda key: (-counts[key], not key.startswith("eval/"), key))
    losses = [key for key in ranked if key.endswith("/loss")]
    others = [key for key in ranked if key not in losses]
    return (losses[:1] + others)[:_MOST_METRICS]


def _differing_parameters(newest: Sequence[MlflowRun]) -> list[str]:
    """Return the keys of the parameters of most runs whose values differ between them."""
    values = defaultdict[str, list[str]](list)
    for run in newest:
        for key, value in run.data.params.items():
            values[key].append(value)
    differing = [key for key, found in values.items() if len({*found}) > 1]
    return sorted(differing, key=lambda key: (-len(values[key]), key))[:_MOST_PARAMETERS]
