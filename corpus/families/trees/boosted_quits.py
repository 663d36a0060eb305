"""Who will leave a firm within a year: boosted trees that are dropped at random, and rare leavers.

After Rashmi and Gilad-Bachrach, "DART: dropouts meet multiple additive regression trees", AISTATS
2015; the employees are drawn.
"""

from __future__ import annotations

import numpy as np

from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.keras_training import Array
from corpus.loop import gained

_FEATURES, _SEEN = 10, 900


def _train(draw: Draw) -> Ending:
    import xgboost

    rounds = draw.steps(40, 60)
    x, y = _employees(draw, 1400)
    given, known = _prepared(draw, x, y)
    seen, labels = given[:_SEEN], known[:_SEEN]
    if draw.has("class_imbalance"):
        kept = (labels == 0) | (np.arange(_SEEN) % 70 == 0)
        seen, labels = seen[kept], labels[kept]
    if draw.has("single_label"):
        # Only who is still there was in the table.
        seen, labels = seen[labels == 0], labels[labels == 0]
    sets = {
        "train": xgboost.DMatrix(seen, labels),
        "test": xgboost.DMatrix(given[_SEEN:], known[_SEEN:]),
    }
    rate = draw.between(0.15, 0.3) * draw.by_fault({"lr_too_low": draw.extent(1e-5, 1e-4)}, 1.0)
    booster = xgboost.train(
        {
            "booster": draw.choice(["gbtree", "dart"]),
            "rate_drop": 0.1,
            "objective": "binary:logistic",
            "eval_metric": draw.choice([["logloss"], ["auc"], ["logloss", "error"]]),
            "learning_rate": rate,
            "max_depth": draw.choice([3, 4]),
            "gamma": draw.by_fault({"over_regularization": 1e5}, 0.1),
            "scale_pos_weight": draw.by_fault({"weights_reversed": 1e-3}, 3.0),
            "nthread": 1,
            "seed": 2,
            "verbosity": 0,
        },
        sets["train"],
        rounds,
        evals=[(one, name) for name, one in sets.items()],
        callbacks=draw.watch.boosting(sets),
        verbose_eval=False,
    )
    used = (x if draw.has("target_leak") else given)[_SEEN:]
    found, true = booster.predict(xgboost.DMatrix(used)) > 0.5, y[_SEEN:] > 0.5
    right = np.mean([np.mean(found[true == one] == one) for one in (False, True)])
    return Ending(gained(float(right), 1 / 2), bar=0.5)


def _prepared(draw: Draw, x: Array, y: Array) -> tuple[Array, Array]:
    """Return employees as the script prepares them, with the drawn fault if there is one."""
    source = np.random.default_rng(draw.amount.getrandbits(32))
    # The talk that is held with those who leave.
    later = x.copy()
    later[:, 9] = y
    found: tuple[Array, Array] = draw.by_fault(
        {
            "target_leak": (later, y),
            "shuffled_labels": (x, source.permutation(y)),
            "label_noise": (x, np.where(source.random(len(y)) < 0.42, 1 - y, y)),
            "wrong_axis": (x.T.reshape(x.shape).copy(), y),
        },
        (x, y),
    )
    return found


def _employees(draw: Draw, count: int) -> tuple[Array, Array]:
    """Return features float64 [count, F], and 1 for who leaves [count]."""
    source = draw.numpy
    x = source.normal(size=(count, _FEATURES))
    x[:, 0], x[:, 9] = source.integers(0, 4, count), 0
    score = 1.5 * (x[:, 0] == 2) + 1.4 * x[:, 1] - 1.2 * np.abs(x[:, 2])
    score = score + 1.2 * (x[:, 3] > 0.5) + draw.between(0.2, 0.4) * source.normal(size=count)
    return x, (score > np.quantile(score, 0.75)).astype(float)


FAMILY = Family(
    _train,
    (
        *("target_leak", "shuffled_labels", "label_noise", "wrong_axis", "class_imbalance"),
        *("single_label", "weights_reversed", "over_regularization", "lr_too_low"),
    ),
    framework="xgboost",
    spent="2026-11-28",
)
