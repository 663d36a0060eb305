"""What MLflow gets of each step of a run: losses, metrics, and how the training moves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Protocol

import numpy as np

from vinedresser.infra.services.tracking import Bounding, MetricNames
from vinedresser.infra.services.tracking.metric_names import clean_key
from vinedresser.store.collections.collection import ACCURACY
from vinedresser.store.finding import Finding
from vinedresser.store.reading.step import Step
from vinedresser.store.records import ControlRecord, SystemRecord

__all__ = ["MetricPoints", "control_points", "rule_points", "system_points"]

# MLflow's page becomes slow with more than about 30 charts: scalars, dynamics, rules, controls.
_MOST_SCALARS = 20
_MOST_SHARES = 10
_MOST_RULES = 6
_MOST_CONTROLS = 4
# All of a machine with two GPUs.
_MOST_SYSTEM = 14
_SEVERITIES = ("stop", "warning", "info")


class _Log(Protocol):
    """Sends a point, such as `MetricSink.log`."""

    def __call__(self, key: str, value: float, *, step: int, time: float) -> object: ...


class MetricPoints:
    """Sends the metrics of steps.

    These are losses and metrics (at most 20 of them), the shares of the first ten classes that a
    mixture feeds (``train/fed/<class>``), and of training steps of rank 0, where
    captured: ``training/gradient_norm`` (Euclidean, over the captured gradients),
    ``training/update_ratio`` (median over the weights of |update| / |weight|),
    ``training/learning_rate`` (of the first parameter group) and ``training/step_seconds``. Losses
    and the first two are bounded (`Bounding`). Of the others, infinities are not sent: MLflow's
    databases replace them by the largest number, ±1.8e308.
    """

    def __init__(self, log: _Log) -> None:
        self._log = log
        self._names = MetricNames(_MOST_SCALARS)
        self._shares = MetricNames(_MOST_SHARES)
        self._bounds: dict[str, Bounding] = {}
        # Number of infinities of each other metric, and the first one with its step.
        self._infinite: dict[str, tuple[int, float, int]] = {}

    @property
    def bounded(self) -> dict[str, str]:
        """A tag for each metric of which values were not sent as they are."""
        notes = {f"bounded.{key}": one.note for key, one in self._bounds.items()}
        for key, (count, first, step) in self._infinite.items():
            more = f", and {count - 1:,} more" if count > 1 else ""
            notes[f"infinite.{key}"] = f"{first} at step {step:,}{more}; not sent"
        return {key: note for key, note in notes.items() if note}

    def add(self, step: Step) -> None:
        """Send the metrics of a step."""
        for collection in ("losses", "metrics"):
            for name, value in step.scalars_of(collection).items():
                key = self._names.key(name, step.mode)
                if key is not None:
                    self._send(key, value, step, bound=collection == "losses")
        for name, value in step.scalars_of("saved").items():
            fed = name.removeprefix("saved/")
            key = self._shares.key(fed, step.mode) if fed.startswith("fed/") else None
            if name.startswith(ACCURACY):
                key = self._names.key(name, step.mode)
            if key is not None:
                self._send(key, value, step, bound=False)
        if step.mode == "train" and step.rank == 0:
            for key, value in _dynamics(step).items():
                self._send(key, value, step, bound=key in _BOUNDED)

    def close(self) -> None:
        """Send what waits."""
        for bound in self._bounds.values():
            bound.close()

    def _send(self, key: str, value: float, step: Step, *, bound: bool) -> None:
        if not bound and math.isinf(value):
            count, first, where = self._infinite.get(key, (0, value, step.step))
            self._infinite[key] = count + 1, first, where
            return
        if not bound:
            self._log(key, value, step=step.step, time=step.time)
            return
        if key not in self._bounds:
            self._bounds[key] = Bounding(partial(self._log, key))
        self._bounds[key].add(value, step=step.step, time=step.time)


def rule_points(findings: Sequence[Finding]) -> dict[str, list[tuple[int, float]]]:
    """Return a 1 at each step at which a rule fired, by key, such as ``rule/overfitting``.

    At most six rules have a key: the most severe ones, then the earliest.

    Returns:
        Step and value of each point by key.
    """
    found: dict[str, list[tuple[int, float]]] = {}
    for finding in sorted(findings, key=lambda one: (_SEVERITIES.index(one.severity), one.step)):
        key = f"rule/{finding.rule}"
        if key in found or len(found) < _MOST_RULES:
            found.setdefault(key, []).append((finding.step, 1.0))
    return found


def control_points(controls: Sequence[ControlRecord]) -> dict[str, list[tuple[int, float]]]:
    """Return each value that was set from outside, by key, such as ``control/lr``.

    At most four parameters have a key, in the order of their first change.

    Args:
        controls: what was changed in a run.

    Returns:
        Step and value (that of the first parameter group) of each change by key.
    """
    found: dict[str, list[tuple[int, float]]] = {}
    for change in controls:
        key = f"control/{change.parameter}"
        if change.new and (key in found or len(found) < _MOST_CONTROLS):
            found.setdefault(key, []).append((change.step, change.new[0]))
    return found


def system_points(record: SystemRecord) -> dict[str, float]:
    """Return the load of a machine under MLflow's keys; at most fourteen, those of two GPUs."""
    values = [(name, value) for name, value in record.values.items() if math.isfinite(value)]
    return {clean_key(f"system/{name}"): value for name, value in values[:_MOST_SYSTEM]}


# Those of the dynamics that grow without bound when a training diverges.
_BOUNDED = ("training/gradient_norm", "training/update_ratio")


def _dynamics(step: Step) -> dict[str, float]:
    """Return the dynamics of a training step by key, as far as they were captured."""
    found: dict[str, float] = {}
    gradients = list(step.reduction_of("gradients", "l2").values())
    if gradients:
        found["training/gradient_norm"] = math.hypot(*gradients)
    ratios = _ratios(step)
    if ratios:
        found["training/update_ratio"] = float(np.median(ratios))
    rates = [
        value
        for name, value in step.scalars_of("optimizer_state").items()
        if name.rpartition("/")[2] in ("lr", "learning_rate")
    ]
    if rates:
        found["training/learning_rate"] = rates[0]
    seconds = step.scalars_of("timing").get("timing/step")
    if seconds is not None:
        found["training/step_seconds"] = seconds
    return found


def _ratios(step: Step) -> list[float]:
    """Return |update| / |weight| of each weight that is not zero."""
    weights = step.reduction_of("weights", "l2")
    ratios = []
    for name, size in step.reduction_of("updates", "l2").items():
        weight = weights.get(f"weights/{name.removeprefix('updates/')}")
        if weight:
            ratios.append(size / weight)
    return ratios
