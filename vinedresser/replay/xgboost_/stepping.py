"""Calling the objective of a snapshot of XGBoost again, and finding the rows that break it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xgboost
from numpy.typing import NDArray
from xgboost import DMatrix

from vinedresser.capture.run.environment import versions
from vinedresser.errors import ConfigError, CorruptData
from vinedresser.frameworks.xgboost_.objectives import SOURCE, all_finite, environment
from vinedresser.replay.comparing import differing
from vinedresser.replay.referenced import referenced
from vinedresser.replay.results import Bisection, Comparison, SampleTensor
from vinedresser.replay.samples import breaking, numbered
from vinedresser.snapshots.arrays import ArrayCodec, host_array_of
from vinedresser.snapshots.reading import Snapshot
from vinedresser.snapshots.record import SnapshotRecord
from vinedresser.snapshots.trees import array_digest
from vinedresser.store.json_values import DAMAGE

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
        outcome: what the objective returned.
        comparison: how that compares with what was recorded.
    """

    objective: Callable[..., Any]
    step: _RecordedRound
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
    step = _recorded_round(snapshot)
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
    objective: Callable[..., Any], step: _RecordedRound, rows: Sequence[int] | None = None
) -> ObjectiveOutcome:
    """Call an objective as XGBoost does.

    Args:
        rows: the rows; None: all.
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


def _compared(
    record: SnapshotRecord, step: _RecordedRound, outcome: ObjectiveOutcome
) -> Comparison:
    recorded = {"gradient": step.gradient, "hessian": step.hessian}
    different = [
        name
        for name, values in outcome.values.items()
        if array_digest(host_array_of(values)) != array_digest(host_array_of(recorded[name]))
    ]
    now = versions(xgboost=xgboost.__version__) | environment()
    return Comparison(None, len(recorded), different, differing(record, now), objective=True)


@dataclass(frozen=True)
class _RecordedRound:
    """A round whose trees were not grown yet.

    Attributes:
        number: number of the round, from 0.
        call: how XGBoost calls the objective; see `ObjectiveName`.
        predictions: raw predictions, float32 [rows] or [rows, outputs].
        gradient: what the objective returned, of any dtype and shape.
        hessian: likewise.
        data: by name what the training data says of its rows, [rows], [rows, outputs], or empty.
        groups: sizes of the groups of a ranking; empty if there are none.
    """

    number: int
    call: str
    predictions: NDArray[Any]
    gradient: NDArray[Any]
    hessian: NDArray[Any]
    data: dict[str, NDArray[Any]]
    groups: NDArray[Any]

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.predictions)

    def matrix(self, rows: Sequence[int] | None = None) -> DMatrix:
        """Return the training data without its features.

        Args:
            rows: the rows; None: all, with their groups.
        """
        count = self.rows if rows is None else len(rows)
        found = DMatrix(np.zeros((count, 1), np.float32))
        # XGBoost's methods for these two keep the shape.
        shaped = {"label": found.set_label, "base_margin": found.set_base_margin}
        for name, values in self.data.items():
            # Weights of a ranking are those of its groups.
            chosen = values if rows is None or not values.size else values[list(rows)]
            if name in shaped and values.size:
                shaped[name](chosen)
            elif values.size:
                found.set_float_info(name, chosen)
        if rows is None and self.groups.size:
            found.set_group(self.groups)
        return found


def _recorded_round(snapshot: Snapshot) -> _RecordedRound:
    """Return the round of a snapshot.

    Raises:
        StoreError: the storage refused.
    """
    models = snapshot.value(snapshot.record.contents.get("models"), ArrayCodec())
    try:
        one = models[SOURCE]
        found = _RecordedRound(
            int(one["round"]),
            str(one["objective"]["call"]),
            one["predictions"],
            one["gradient"],
            one["hessian"],
            dict(one["data"]),
            one["groups"],
        )
    except DAMAGE as error:
        raise CorruptData(f"{snapshot.location}: not the contents of a round: {error!r}") from error
    arrays = (found.predictions, found.gradient, found.hessian, found.groups, *found.data.values())
    if not all(isinstance(array, np.ndarray) for array in arrays):
        raise CorruptData(f"{snapshot.location}: not the contents of a round: a value is no array")
    sized = [] if found.groups.size else [one for one in found.data.values() if one.size]
    if not found.predictions.shape or any(len(one) != found.rows for one in sized):
        raise CorruptData(f"{snapshot.location}: not the contents of a round: shapes do not match")
    return found
