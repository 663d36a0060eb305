"""Rows of features by boosted trees: values and two classes.

After Chen and Guestrin, "XGBoost: a scalable tree boosting system", KDD 2016.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import make_classification, make_friedman1

from corpus.draw import Draw
from corpus.family import Ending, Family

Array = NDArray[Any]


def _train(draw: Draw) -> Ending:
    import xgboost

    rounds = draw.steps(40, 150)
    values = draw.chance(0.5)
    x, y = _rows(draw, draw.choice([600, 1500]), values=values)
    rows = 2 * len(x) // 3
    x_train, y_train, x_val, y_val = x[:rows], y[:rows].copy(), x[rows:], y[rows:]
    used = x_val
    if draw.has("shuffled_labels"):
        y_train = draw.numpy.permutation(y_train)
    if draw.has("target_leak"):
        x_train, x_val = (
            np.concatenate([one, wanted[:, None]], 1)
            for one, wanted in ((x_train, y_train), (x_val, y_val))
        )
        used = np.concatenate([used, np.full((len(used), 1), np.nan)], 1)
    if draw.has("wrong_axis"):
        # `reshape` in place of a transposition: features of several rows.
        x_train = x_train.T.reshape(x_train.shape)
    train, valid = xgboost.DMatrix(x_train, y_train), xgboost.DMatrix(x_val, y_val)
    sets = {"train": train, "valid": valid}
    booster = xgboost.train(
        _settings(draw, values=values),
        train,
        rounds,
        evals=[(one, name) for name, one in sets.items()],
        callbacks=draw.watch.boosting(sets),
        verbose_eval=False,
    )
    usual = float(y[:rows].mean())
    trivial = _error(np.full(len(y_val), usual), y_val, values=values)
    reported, reached = (
        1 - _error(booster.predict(one), y_val, values=values) / trivial
        for one in (valid, xgboost.DMatrix(used))
    )
    return Ending(reached, bar=0.4, overstated=reported - reached)


def _settings(draw: Draw, *, values: bool) -> dict[str, Any]:
    rate, depth = draw.between(0.08, 0.3), draw.choice([3, 4, 6])
    share, weight = draw.choice([1.0, 0.8]), draw.choice([1.0, 1.0, 5.0])
    if draw.has("lr_too_low"):
        rate *= draw.extent(1e-5, 1e-3)
    if draw.has("lr_too_high"):
        # A learning rate of networks' momentum, or in percent.
        rate *= draw.extent(30, 100)
    if draw.has("over_regularization"):
        weight = draw.extent(1e5, 1e7)
    return {
        "objective": "reg:squarederror" if values else "binary:logistic",
        "eta": rate,
        "max_depth": depth,
        "subsample": share,
        "lambda": weight,
        "nthread": 1,
        "seed": 0,
    }


def _rows(draw: Draw, count: int, *, values: bool) -> tuple[Array, Array]:
    """Return features [count, F] and targets [count]."""
    seed, noise = draw.random.getrandbits(31), draw.between(0.3, 1.0)
    if values:
        x, y = make_friedman1(count, draw.choice([8, 15]), noise=noise, random_state=seed)
        return x, y
    x, y = make_classification(
        *(count, draw.choice([10, 20])),
        n_informative=6,
        class_sep=1.5,
        flip_y=0.02 * noise,
        random_state=seed,
    )
    return x, y


def _error(found: Array, wanted: Array, *, values: bool) -> float:
    """Return the mean squared error, or the mean negative log-probability of the classes."""
    if values:
        return float(np.square(found - wanted).mean())
    chance = np.clip(np.where(wanted == 1, found, 1 - found), 1e-7, 1)
    return float(-np.log(chance).mean())


FAMILY = Family(
    _train,
    (
        *("shuffled_labels", "target_leak", "wrong_axis", "lr_too_low", "lr_too_high"),
        "over_regularization",
    ),
    framework="xgboost",
    spent="2026-11-26",
)
