"""Claims of insured cars, many of them none: boosted trees with a custom objective.

After Jørgensen and Paes de Souza, "Fitting Tweedie's compound Poisson model to insurance claims
data", Scandinavian Actuarial Journal 1994, by gradients and Hessians that are written by hand.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from corpus.draw import Draw
from corpus.family import Ending, Family

Array = NDArray[Any]

_POWER = 1.5


def _train(draw: Draw) -> Ending:
    import xgboost

    rounds = draw.steps(60, 110)
    x, y, risk = _cars(draw, draw.choice([2400, 3000]))
    count = 2 * len(x) // 3
    x_train, y_train = _spoilt(draw, x[:count].copy(), y[:count].copy())
    train = xgboost.DMatrix(x_train, y_train)
    valid = xgboost.DMatrix(x[count:], y[count:])
    rate = draw.between(0.1, 0.2)
    rate *= draw.by_fault({"lr_too_low": draw.extent(1e-6, 1e-5)}, 1.0)
    settings = {
        "eta": rate,
        "max_depth": draw.choice([2, 3]),
        "min_child_weight": 10,
        "lambda": draw.by_fault({"weight_decay_too_high": 1e8}, 1.0),
        "base_score": 0.0,
        "disable_default_eval_metric": True,
        "nthread": 1,
        "seed": 0,
    }

    def objective(margin: Array, rows: Any) -> tuple[Array, Array]:
        """Return the derivatives of the deviance, of the logarithm of a claim."""
        known = rows.get_label()
        # Both parts of the derivative by the logarithm of the claim.
        paid = known * np.exp((1 - _POWER) * margin)
        expected = np.exp((2 - _POWER) * margin)
        gradient = expected - paid
        if draw.has("wrong_sign"):
            gradient = -gradient
        return gradient, (2 - _POWER) * expected - (1 - _POWER) * paid

    def metric(margin: Array, rows: Any) -> tuple[str, float]:
        return "deviance", _deviance(np.exp(np.clip(margin, -30, 30)), rows.get_label())

    sets = {"train": train, "valid": valid} if draw.chance(0.7) else {"train": train}
    booster = xgboost.train(
        settings,
        train,
        rounds,
        obj=objective,
        custom_metric=metric,
        evals=[(one, name) for name, one in sets.items()],
        callbacks=draw.watch.boosting(sets),
        verbose_eval=False,
    )
    found = np.exp(np.clip(booster.predict(valid, output_margin=True), -30, 30))
    lost = _deviance(found, y[count:])
    alone = _deviance(np.full(len(found), y[:count].mean()), y[count:])
    best = _deviance(risk[count:], y[count:])
    return Ending(max(-1.0, (alone - lost) / (alone - best)), bar=0.5)


def _deviance(found: Array, known: Array) -> float:
    """Return the mean Tweedie deviance, less what depends on the claims alone."""
    paid = known * found ** (1 - _POWER) / (1 - _POWER)
    return float(np.mean(2 * (found ** (2 - _POWER) / (2 - _POWER) - paid)))


def _spoilt(draw: Draw, x: Array, y: Array) -> tuple[Array, Array]:
    """Return the rows with the drawn fault, if there is one."""
    source = draw.numpy
    if draw.has("misaligned_targets"):
        y = source.permutation(y)
    if draw.has("constant_inputs"):
        x = np.zeros_like(x)
    if draw.has("single_label"):
        # Those that claimed something are in another table.
        y = np.full_like(y, 0.001)
    if draw.has("target_leak"):
        # What was paid to the garage, which is known later.
        x[:, 5] = y + 0.01 * source.normal(size=len(y))
    if draw.has("duplicated_rows"):
        rows = source.integers(0, 15, len(y))
        x, y = x[rows], y[rows]
    if draw.has("unnormalised_targets"):
        # In cents, which the start at a claim of one does not know.
        y = 1e7 * y
    return x, y


def _cars(draw: Draw, count: int) -> tuple[Array, Array, Array]:
    """Return features float64 [count, 6], claims [count], and their expectations [count]."""
    source = draw.numpy
    x = source.normal(size=(count, 6))
    risk = np.exp(0.9 * x[:, 0] - 0.8 * (x[:, 1] > 0.5) + 0.5 * np.sin(2 * x[:, 2]) + 0.2)
    number = source.poisson(1.5 * np.sqrt(risk))
    shape = draw.between(2, 4)
    each = source.gamma(np.maximum(shape * number, 1e-9), np.sqrt(risk) / (1.5 * shape))
    return x, np.where(number > 0, each, 0.0), risk


FAMILY = Family(
    _train,
    (
        *("misaligned_targets", "constant_inputs", "single_label", "target_leak"),
        *("duplicated_rows", "unnormalised_targets", "lr_too_low", "weight_decay_too_high"),
        "wrong_sign",
    ),
    framework="xgboost",
    spent="2026-11-27",
)
