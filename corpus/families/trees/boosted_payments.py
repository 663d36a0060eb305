"""Which invoices are paid late: boosted trees of two classes, the area under a curve, no pruning.

After Chen and Guestrin, "XGBoost: a scalable tree boosting system", KDD 2016; the invoices are
drawn.
"""

from __future__ import annotations

import numpy as np

from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.keras_training import Array
from corpus.loop import gained

_FEATURES, _SEEN = 8, 900


def _train(draw: Draw) -> Ending:
    import xgboost

    rounds = draw.steps(40, 70)
    x, y = _invoices(draw, 1400)
    given, known = _prepared(draw, x, y)
    seen, labels = given[:_SEEN], known[:_SEEN]
    if draw.has("duplicated_rows"):
        few = np.arange(_SEEN) % 10
        seen, labels = seen[few], labels[few]
    if draw.has("class_imbalance"):
        kept = (labels == 0) | (np.arange(_SEEN) % 60 == 0)
        seen, labels = seen[kept], labels[kept]
    sets = {
        "train": xgboost.DMatrix(seen, labels),
        "eval": xgboost.DMatrix(given[_SEEN:], known[_SEEN:]),
    }
    rate = draw.between(0.1, 0.3) * draw.by_fault({"lr_too_low": draw.extent(1e-5, 1e-4)}, 1.0)
    booster = xgboost.train(
        {
            "objective": "binary:logistic",
            "eval_metric": draw.choice([["logloss"], ["error"], ["logloss", "auc"]]),
            "eta": rate,
            "max_depth": draw.choice([3, 4, 5]),
            "subsample": draw.choice([0.8, 1.0]),
            "alpha": draw.by_fault({"over_regularization": 1e5}, 0.0),
            "scale_pos_weight": draw.by_fault({"weights_reversed": 1e-3}, 1.5),
            "nthread": 1,
            "seed": 0,
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
    """Return invoices as the script prepares them, with the drawn fault if there is one."""
    source = np.random.default_rng(draw.amount.getrandbits(32))
    # Reminders, which are sent to those who are late.
    later = x.copy()
    later[:, 7] = y * source.integers(1, 4, len(y))
    wrong = source.random(len(y)) < 0.42
    found: tuple[Array, Array] = draw.by_fault(
        {
            "target_leak": (later, y),
            "shuffled_labels": (x, source.permutation(y)),
            "label_noise": (x, np.where(wrong, 1 - y, y)),
            "misaligned_targets": (x, np.roll(y, 1)),
            "wrong_axis": (x.T.reshape(x.shape).copy(), y),
        },
        (x, y),
    )
    return found


def _invoices(draw: Draw, count: int) -> tuple[Array, Array]:
    """Return features float64 [count, F], and 1 for what is paid late [count]."""
    source = draw.numpy
    x = source.normal(size=(count, _FEATURES))
    x[:, 0] = source.integers(0, 5, count)
    x[:, 7] = 0
    score = 1.4 * (x[:, 0] > 2) + 1.5 * np.tanh(2 * x[:, 1]) - np.abs(x[:, 2])
    score = score + np.where(x[:, 3] > 0, x[:, 4], -x[:, 4])
    score = score + draw.between(0.3, 0.6) * source.normal(size=count)
    return x, (score > np.quantile(score, 0.6)).astype(float)


FAMILY = Family(
    _train,
    (
        *("target_leak", "shuffled_labels", "label_noise", "misaligned_targets", "wrong_axis"),
        *("duplicated_rows", "class_imbalance", "weights_reversed", "over_regularization"),
        *("lr_too_low",),
    ),
    framework="xgboost",
    spent="2026-11-28",
)
