"""Explaining an alert, in a process with the user's model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from vinedresser.errors import SaliencyError
from vinedresser.explain.alerts.baseline import InputSample, read_sample
from vinedresser.explain.alerts.files import FIGURES
from vinedresser.explain.alerts.map_shift import MapShift, map_shift
from vinedresser.explain.alerts.matching import matched_sample, spread_sample
from vinedresser.explain.alerts.page import ExplanationPage, write_explanation
from vinedresser.explain.alerts.served_model import served_model
from vinedresser.explain.examples.cells import cells
from vinedresser.explain.examples.explained import (
    Explained,
    class_index,
    class_name,
    class_names,
    explain_true,
    explained,
)
from vinedresser.objects import LocalStorage
from vinedresser.serving import Requests, RequestStore


def main(
    *,
    model: dict[str, Any],
    requests: str,
    alert: dict[str, Any],
    explain: dict[str, Any],
    baseline: str,
    destination: str,
) -> None:
    """Write the explanation of an alert: a page, pictures, and the figures as JSON.

    Args:
        model: table ``[model]`` of the monitor.
        requests: where the service records its requests.
        alert: ``name``, ``text``, ``tone``, ``features`` (their texts), and ``ids``: requests of
            the window, and further ones.
        explain: table ``[explain]`` of the monitor.
        baseline: folder of the baseline.
        destination: folder to write to.
    """
    store = RequestStore(requests)
    found = store.inputs_of(alert["ids"])
    known = store.of_ids([*found])
    problems = [*store.problems]
    if len(found) < len(alert["ids"]):
        problems.append(
            f"the service had the inputs of {len(found)} of {len(alert['ids'])} requests"
        )
    served = served_model(model["build"], model["weights"])
    sample = read_sample(Path(baseline))
    now = before = None
    try:
        now = _of_requests(served, known, found, model["classes"], explain)
        before = _of_baseline(served, now, sample, model["classes"], explain)
    except SaliencyError as error:
        problems.append(str(error))
    shift = _shift(now, before) if now is not None and before is not None else None
    groups = [] if now is None else cells(now.classes, now.confidence, now.true)
    page = ExplanationPage(
        alert["name"],
        alert["text"],
        alert["tone"],
        alert["features"],
        shift,
        now,
        before,
        groups,
        problems,
        model["features"] or (),
    )
    folder = Path(destination)
    write_explanation(page, folder)
    figures = {
        "text": page.finding,
        "requests": len(found),
        "shift": None if shift is None else vars(shift),
        "complete": now is not None and now.result.complete,
        "problems": problems,
    }
    LocalStorage(folder).put(FIGURES, [json.dumps(figures, indent=1).encode()])


def _of_requests(
    model: Any, known: Requests, found: dict[str, Any], classes: list[str], explain: dict[str, Any]
) -> Explained:
    """Explain requests whose inputs are there: wrong ones, and others spread over time."""
    if not found:
        raise SaliencyError(
            "the service had no inputs of these requests any more: it keeps the last ones only, "
            "and none after a restart"
        )
    rows = [found[one] for one in known.ids]
    if any(not isinstance(one, np.ndarray) for one in rows) or len({one.shape for one in rows}) > 1:
        raise SaliencyError("inputs that are not arrays of one shape have no saliency")
    predictions = known.columns.get("prediction")
    names = class_names(predictions, len(rows), classes)
    true = [None if label is None else class_name(label, classes) for label in known.labels]
    wrong = [row for row, name in enumerate(names) if true[row] not in (None, name)]
    spread = spread_sample(len(rows), explain["examples"]).tolist()
    chosen = sorted({*spread, *wrong[: explain["examples"]]})
    confidence = known.columns.get("confidence", np.full(len(rows), np.nan))
    made = explained(
        model,
        np.stack([rows[row] for row in chosen]),
        [names[row] for row in chosen],
        None if predictions is None else predictions[chosen],
        confidence=confidence[chosen],
        method=explain["method"],
    )
    made.true[:] = [true[row] for row in chosen]
    targets = {
        place: target
        for place, row in enumerate(chosen)
        if row in wrong and (target := class_index(known.labels[row], classes)) is not None
    }
    explain_true(made, model, targets, explain["method"])
    return made


def _of_baseline(
    model: Any,
    now: Explained,
    sample: InputSample | None,
    classes: list[str],
    explain: dict[str, Any],
) -> Explained:
    """Explain examples of the baseline with the predictions of the requests."""
    if sample is None:
        raise SaliencyError("inputs of the baseline that are not arrays have no saliency")
    names = class_names(np.array(sample.predictions), len(sample.inputs), classes)
    places = matched_sample(now.classes, names, explain["examples"])
    if len(places) < 2:
        raise SaliencyError("the baseline has no examples with the predictions of the requests")
    return explained(
        model,
        sample.inputs[places],
        [names[place] for place in places],
        np.array(sample.predictions)[places],
        confidence=np.full(len(places), np.nan),
        method=explain["method"],
    )


def _shift(now: Explained, before: Explained) -> MapShift | None:
    if len(now.inputs) < 2 or len(before.inputs) < 2:
        return None
    return map_shift(now.looks, before.looks)
