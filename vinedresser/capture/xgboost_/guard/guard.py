"""The guard of a training of XGBoost: looks at the gradients of custom objectives."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from xgboost import Booster
from xgboost.objective import Objective

from vinedresser.capture.recording.alarms import Alarm
from vinedresser.capture.recording.session import Session
from vinedresser.capture.recording.snapshot_taker import SnapshotTaker
from vinedresser.capture.xgboost_.guard.updates import (
    ObjectiveCall,
    guard_updates,
    release_updates,
)
from vinedresser.frameworks.xgboost_.objectives import SOURCE, all_finite, environment
from vinedresser.snapshots.arrays import ArrayCodec
from vinedresser.snapshots.trees import Codec

__all__ = ["Call", "ObjectiveGuard", "guard_of"]

# Rows that a finding names.
_MOST_ROWS = 5
Call = Literal["native", "estimator", "object"]


class ObjectiveGuard:
    """Looks at what the custom objectives of a training return, and provides snapshots.

    Args:
        taker: takes the snapshots.
        boosters: the boosters by the prefix of their fold.
    """

    def __init__(
        self, session: Session, taker: SnapshotTaker, boosters: Mapping[str, Booster]
    ) -> None:
        self._taker = taker
        self._report = session.shield.report
        self._boosters = boosters
        self._round: _GuardedRound | None = None
        look = session.shield.guard("the guard, at an objective", self._look, metered=False)
        for booster in boosters.values():
            guard_updates(booster, look)

    @property
    def codec(self) -> Codec:
        """See `SnapshotSource.codec`."""
        return ArrayCodec()

    def remove(self) -> None:
        """Leave the objectives alone again."""
        for booster in self._boosters.values():
            release_updates(booster)
        if self._taker.sources.get(SOURCE) is self:
            del self._taker.sources[SOURCE]

    def contents(self) -> dict[str, Any]:
        """See `SnapshotSource.contents`."""
        return {} if self._round is None else self._round.contents()

    def shared(self) -> dict[str, Any]:
        """See `SnapshotSource.shared`."""
        return {}

    def inexact(self) -> list[str]:
        """See `SnapshotSource.inexact`."""
        found = ["the features are not kept: an objective that reads them cannot run again"]
        if self._round is not None and self._round.call.objective is None:
            found.append("the gradients may be those of other predictions than the booster's own")
        return found

    def environment(self) -> dict[str, Any]:
        """See `SnapshotSource.environment`."""
        return environment()

    def _look(self, call: ObjectiveCall) -> None:
        """Take the snapshots that are due before a round's trees are grown.

        Raises:
            TrainingStopped: a value is not finite, and the settings say so.
        """
        taker, returned = self._taker, call.returned
        taker.sources.setdefault(SOURCE, self)
        if not isinstance(returned, tuple | list) or len(returned) != 2:
            return
        if not all(isinstance(one, np.ndarray) for one in returned):
            self._report("the guard looks only at gradients of objectives that are numpy arrays")
            return
        alarming = taker.guarding and not all(map(all_finite, returned))
        # What an earlier alarm has spoilt tells nothing new.
        alarming = alarming and (not taker.alarmed or all_finite(call.predictions))
        if not (alarming or taker.due()):
            return
        fold = next(fold for fold, one in self._boosters.items() if one is call.booster)
        self._round = _GuardedRound(fold.rstrip("."), call, *returned)
        try:
            if alarming:
                taker.alarm(self._round.alarm())
            else:
                taker.take_periodic()
        finally:
            self._round = None


def guard_of(session: Session, boosters: Mapping[str, Booster]) -> ObjectiveGuard | None:
    """Return the guard of a training; None if nobody wants snapshots.

    Args:
        session: session of the hook.
        boosters: the boosters by the prefix of their fold.
    """
    if session.snapshots is None:
        return None
    return ObjectiveGuard(session, session.snapshots, boosters)


@dataclass(frozen=True)
class _GuardedRound:
    """A round of a booster.

    Attributes:
        fold: name of the fold; "" outside of a cross-validation.
        gradient: [rows], [rows, outputs], or flat [rows * outputs], of any dtype.
        hessian: likewise.
    """

    fold: str
    call: ObjectiveCall
    gradient: NDArray[Any]
    hessian: NDArray[Any]

    def contents(self) -> dict[str, Any]:
        """Return the round as the contents of a snapshot."""
        call, data = self.call, self.call.data
        objective = _ObjectiveName.of(call.objective)
        bounds = ("label_lower_bound", "label_upper_bound")
        return {
            "fold": self.fold,
            "round": call.number,
            "objective": {"name": objective.name, "call": objective.call},
            # `xgboost.Booster(model_file=bytearray(…))` reads it.
            "booster": np.frombuffer(call.booster.save_raw("ubj"), np.uint8),
            "parameters": call.booster.save_config(),
            "predictions": call.predictions,
            "gradient": self.gradient,
            "hessian": self.hessian,
            "bad_rows": np.flatnonzero(
                self._bad_rows(self.gradient) | self._bad_rows(self.hessian)
            ),
            "data": {
                "label": data.get_label(),
                "weight": data.get_weight(),
                "base_margin": data.get_base_margin(),
                **{name: data.get_float_info(name) for name in bounds},
            },
            "groups": data.get_group(),
        }

    def alarm(self) -> Alarm:
        """Return the alarm of a round with values that are not finite."""
        parts = {"gradient": self.gradient, "hessian": self.hessian}
        bad = {word: np.flatnonzero(self._bad_rows(values)) for word, values in parts.items()}
        told = [f"{word} of {self._words(rows)}" for word, rows in bad.items() if rows.size]
        prefix = f"{self.fold}." if self.fold else ""
        # The last one is the finding's.
        tensors = [
            (f"{word}s/{prefix}objective", rows.size)
            for word, rows in reversed(bad.items())
            if rows.size
        ]
        objective = _ObjectiveName.of(self.call.objective)
        inside = f" of {self.fold}" if self.fold else ""
        whose = (
            "Booster.boost gets values"
            if self.call.objective is None
            else f"the objective {objective.name} returned values"
        )
        return Alarm(
            tensors,
            f"{whose} that are not finite in round {self.call.number}{inside}: {', '.join(told)}",
            self._cause(),
            objective.reference,
            "the rows, with labels and predictions",
        )

    def _bad_rows(self, values: NDArray[Any]) -> NDArray[np.bool_]:
        return _nonfinite_rows(values, self.call.data.num_row())

    def _cause(self) -> str:
        if not all_finite(self.call.predictions):
            return "the predictions before the round are not finite already"
        with np.errstate(over="ignore"):
            infinite = np.isinf(np.asarray(self.gradient, np.float32)).any()
        spoils = infinite or np.isnan(self.hessian).any()
        follows = (
            "XGBoost then predicts NaN for all rows"
            if spoils
            else "XGBoost says nothing, and its leaves with such rows have the value 0"
        )
        return (
            "its formula has no finite value there, such as a logarithm, power or quotient at 0, "
            f"or an exponential of a large prediction; {follows}"
        )

    def _words(self, rows: NDArray[Any]) -> str:
        """Return rows in words, such as "2 of 400 rows (3, 17)"."""
        numbers = [str(row) for row in rows[:_MOST_ROWS]]
        more = ", …" if rows.size > _MOST_ROWS else ""
        return f"{rows.size} of {self.call.data.num_row()} rows ({', '.join(numbers)}{more})"


def _nonfinite_rows(values: NDArray[Any], rows: int) -> NDArray[np.bool_]:
    """Return which rows have a value that is not finite as float32: [rows].

    Args:
        values: [rows], [rows, outputs], or flat [rows * outputs], of numbers.
    """
    with np.errstate(over="ignore"):
        finite = np.isfinite(np.asarray(values, np.float32))
    found: NDArray[np.bool_] = np.logical_not(finite.reshape(rows, -1).all(axis=1))
    return found


@dataclass(frozen=True)
class _ObjectiveName:
    """The names of a custom objective.

    Attributes:
        name: its name in the program.
        reference: ``module:name`` if it can be imported, with "MODULE" for that of a script.
        call: how XGBoost calls it: "native", as one of `xgboost.train`, with predictions and
            DMatrix; "estimator", with labels, predictions and ``sample_weight`` if there are
            weights; "object", as an `Objective`, with round, predictions and DMatrix.
    """

    name: str
    reference: str
    call: Call

    @classmethod
    def of(cls, objective: Any) -> Self:
        """Return the names of an objective as it is passed to `xgboost.Booster.update`.

        None stands for the unknown function that computes the gradients for `Booster.boost`.
        """
        if objective is None:
            return cls("", "MODULE:OBJECTIVE", "native")
        call: Call = "object" if isinstance(objective, Objective) else "native"
        if getattr(objective, "__module__", "") == "xgboost.sklearn":
            # The function that makes an estimator's objective one of `xgboost.train`.
            inner = inspect.getclosurevars(objective).nonlocals.get("func")
            if inner is not None:
                objective, call = inner, "estimator"
        importable = not isinstance(objective, partial)
        while isinstance(objective, partial):
            objective = objective.func
        path = getattr(objective, "__qualname__", "")
        importable = importable and path.isidentifier()
        name = path.rpartition(".")[2] or type(objective).__qualname__
        module = getattr(objective, "__module__", "")
        module = "MODULE" if module in ("__main__", "", None) else module
        return cls(name, f"{module}:{name}" if importable else "MODULE:OBJECTIVE", call)
