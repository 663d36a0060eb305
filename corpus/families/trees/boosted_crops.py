"""Which crop suits a field, by its soil and rain: boosted trees of several classes.

After Friedman, "Greedy function approximation: a gradient boosting machine", Annals of Statistics
2001; the fields are drawn.
"""

from __future__ import annotations

import numpy as np

from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.keras_training import Array
from corpus.loop import gained

_FEATURES, _CROPS, _SEEN = 7, 5, 1200


def _train(draw: Draw) -> Ending:
    import xgboost

    rounds = draw.steps(40, 70)
    x, y = _fields(draw, 1800)
    seen, known = _spoilt(draw, x[:_SEEN].copy(), y[:_SEEN])
    held, wanted = x[_SEEN:], y[_SEEN:]
    # What the script evaluates on is made as what it trains on.
    valid, valid_known = (
        _spoilt(draw, held.copy(), wanted) if draw.has("target_leak") else (held, wanted)
    )
    sets = {"train": xgboost.DMatrix(seen, known), "valid": xgboost.DMatrix(valid, valid_known)}
    rate = draw.between(0.1, 0.3)
    rate *= draw.by_fault({"lr_too_low": draw.extent(1e-6, 1e-5), "lr_too_high": 60.0}, 1.0)
    settings = {
        "objective": "multi:softprob",
        "num_class": _CROPS,
        "eval_metric": ["merror", "mlogloss"],
        "eta": rate,
        "max_depth": draw.choice([3, 4]),
        "min_child_weight": draw.by_fault({"over_regularization": 1e6}, 1.0),
        "lambda": draw.by_fault({"weight_decay_too_high": 1e8}, 1.0),
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
    reported, reached = (
        gained(_balanced(booster.predict(one).argmax(1), wanted), 1 / _CROPS)
        for one in (sets["valid"], xgboost.DMatrix(held))
    )
    return Ending(reached, bar=0.5, overstated=reported - reached)


def _balanced(found: Array, y: Array) -> float:
    """Return the share of right rows, the mean over the crops."""
    return float(np.mean([np.mean(found[y == one] == one) for one in range(_CROPS)]))


def _spoilt(draw: Draw, x: Array, y: Array) -> tuple[Array, Array]:
    """Return fields with the drawn fault, if there is one."""
    source = draw.numpy
    classes = np.arange(_CROPS)
    few = np.arange(len(x)) % 12
    few[:_CROPS] = [np.flatnonzero(y == one)[0] for one in classes]
    if draw.has("target_leak"):
        # The price of the harvest, which was sold as what it was.
        x[:, 6] = y + 0.05 * source.normal(size=len(y))
    rare = (source.random(len(y)) < 0.99) & (np.arange(len(y)) >= 2 * _CROPS)
    found: tuple[Array, Array] = draw.by_fault(
        {
            "shuffled_labels": (x, source.permutation(y)),
            "label_noise": (x, np.where(source.random(len(y)) < 0.9, source.permutation(y), y)),
            "off_by_one": (x, (y + 1) % _CROPS),
            "wrong_order": (x[:, [1, 2, 3, 4, 5, 6, 0]], y),
            "duplicated_rows": (x[few], y[few]),
            # The survey asked one region only, which grows one crop.
            "class_imbalance": (x, np.where(rare, 0, y)),
            "constant_inputs": (np.zeros_like(x), y),
            "wrong_axis": (x.T.reshape(x.shape).copy(), y),
        },
        (x, y),
    )
    return found


def _fields(draw: Draw, count: int) -> tuple[Array, Array]:
    """Return features float64 [count, F] and crops int64 [count]."""
    source = draw.numpy
    x = source.normal(size=(count, _FEATURES))
    # Crops that like a soil, and others that like it between two extremes.
    liked = source.normal(size=(_CROPS, 4))
    far = np.abs(x[:, None, :4] - 1.2 * liked).sum(2)
    far = far + draw.between(0.2, 0.4) * source.normal(size=far.shape)
    far = (far - far.mean(0)) / far.std(0)
    return x, far.argmin(1)


FAMILY = Family(
    _train,
    (
        *("wrong_order", "target_leak", "over_regularization"),
        *("weight_decay_too_high", "shuffled_labels", "label_noise", "off_by_one"),
        *("duplicated_rows", "class_imbalance", "wrong_axis", "lr_too_low", "lr_too_high"),
    ),
    framework="xgboost",
    spent="2026-11-27",
)
