"""Metrics that XGBoost computed on its evaluation sets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from vinedresser.capture.recording.recording import Recording

__all__ = ["EvalsLog", "is_training_set", "record_metrics"]

# {set: {metric: values by round}}; in cross-validation each value is (mean, standard deviation).
EvalsLog = Mapping[str, Mapping[str, Sequence[Any]]]


def is_training_set(name: str, given: str | None) -> bool:
    """Return whether an evaluation set is the training set.

    Args:
        name: name of the evaluation set.
        given: name of the training set; None for any name that contains "train".
    """
    return "train" in name.lower() if given is None else name == given


def record_metrics(
    recording: Recording, metrics: Mapping[str, Sequence[Any]], data: str, loss: str | None
) -> None:
    """Record the latest value of each metric of one evaluation set.

    Args:
        recording: receives ``metrics/<set>-<metric>``, and ``losses/<set>-<metric>`` for the loss.
        metrics: values by round, by metric.
        data: name of the set.
        loss: the metric that is the loss; None if no metric is.
    """
    for metric, value in _latest(metrics):
        kinds = ["metrics"]
        # A metric may have a parameter, as in tweedie-nloglik@1.5.
        if loss is not None and metric.partition("@")[0] == loss.partition("@")[0]:
            kinds.append("losses")
        for kind in kinds:
            name = f"{kind}/{data}-{metric}"
            if recording.due.ask(name):
                recording.add_scalar(name, value)


def _latest(metrics: Mapping[str, Sequence[Any]]) -> Iterator[tuple[str, float]]:
    """Yield name and latest value of each metric; for a mean over folds, also the deviation."""
    for metric, values in metrics.items():
        if not values:
            continue
        if isinstance(values[-1], tuple):
            mean, deviation = values[-1]
            yield metric, float(mean)
            yield f"{metric}-std", float(deviation)
        else:
            yield metric, float(values[-1])
