"""Which quality tasters give to oils: boosted trees of several classes, on part of the rows.

After Cortez et al., "Modeling wine preferences by data mining from physicochemical properties",
Decision Support Systems 2009; the oils are drawn.
"""

from __future__ import annotations

import numpy as np

from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.keras_training import Array
from corpus.loop import gained

_FEATURES, _GRADES, _SEEN = 9, 4, 900


def _train(draw: Draw) -> Ending:
    import xgboost

    rounds = draw.steps(25, 40)
    x, y = _oils(draw, 1400)
    given, known = _prepared(draw, x, y)
    seen, labels = given[:_SEEN], known[:_SEEN]
    if draw.has("class_imbalance"):
        kept = (labels == 1) | (np.arange(_SEEN) % 60 == 0)
        seen, labels = seen[kept], labels[kept]
    if draw.has("duplicated_rows"):
        few = np.arange(_SEEN) % 10
        seen, labels = seen[few], labels[few]
    sets = {
        "train": xgboost.DMatrix(seen, labels),
        "eval": xgboost.DMatrix(given[_SEEN:], known[_SEEN:]),
    }
    rate = draw.between(0.15, 0.3) * draw.by_fault({"lr_too_low": draw.extent(1e-5, 1e-4)}, 1.0)
    booster = xgboost.train(
        {
            "objective": draw.choice(["multi:softprob", "multi:softmax"]),
            "num_class": _GRADES,
            "eval_metric": draw.choice([["mlogloss"], ["merror"], ["mlogloss", "merror"]]),
            "eta": rate,
            "max_depth": draw.choice([4, 5]),
            # No node has so many rows.
            "min_child_weight": draw.by_fault({"too_small_model": 1e5}, 1.0),
            "subsample": 0.8,
            "alpha": draw.by_fault({"over_regularization": 1e5}, 0.0),
            "nthread": 1,
            "seed": 3,
            "verbosity": 0,
        },
        sets["train"],
        rounds,
        evals=[(one, name) for name, one in sets.items()],
        callbacks=draw.watch.boosting(sets),
        verbose_eval=False,
    )
    used = (x if draw.has("target_leak") else given)[_SEEN:]
    found, true = booster.predict(xgboost.DMatrix(used)), y[_SEEN:]
    if found.ndim == 2:
        found = found.argmax(1)
    right = np.mean([np.mean(found[true == one] == one) for one in range(_GRADES)])
    return Ending(gained(float(right), 1 / _GRADES), bar=0.45)


def _prepared(draw: Draw, x: Array, y: Array) -> tuple[Array, Array]:
    """Return oils as the script prepares them, with the drawn fault if there is one."""
    source = np.random.default_rng(draw.amount.getrandbits(32))
    # The price, which follows from the quality.
    later = x.copy()
    later[:, 8] = y + 0.1 * source.normal(size=len(y))
    wrong = source.random(len(y)) < 0.8
    found: tuple[Array, Array] = draw.by_fault(
        {
            "target_leak": (later, y),
            "shuffled_labels": (x, source.permutation(y)),
            "label_noise": (x, np.where(wrong, source.integers(0, _GRADES, len(y)), y)),
            "constant_inputs": (np.ones_like(x), y),
        },
        (x, y),
    )
    return found


def _oils(draw: Draw, count: int) -> tuple[Array, Array]:
    """Return features float64 [count, F] and grades int64 [count]."""
    source = draw.numpy
    x = source.normal(size=(count, _FEATURES))
    x[:, 8] = 0
    taste = x[:, 0] + 1.2 * np.abs(x[:, 1]) - x[:, 2] * (x[:, 3] > 0) + 0.6 * x[:, 4]
    taste = taste + draw.between(0.1, 0.2) * source.normal(size=count)
    return x, np.searchsorted(np.quantile(taste, [0.2, 0.5, 0.8]), taste)


FAMILY = Family(
    _train,
    (
        *("target_leak", "shuffled_labels", "label_noise", "constant_inputs", "class_imbalance"),
        *("duplicated_rows", "too_small_model", "over_regularization", "lr_too_low"),
    ),
    framework="xgboost",
)
