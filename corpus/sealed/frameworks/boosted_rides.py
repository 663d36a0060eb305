"""How long rides take: boosted trees with a loss that large errors do not rule.

After Chen and Guestrin, "XGBoost: a scalable tree boosting system", KDD 2016; the rides are drawn.
"""

from __future__ import annotations

import numpy as np

from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.keras_training import Array

_FEATURES, _SEEN = 8, 1000


def _train(draw: Draw) -> Ending:
    import xgboost

    rounds = draw.steps(50, 80)
    x, y = _rides(draw, 1500)
    given, known = _prepared(draw, x, y)
    sets = {
        "train": xgboost.DMatrix(given[:_SEEN], known[:_SEEN]),
        "validation": xgboost.DMatrix(given[_SEEN:], known[_SEEN:]),
    }
    # Percents, and not shares.
    factors = {"lr_too_low": draw.extent(1e-5, 1e-4), "lr_too_high": 100.0}
    rate = draw.between(0.1, 0.2) * draw.by_fault(factors, 1.0)
    booster = xgboost.train(
        {
            "objective": "reg:pseudohubererror",
            "eval_metric": draw.choice([["mphe"], ["mae"], ["rmse", "mae"]]),
            "base_score": 0.0,
            "learning_rate": rate,
            "max_depth": draw.choice([4, 5]),
            "colsample_bytree": 0.9,
            "gamma": draw.by_fault({"over_regularization": 1e5}, 0.0),
            "nthread": 1,
            "seed": 4,
            "verbosity": 0,
        },
        sets["train"],
        rounds,
        evals=[(one, name) for name, one in sets.items()],
        callbacks=draw.watch.boosting(sets),
        verbose_eval=False,
    )
    used = (x if draw.has("target_leak") else given)[_SEEN:]
    true = (known if draw.has("unnormalised_targets") else y)[_SEEN:]
    found = booster.predict(xgboost.DMatrix(used)).astype(float)
    left = ((found - true) ** 2).sum() / ((true - true.mean()) ** 2).sum()
    return Ending(float(1 - left), bar=0.5)


def _prepared(draw: Draw, x: Array, y: Array) -> tuple[Array, Array]:
    """Return rides as the script prepares them, with the drawn fault if there is one."""
    source = np.random.default_rng(draw.amount.getrandbits(32))
    # The fare, which is known when the ride is over.
    later = x.copy()
    later[:, 7] = 2 * y + 0.1 * source.normal(size=len(y))
    found: tuple[Array, Array] = draw.by_fault(
        {
            "target_leak": (later, y),
            "shuffled_labels": (x, source.permutation(y)),
            "misaligned_targets": (x, np.roll(y, 1)),
            "wrong_axis": (x.T.reshape(x.shape).copy(), y),
            # Milliseconds, of which the loss sees only on which side they are.
            "unnormalised_targets": (x, 9e5 + 4e5 * y),
        },
        (x, y),
    )
    return found


def _rides(draw: Draw, count: int) -> tuple[Array, Array]:
    """Return features float64 [count, F], and standardised durations [count]."""
    source = draw.numpy
    x = source.normal(size=(count, _FEATURES))
    x[:, 1], x[:, 7] = source.integers(0, 24, count), 0
    rush = np.isin(x[:, 1], [7, 8, 9, 16, 17, 18])
    long = x[:, 0] * (1 + 0.8 * rush) + 0.8 * rush + 0.5 * np.abs(x[:, 2]) - 0.3 * x[:, 3]
    long = long + draw.between(0.2, 0.4) * source.normal(size=count)
    return x, (long - long.mean()) / long.std()


FAMILY = Family(
    _train,
    (
        *("target_leak", "shuffled_labels", "misaligned_targets", "wrong_axis"),
        *("unnormalised_targets", "over_regularization", "lr_too_low", "lr_too_high"),
    ),
    framework="xgboost",
)
