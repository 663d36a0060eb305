"""Looking at gradients that a program computes, before a booster uses them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

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
        objective: the objective; None if the program passes gradients to `Booster.boost`.
        given: copy of the raw predictions that the objective got; None if there is no objective.
        returned: what the objective returned: gradient and Hessian.
    """

    booster: Booster
    number: int
    data: DMatrix
    objective: Any
    given: NDArray[Any] | None
    returned: Any

    @functools.cached_property
    def predictions(self) -> NDArray[Any]:
        """The raw predictions before the round, float32 [rows] or [rows, outputs]."""
        if self.given is not None:
            return self.given
        # The booster keeps predictions for its data, which nobody has asked it for.
        found: NDArray[Any] = self.booster.copy().predict(self.data, output_margin=True)
        return found


Look = Callable[[ObjectiveCall], object]

# Global, since the method is: callbacks do not see the objective.
_looks: WeakKeyDictionary[Booster, Look] = WeakKeyDictionary()
_originals: list[tuple[Callable[..., None], Callable[..., None]]] = []
# Those in a round with an objective, whose gradients older versions of XGBoost pass to `boost`.
_updating: WeakSet[Booster] = WeakSet()


def guard_updates(booster: Booster, look: Look) -> None:
    """Call a function with all that custom objectives return, and with what a program passes.

    Rounds with an objective of XGBoost are left as they are.

    Args:
        look: receives each call; what it returns is ignored.
    """
    _looks[booster] = look
    if not _originals:
        _originals.append((Booster.update, Booster.boost))
        Booster.update = _guarded(Booster.update)  # type: ignore[method-assign]
        Booster.boost = _guarded_boost(Booster.boost)  # type: ignore[method-assign]


def release_updates(booster: Booster) -> None:
    """Leave the objectives of a booster alone again."""
    _looks.pop(booster, None)
    if not _looks and _originals:
        Booster.update, Booster.boost = _originals.pop()  # type: ignore[method-assign]


def _guarded(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def update(self: Booster, dtrain: DMatrix, iteration: int, fobj: Any = None) -> None:
        look = None if fobj is None else _looks.get(self)
        if look is None:
            original(self, dtrain, iteration, fobj)
            return
        _updating.add(self)
        try:
            original(self, dtrain, iteration, _looked_at(fobj, self, iteration, look))
        finally:
            _updating.discard(self)

    return update


def _guarded_boost(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def boost(self: Booster, dtrain: DMatrix, iteration: int, *args: Any, **kwargs: Any) -> None:
        look = None if self in _updating else _looks.get(self)
        # By position in versions of XGBoost before 3.
        given = dict(zip(("grad", "hess"), args, strict=False)) | kwargs
        if look is not None and given.get("fobj") is not None:
            kwargs = kwargs | {"fobj": _looked_at(given["fobj"], self, iteration, look)}
        elif look is not None and given.get("grad") is not None:
            look(
                ObjectiveCall(
                    self, iteration, dtrain, None, None, (given["grad"], given.get("hess"))
                )
            )
        original(self, dtrain, iteration, *args, **kwargs)

    return boost


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
