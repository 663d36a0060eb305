"""What flats cost a month: boosted trees with histograms, and absolute or squared errors.

After Chen and Guestrin, "XGBoost: a scalable tree boosting system", KDD 2016; the flats are drawn.
"""

from __future__ import annotations

import numpy as np

from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.keras_training import Array

_FEATURES, _SEEN = 9, 1000


def _train(draw: Draw) -> Ending:
    import xgboost

    rounds = draw.steps(50, 80)
    x, y = _flats(draw, 1500)
    given, known = _prepared(draw, x, y)
    seen, labels = given[:_SEEN], known[:_SEEN]
    if draw.has("duplicated_rows"):
        few = np.arange(_SEEN) % 8
        seen, labels = seen[few], labels[few]
    sets = {
        "train": xgboost.DMatrix(seen, labels),
        "valid": xgboost.DMatrix(given[_SEEN:], known[_SEEN:]),
    }
    rate = draw.between(0.1, 0.25) * draw.by_fault({"lr_too_low": draw.extent(1e-5, 1e-4)}, 1.0)
    objectives = ["reg:squarederror", "reg:absoluteerror"]
    if draw.concerns("over_regularization"):
        # The leaves of absolute errors are medians, without a penalty.
        objectives = objectives[:1]
    booster = xgboost.train(
        {
            "objective": draw.choice(objectives),
            "eval_metric": draw.choice([["rmse"], ["mae"]]),
            "tree_method": "hist",
            "eta": rate,
            # A weight that no leaf reaches.
            "max_depth": draw.choice([4, 5]),
            "min_child_weight": draw.by_fault({"too_small_model": 1e5}, 2.0),
            "colsample_bytree": draw.choice([0.8, 1.0]),
            "lambda": draw.by_fault({"over_regularization": 1e7}, 1.0),
            "nthread": 1,
            "seed": 1,
        },
        sets["train"],
        rounds,
        evals=[(one, name) for name, one in sets.items()],
        callbacks=draw.watch.boosting(sets),
        verbose_eval=False,
    )
    used = (x if draw.has("target_leak") else given)[_SEEN:]
    found, true = booster.predict(xgboost.DMatrix(used)), y[_SEEN:]
    left = ((found - true) ** 2).sum() / ((y[:_SEEN].mean() - true) ** 2).sum()
    return Ending(float(1 - left), bar=0.5)


def _prepared(draw: Draw, x: Array, y: Array) -> tuple[Array, Array]:
    """Return flats as the script prepares them, with the drawn fault if there is one."""
    source = np.random.default_rng(draw.amount.getrandbits(32))
    # The deposit, which is agreed on with the rent.
    later = x.copy()
    later[:, 8] = 3 * y + 0.1 * source.normal(size=len(y))
    found: tuple[Array, Array] = draw.by_fault(
        {
            "target_leak": (later, y),
            "shuffled_labels": (x, source.permutation(y)),
            "misaligned_targets": (x, np.roll(y, 1)),
            "constant_inputs": (np.zeros_like(x), y),
        },
        (x, y),
    )
    return found


def _flats(draw: Draw, count: int) -> tuple[Array, Array]:
    """Return features float64 [count, F], and standardised logarithms of rents [count]."""
    source = draw.numpy
    x = source.normal(size=(count, _FEATURES))
    x[:, 1], x[:, 8] = source.integers(0, 8, count), 0
    place = source.normal(size=8)[x[:, 1].astype(int)]
    rent = x[:, 0] + 0.8 * place + 0.5 * np.abs(x[:, 2]) - 0.4 * x[:, 3] * (place > 0)
    rent = rent + draw.between(0.2, 0.4) * source.normal(size=count)
    return x, (rent - rent.mean()) / rent.std()


FAMILY = Family(
    _train,
    (
        *("target_leak", "shuffled_labels", "misaligned_targets", "constant_inputs"),
        *("duplicated_rows", "too_small_model", "over_regularization", "lr_too_low"),
    ),
    framework="xgboost",
    spent="2026-11-28",
)
