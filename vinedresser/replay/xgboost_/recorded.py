"""The recorded call of a custom objective."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xgboost import DMatrix

from vinedresser.errors import CorruptData
from vinedresser.frameworks.xgboost_.objectives import SOURCE
from vinedresser.snapshots.arrays import ArrayCodec
from vinedresser.snapshots.reading import Snapshot
from vinedresser.store.json_values import DAMAGE

__all__ = ["RecordedRound", "recorded_round"]


@dataclass(frozen=True)
class RecordedRound:
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


def recorded_round(snapshot: Snapshot) -> RecordedRound:
    """Return the round of a snapshot.

    Raises:
        CorruptData: it is damaged.
        StoreError: the storage refused.
    """
    models = snapshot.value(snapshot.record.contents.get("models"), ArrayCodec())
    try:
        one = models[SOURCE]
        found = RecordedRound(
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
