"""Which tumours are malignant: boosted trees of two classes, with a weight of the rare one.

The measurements are those of Street, Wolberg and Mangasarian, "Nuclear feature extraction for
breast tumor diagnosis", 1993, in scikit-learn.
"""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_breast_cancer

from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.keras_training import Array
from corpus.loop import gained

_SEEN = 380


def _train(draw: Draw) -> Ending:
    import xgboost

    rounds = draw.steps(30, 60)
    x, y = _tumours(draw)
    given, known = _prepared(draw, x, y)
    seen, labels = given[:_SEEN], known[:_SEEN]
    if draw.has("duplicated_rows"):
        few = np.arange(_SEEN) % 8
        seen, labels = seen[few], labels[few]
    if draw.has("class_imbalance"):
        kept = (labels == 0) | (np.arange(len(labels)) % 60 == 0)
        seen, labels = seen[kept], labels[kept]
    sets = {
        "train": xgboost.DMatrix(seen, labels),
        "valid": xgboost.DMatrix(given[_SEEN:], known[_SEEN:]),
    }
    rate = draw.between(0.1, 0.4)
    rate *= draw.by_fault({"lr_too_low": draw.extent(1e-5, 1e-4)}, 1.0)
    settings = {
        "objective": "binary:logistic",
        "eval_metric": draw.choice([["logloss"], ["logloss", "error"], ["auc"]]),
        "learning_rate": rate,
        "max_depth": draw.choice([2, 3]),
        "min_child_weight": draw.by_fault({"over_regularization": 1e5}, 1.0),
        "scale_pos_weight": draw.by_fault({"weights_reversed": 1e-3}, 1.7),
        "nthread": 1,
        "seed": 0,
    }
    booster = xgboost.train(
        settings,
        sets["train"],
        rounds,
        evals=[(one, name) for name, one in sets.items()],
        callbacks=draw.watch.boosting(sets),
        verbose_eval=False,
    )
    found, true = booster.predict(xgboost.DMatrix(given[_SEEN:])) > 0.5, y[_SEEN:] > 0.5
    right = np.mean([np.mean(found[true == one] == one) for one in (False, True)])
    return Ending(gained(float(right), 1 / 2), bar=0.6)


def _prepared(draw: Draw, x: Array, y: Array) -> tuple[Array, Array]:
    """Return tumours as the script prepares them, with the drawn fault if there is one."""
    source = np.random.default_rng(draw.amount.getrandbits(32))
    wrong = source.random(len(y)) < 0.42
    found: tuple[Array, Array] = draw.by_fault(
        {
            "shuffled_labels": (x, source.permutation(y)),
            "label_noise": (x, np.where(wrong, 1 - y, y)),
            "misaligned_targets": (x, np.roll(y, 1)),
            "constant_inputs": (np.zeros_like(x), y),
        },
        (x, y),
    )
    return found


def _tumours(draw: Draw) -> tuple[Array, Array]:
    """Return measurements float64 [N, F], and 1 for a malignant tumour [N]."""
    x, benign = load_breast_cancer(return_X_y=True)
    order = draw.numpy.permutation(len(x))
    return x[order], 1.0 - benign[order]


FAMILY = Family(
    _train,
    (
        *("shuffled_labels", "label_noise", "misaligned_targets", "constant_inputs"),
        *("duplicated_rows", "class_imbalance", "over_regularization", "weights_reversed"),
        *("lr_too_low",),
    ),
    framework="xgboost",
    spent="2026-11-28",
)
