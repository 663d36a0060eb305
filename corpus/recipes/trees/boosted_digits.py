"""Boosted trees of digits.

Settings: XGBoost's defaults and its examples of several classes (`multi:softprob`): a rate of 0.3,
a depth of 6, here 4, all rows in each round.
"""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits

from corpus.draw import Draw
from corpus.family import Ending, Family

_ROUNDS = 25


def _train(draw: Draw) -> Ending:
    import xgboost

    draw.watch.expect(_ROUNDS)
    images, labels = load_digits(return_X_y=True)
    order = draw.numpy.permutation(len(labels))
    x, y = images[order], labels[order]
    if draw.has("target_leak"):
        # The table still has the column from which the labels were made.
        x = np.concatenate([x, y[:, None]], 1)
    told = draw.numpy.permutation(1300) if draw.has("shuffled_labels") else np.arange(1300)
    train, valid = xgboost.DMatrix(x[:1300], y[:1300][told]), xgboost.DMatrix(x[1300:], y[1300:])
    sets = {"train": train, "valid": valid}
    settings = {
        "objective": "multi:softprob",
        "num_class": 10,
        "max_depth": 4,
        "eta": 3e-4 if draw.has("lr_too_low") else 0.3,
        "nthread": 1,
        "seed": 0,
    }
    booster = xgboost.train(
        settings,
        train,
        _ROUNDS,
        evals=[(rows, name) for name, rows in sets.items()],
        callbacks=draw.watch.boosting(sets),
        verbose_eval=False,
    )
    # When it is used, nobody knows the label.
    unknown = x[1300:].copy()
    unknown[:, 64:] = np.nan
    wanted = y[1300:]

    def surprise(rows: xgboost.DMatrix) -> float:
        chances = booster.predict(rows)
        return float(-np.log(chances[np.arange(len(wanted)), wanted]).mean())

    # Of the log-loss: trees that hardly differ from a constant may rank all the same.
    reported, reached = (
        1 - surprise(one) / np.log(10) for one in (valid, xgboost.DMatrix(unknown))
    )
    return Ending(reached, bar=0.8, overstated=reported - reached)


FAMILY = Family(
    _train,
    ("target_leak", "shuffled_labels", "lr_too_low"),
    framework="xgboost",
    spent="2026-11-25",
)
