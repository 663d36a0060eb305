"""How much power a plant needs in the next hour: boosted trees of the hours before, and squares.

After Hong and Fan, "Probabilistic electric load forecasting: a tutorial review", International
Journal of Forecasting 2016; the hours are drawn.
"""

from __future__ import annotations

import numpy as np

from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.keras_training import Array

_BEFORE, _SEEN = 6, 900


def _train(draw: Draw) -> Ending:
    import xgboost

    rounds = draw.steps(50, 90)
    x, y = _hours(draw, 1300)
    given, known = _prepared(draw, x, y)
    seen, labels = given[:_SEEN], known[:_SEEN]
    if draw.has("duplicated_rows"):
        few = np.arange(_SEEN) % 8
        seen, labels = seen[few], labels[few]
    sets = {
        "train": xgboost.DMatrix(seen, labels),
        "valid": xgboost.DMatrix(given[_SEEN:], known[_SEEN:]),
    }
    rate = draw.between(0.08, 0.2) * draw.by_fault({"lr_too_low": draw.extent(1e-5, 1e-4)}, 1.0)
    booster = xgboost.train(
        {
            "objective": draw.choice(["reg:squarederror", "reg:pseudohubererror"]),
            "eval_metric": draw.choice([["rmse"], ["mae"], ["rmse", "mae"]]),
            "learning_rate": rate,
            "max_depth": draw.choice([3, 4]),
            "subsample": draw.choice([0.7, 1.0]),
            "lambda": draw.by_fault({"weight_decay_too_high": 1e7}, 1.0),
            "gamma": draw.by_fault({"over_regularization": 1e6}, 0.0),
            "nthread": 1,
            "seed": 0,
        },
        sets["train"],
        rounds,
        evals=[(one, name) for name, one in sets.items()],
        callbacks=draw.watch.boosting(sets),
        verbose_eval=False,
    )
    found, true = booster.predict(xgboost.DMatrix(given[_SEEN:])), y[_SEEN:]
    left = ((found - true) ** 2).sum() / ((y[:_SEEN].mean() - true) ** 2).sum()
    return Ending(float(1 - left), bar=0.5)


def _prepared(draw: Draw, x: Array, y: Array) -> tuple[Array, Array]:
    """Return hours as the script prepares them, with the drawn fault if there is one."""
    source = np.random.default_rng(draw.amount.getrandbits(32))
    found: tuple[Array, Array] = draw.by_fault(
        {
            "shuffled_labels": (x, source.permutation(y)),
            # By half a day.
            "wrong_shift": (x, np.roll(y, 12)),
            "constant_inputs": (np.zeros_like(x), y),
            "wrong_axis": (x.T.reshape(x.shape).copy(), y),
        },
        (x, y),
    )
    return found


def _hours(draw: Draw, count: int) -> tuple[Array, Array]:
    """Return loads before, the hour and the temperature [count, F], and loads [count]."""
    source = draw.numpy
    hour = np.arange(count + _BEFORE)
    warm = np.cumsum(source.normal(size=len(hour))) * 0.2
    warm = warm - np.convolve(warm, np.ones(100) / 100, "same")
    load = 1.2 * np.sin(2 * np.pi * hour / 24) + 0.6 * np.abs(warm)
    noise = draw.between(0.2, 0.35) * source.normal(size=len(hour))
    for one in range(1, len(hour)):
        noise[one] += 0.7 * noise[one - 1]
    load = load + noise
    before = [load[_BEFORE - lag : len(hour) - lag] for lag in range(1, _BEFORE + 1)]
    x = np.stack([*before, hour[_BEFORE:] % 24, warm[_BEFORE:]], 1)
    return x, load[_BEFORE:]


FAMILY = Family(
    _train,
    (
        *("wrong_shift", "shuffled_labels", "constant_inputs", "wrong_axis"),
        *("duplicated_rows", "weight_decay_too_high", "over_regularization", "lr_too_low"),
    ),
    framework="xgboost",
    spent="2026-11-28",
)
