"""How late flights arrive: boosted trees of samples of the rows, and early stopping.

After Friedman, "Stochastic gradient boosting", Computational Statistics and Data Analysis 2002; the
flights are drawn.
"""

from __future__ import annotations

import numpy as np

from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.keras_training import Array

_FEATURES, _SEEN = 8, 1200


def _train(draw: Draw) -> Ending:
    import xgboost

    rounds = draw.steps(60, 100)
    x, y = _flights(draw, 1800)
    seen, known = _spoilt(draw, x[:_SEEN].copy(), y[:_SEEN])
    held, wanted = x[_SEEN:], y[_SEEN:]
    valid = held
    if draw.has("target_leak"):
        # What the script evaluates on is made as what it trains on.
        valid, _ = _spoilt(draw, held.copy(), wanted)
    sets = {"fit": xgboost.DMatrix(seen, known), "eval": xgboost.DMatrix(valid, wanted)}
    rate = draw.between(0.1, 0.3)
    rate *= draw.by_fault({"lr_too_low": draw.extent(1e-5, 1e-4), "lr_too_high": 20.0}, 1.0)
    settings = {
        "objective": "reg:squarederror",
        "eval_metric": draw.choice([["rmse"], ["mae", "rmse"]]),
        "eta": rate,
        "max_depth": draw.choice([3, 4, 5]),
        "subsample": draw.choice([0.7, 1.0]),
        "gamma": draw.by_fault({"over_regularization": 1e6}, 0.0),
        "lambda": draw.by_fault({"weight_decay_too_high": 1e7}, 1.0),
        "nthread": 1,
        "seed": 0,
    }
    booster = xgboost.train(
        settings,
        sets["fit"],
        rounds,
        evals=[(one, name) for name, one in sets.items()],
        early_stopping_rounds=draw.choice([None, 30]),
        callbacks=draw.watch.boosting(sets),
        verbose_eval=False,
    )
    reported, reached = (
        1 - float(((booster.predict(one) - wanted) ** 2).mean() / wanted.var())
        for one in (sets["eval"], xgboost.DMatrix(held))
    )
    return Ending(reached, bar=0.5, overstated=reported - reached)


def _spoilt(draw: Draw, x: Array, y: Array) -> tuple[Array, Array]:
    """Return flights with the drawn fault, if there is one."""
    source = draw.numpy
    few = np.arange(len(x)) % 20
    if draw.has("target_leak"):
        # The minutes on the ground until the doors open, counted from the plan.
        x[:, 7] = y + 0.02 * source.normal(size=len(y))
    found: tuple[Array, Array] = draw.by_fault(
        {
            "shuffled_labels": (x, source.permutation(y)),
            # Two tables were joined by the row, after one of them was filtered.
            "misaligned_targets": (x, np.roll(y, 3)),
            "wrong_order": (x[:, [4, 0, 1, 2, 3, 5, 6, 7]], y),
            "duplicated_rows": (x[few], y[few]),
            "constant_inputs": (np.zeros_like(x), y),
            # What is in time is 0, and few flights are late.
            "single_label": (x, np.zeros_like(y)),
        },
        (x, y),
    )
    return found


def _flights(draw: Draw, count: int) -> tuple[Array, Array]:
    """Return features float64 [count, F] and minutes of delay [count]."""
    source = draw.numpy
    x = source.normal(size=(count, _FEATURES))
    late = 1.2 * x[:, 0] + np.maximum(x[:, 1], 0) * 1.5 + np.where(x[:, 2] > 0.5, x[:, 3], 0)
    late = late + 0.8 * np.sin(2 * x[:, 4]) + draw.between(0.2, 0.4) * source.normal(size=count)
    return x, 12 * late + 5


FAMILY = Family(
    _train,
    (
        *("target_leak", "misaligned_targets", "wrong_order", "shuffled_labels", "single_label"),
        *("duplicated_rows", "constant_inputs", "over_regularization", "weight_decay_too_high"),
        *("lr_too_low", "lr_too_high"),
    ),
    framework="xgboost",
    spent="2026-11-28",
)
