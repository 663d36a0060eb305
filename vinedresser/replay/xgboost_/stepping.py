"""Calling the objective of a snapshot of XGBoost again, and finding the rows that break it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xgboost
from numpy.typing import NDArray

from vinedresser.capture.run.environment import versions
from vinedresser.errors import ConfigError
from vinedresser.frameworks.xgboost_.objectives import all_finite, environment
from vinedresser.replay.comparing import differing
from vinedresser.replay.referenced import referenced
from vinedresser.replay.results import Bisection, Comparison, SampleTensor
from vinedresser.replay.samples import breaking, numbered
from vinedresser.replay.xgboost_.recorded import RecordedRound, recorded_round
from vinedresser.snapshots.arrays import host_array_of
from vinedresser.snapshots.reading import Snapshot
from vinedresser.snapshots.record import SnapshotRecord
from vinedresser.snapshots.trees import array_digest

__all__ = ["NEEDED", "ObjectiveOutcome", "ReplayedObjective", "bisect", "replay", "sample"]

NEEDED = (
    "--factory MODULE:OBJECTIVE is needed: the custom objective of the training itself "
    "(docs/snapshots.md#xgboost)"
)


@dataclass(frozen=True)
class ObjectiveOutcome:
    """What an objective returned.

    Attributes:
        values: the arrays by "gradient" and "hessian".
    """

    values: dict[str, NDArray[Any]]

    losses = ()
    """An objective returns none."""

    @property
    def nonfinite(self) -> list[tuple[str, str]]:
        """One pair of "" and the names of the arrays that are not finite; [] if both are finite."""
        names = [name for name, one in self.values.items() if not all_finite(one)]
        return [("", " and ".join(names))] if names else []

    @property
    def broken(self) -> bool:
        """Whether a value is not finite."""
        return bool(self.nonfinite)


@dataclass(frozen=True)
class ReplayedObjective:
    """A snapshot of a round whose objective was called again.

    Attributes:
        objective: the objective.
        step: the recorded round.
        outcome: what the objective returned.
        comparison: how that compares with what was recorded.
    """

    objective: Callable[..., Any]
    step: RecordedRound
    outcome: ObjectiveOutcome
    comparison: Comparison


def replay(snapshot: Snapshot, factory: str) -> ReplayedObjective:
    """Call the objective of a snapshot again.

    Args:
        factory: ``module:objective``; the module is looked for in the working directory first.

    Raises:
        ConfigError: the objective does not exist, or returns something else.
        CorruptData: the snapshot is damaged.
        StoreError: the storage refused.
    """
    objective = referenced(factory, "OBJECTIVE")
    step = recorded_round(snapshot)
    outcome = _call(objective, step)
    return ReplayedObjective(objective, step, outcome, _compared(snapshot.record, step, outcome))


def bisect(replayed: ReplayedObjective) -> Bisection | None:
    """Find the rows for which the objective is not finite; None if they cannot be told apart.

    Raises:
        ConfigError: the objective returns something else.
    """
    step = replayed.step
    # Rows of a group belong together.
    if not replayed.outcome.broken or step.groups.size:
        return None

    def breaks(some: Sequence[tuple[int, int]]) -> bool:
        return _call(replayed.objective, step, [row for _, row in some]).broken

    return breaking(numbered([step.rows]), breaks, batches=1, inexact=[])


def sample(replayed: ReplayedObjective, number: int, row: int) -> list[SampleTensor]:  # noqa: ARG001
    """Return what is known of one row.

    Args:
        replayed: the round.
        number: 0.
    """
    step = replayed.step
    given = {"prediction": step.predictions, **step.data}
    given |= {
        name: values.reshape(step.rows, -1) for name, values in replayed.outcome.values.items()
    }
    return [
        SampleTensor(
            name,
            f"{values.dtype.name} {list(values[row].shape)}",
            # The same number under another name is shown, too.
            f"{name} {array_digest(host_array_of(values[row]))}",
            np.atleast_1d(values[row].astype(np.float64)),
        )
        for name, values in given.items()
        if values.size
    ]


def _call(
    objective: Callable[..., Any], step: RecordedRound, rows: Sequence[int] | None = None
) -> ObjectiveOutcome:
    """Call an objective as XGBoost does.

    Args:
        rows: the rows; None: all.

    Raises:
        ConfigError: it returns something else than two arrays.
    """
    # The objective may compute in place.
    predictions = step.predictions.copy() if rows is None else step.predictions[list(rows)]
    data = step.matrix(rows)
    with np.errstate(all="ignore"):
        if step.call == "estimator":
            weights = data.get_weight()
            named = {"sample_weight": weights} if weights.size else {}
            returned = objective(data.get_label(), predictions, **named)
        elif step.call == "object":
            returned = objective(step.number, predictions, data)
        else:
            returned = objective(predictions, data)
    pair = returned if isinstance(returned, tuple | list) else ()
    if len(pair) != 2 or not all(isinstance(one, np.ndarray) for one in pair):
        raise ConfigError(
            f"--factory: the objective returned a {type(returned).__name__}; expected the arrays "
            "of gradient and Hessian"
        )
    return ObjectiveOutcome({"gradient": pair[0], "hessian": pair[1]})


def _compared(record: SnapshotRecord, step: RecordedRound, outcome: ObjectiveOutcome) -> Comparison:
    recorded = {"gradient": step.gradient, "hessian": step.hessian}
    different = [
        name
        for name, values in outcome.values.items()
        if array_digest(host_array_of(values)) != array_digest(host_array_of(recorded[name]))
    ]
    now = versions(xgboost=xgboost.__version__) | environment()
    return Comparison(None, len(recorded), different, differing(record, now), objective=True)
