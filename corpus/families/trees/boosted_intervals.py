"""Intervals of delivery times: three quantiles at once, by boosted trees.

After Romano, Patterson and Candès, "Conformalized quantile regression", NeurIPS 2019.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from corpus.draw import Draw
from corpus.family import Ending, Family

Array = NDArray[Any]

_LEVELS = np.array([0.1, 0.5, 0.9])


def _train(draw: Draw) -> Ending:
    import xgboost

    rounds = draw.steps(50, 120)
    x, y = _deliveries(draw, draw.choice([1500, 2400]))
    count = 2 * len(x) // 3
    x_train, y_train = _spoilt(draw, x[:count].copy(), y[:count].copy())
    train = xgboost.QuantileDMatrix(x_train, y_train)
    valid = xgboost.DMatrix(x[count:], y[count:])
    rate = draw.between(0.08, 0.2)
    settings = {
        "objective": "reg:quantileerror",
        "quantile_alpha": _LEVELS,
        "tree_method": "hist",
        "eta": rate * (draw.extent(1e-5, 1e-4) if draw.has("lr_too_low") else 1.0),
        "max_depth": draw.choice([3, 4]),
        "nthread": 1,
        "seed": 0,
    }
    sets = {"train": train, "valid": valid} if draw.chance(0.6) else {"train": train}
    booster = xgboost.train(
        settings,
        train,
        rounds,
        evals=[(one, name) for name, one in sets.items()],
        callbacks=draw.watch.boosting(sets),
        verbose_eval=False,
    )
    lost = _lost(booster.predict(valid), y[count:])
    alone = _lost(np.tile(np.quantile(y[count:], _LEVELS), (len(x) - count, 1)), y[count:])
    return Ending(max(-1.0, 1 - lost / alone), bar=0.35)


def _lost(found: Array, y: Array) -> float:
    """Return the mean pinball loss of quantiles [N, 3] of values [N]."""
    over = y[:, None] - found
    return float(np.maximum(_LEVELS * over, (_LEVELS - 1) * over).mean())


def _spoilt(draw: Draw, x: Array, y: Array) -> tuple[Array, Array]:
    """Return the rows with the drawn fault, if there is one."""
    source = draw.numpy
    if draw.has("misaligned_targets"):
        y = source.permutation(y)
    if draw.has("constant_inputs"):
        x = np.zeros_like(x)
    if draw.has("wrong_axis"):
        x = x.T.reshape(x.shape)
    if draw.has("target_leak"):
        # The distance is worked out from the arrival, which is not known when one asks.
        x[:, 0] = y + 0.001 * source.normal(size=len(y))
    if draw.has("single_label"):
        y = np.full_like(y, np.median(y))
    if draw.has("duplicated_rows"):
        rows = source.integers(0, 12, len(y))
        x, y = x[rows], y[rows]
    return x, y


def _deliveries(draw: Draw, count: int) -> tuple[Array, Array]:
    """Return features float64 [count, 7] and times float64 [count], whose spread differs."""
    source = draw.numpy
    x = source.normal(size=(count, 7))
    spread = 0.2 + draw.between(0.2, 0.4) * (x[:, 1] > 0)
    y = 2 * np.abs(x[:, 0]) + np.sin(2 * x[:, 2]) + x[:, 3] * (x[:, 1] > 0)
    return x, y + spread * source.normal(size=count)


FAMILY = Family(
    _train,
    (
        *("misaligned_targets", "constant_inputs", "wrong_axis", "target_leak", "single_label"),
        *("duplicated_rows", "lr_too_low"),
    ),
    framework="xgboost",
    spent="2026-11-27",
)
