"""Looking at what custom objectives return, before a booster uses it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from numpy.typing import NDArray
from xgboost import Booster, DMatrix
from xgboost.objective import Objective, TreeObjective

__all__ = ["Look", "ObjectiveCall", "guard_updates", "release_updates"]


@dataclass(frozen=True)
class ObjectiveCall:
    """A call of a custom objective, whose result the booster has not used yet.

    Attributes:
        booster: the booster before the round.
        number: number of the round, from 0.
        data: the training data.
        objective: the objective.
        predictions: copy of the raw predictions, float32 [rows] or [rows, outputs].
        returned: what the objective returned: gradient and Hessian.
    """

    booster: Booster
    number: int
    data: DMatrix
    objective: Any
    predictions: NDArray[Any]
    returned: Any


Look = Callable[[ObjectiveCall], object]

# Global, since the method is: callbacks do not see the objective.
_looks: WeakKeyDictionary[Booster, Look] = WeakKeyDictionary()
_originals: list[Callable[..., None]] = []


def guard_updates(booster: Booster, look: Look) -> None:
    """Call a function with all that a booster's custom objectives return.

    Rounds with an objective of XGBoost are left as they are.

    Args:
        booster: the booster.
        look: receives each call; what it returns is ignored.
    """
    _looks[booster] = look
    if not _originals:
        _originals.append(Booster.update)
        Booster.update = _guarded(Booster.update)  # type: ignore[method-assign]


def release_updates(booster: Booster) -> None:
    """Leave the objectives of a booster alone again."""
    _looks.pop(booster, None)
    if not _looks and _originals:
        Booster.update = _originals.pop()  # type: ignore[method-assign]


def _guarded(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def update(self: Booster, dtrain: DMatrix, iteration: int, fobj: Any = None) -> None:
        look = None if fobj is None else _looks.get(self)
        if look is not None:
            fobj = _looked_at(fobj, self, iteration, look)
        original(self, dtrain, iteration, fobj)

    return update


def _looked_at(objective: Any, booster: Booster, number: int, look: Look) -> Any:
    """Return an objective of the same kind, whose results a function looks at."""

    def called(predictions: NDArray[Any], data: DMatrix, *first: int) -> Any:
        # The objective may compute in place.
        before = predictions.copy()
        found = objective(*first, predictions, data)
        look(ObjectiveCall(booster, number, data, objective, before, found))
        return found

    if isinstance(objective, TreeObjective):
        return _TreeObjective(objective, called)
    if isinstance(objective, Objective):
        return _Objective(objective, called)
    return called


class _Objective(Objective):
    """An `Objective` that is looked at; see `_looked_at`."""

    def __init__(self, objective: Any, called: Callable[..., Any]) -> None:
        self._objective = objective
        self._called = called

    def __call__(self, iteration: int, y_pred: Any, dtrain: DMatrix) -> Any:
        """See `Objective`."""
        return self._called(y_pred, dtrain, iteration)


class _TreeObjective(_Objective, TreeObjective):
    """A `TreeObjective` that is looked at."""

    def split_grad(self, iteration: int, grad: Any, hess: Any) -> Any:
        """See `TreeObjective`."""
        return self._objective.split_grad(iteration, grad, hess)
