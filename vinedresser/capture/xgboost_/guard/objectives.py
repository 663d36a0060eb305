"""What custom objectives are called, and how XGBoost calls them."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Self

from xgboost.objective import Objective

__all__ = ["Call", "ObjectiveName"]

Call = Literal["native", "estimator", "object"]


@dataclass(frozen=True)
class ObjectiveName:
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
