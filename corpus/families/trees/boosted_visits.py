"""How many people visit a museum in a day: boosted trees with a Poisson loss and an offset.

After Friedman, "Greedy function approximation", Annals of Statistics 2001, with the objective of
XGBoost for counts; the days are drawn.
"""

from __future__ import annotations

import numpy as np

from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.keras_training import Array

_FEATURES, _SEEN = 7, 900


def _train(draw: Draw) -> Ending:
    import xgboost

    rounds = draw.steps(50, 90)
    x, hours, y = _days(draw, 1300)
    given, known = _prepared(draw, x, y)
    seen, labels, base = given[:_SEEN], known[:_SEEN], np.log(hours[:_SEEN])
    if draw.has("duplicated_rows"):
        few = np.arange(_SEEN) % 15
        seen, labels, base = seen[few], labels[few], base[few]
    offsets = (base, np.log(hours[_SEEN:]))
    sets = {
        name: xgboost.DMatrix(rows, wanted, base_margin=offset)
        for name, rows, wanted, offset in (
            ("training", seen, labels, offsets[0]),
            ("test", given[_SEEN:], known[_SEEN:], offsets[1]),
        )
    }
    rate = draw.between(0.1, 0.25) * draw.by_fault({"lr_too_low": draw.extent(1e-5, 1e-4)}, 1.0)
    booster = xgboost.train(
        {
            "objective": "count:poisson",
            "eval_metric": draw.choice([["poisson-nloglik"], ["rmse", "poisson-nloglik"]]),
            "eta": rate,
            "max_depth": draw.choice([3, 4]),
            "colsample_bytree": draw.choice([0.7, 1.0]),
            "lambda": draw.by_fault({"weight_decay_too_high": 1e8}, 1.0),
            "min_split_loss": draw.by_fault({"over_regularization": 1e7}, 0.0),
            "max_delta_step": draw.by_fault({"clip_too_small": 1e-4}, 0.7),
            "nthread": 1,
            "seed": 0,
        },
        sets["training"],
        rounds,
        evals=[(one, name) for name, one in sets.items()],
        early_stopping_rounds=draw.choice([None, 20]),
        callbacks=draw.watch.boosting(sets),
        verbose_eval=False,
    )
    used = (x if draw.has("target_leak") else given)[_SEEN:]
    found = booster.predict(xgboost.DMatrix(used, base_margin=offsets[1]))
    true, size = y[_SEEN:], hours[_SEEN:]
    usual = size * y[:_SEEN].sum() / hours[:_SEEN].sum()
    return Ending(float(1 - ((found - true) ** 2).sum() / ((usual - true) ** 2).sum()), bar=0.4)


def _prepared(draw: Draw, x: Array, y: Array) -> tuple[Array, Array]:
    """Return days as the script prepares them, with the drawn fault if there is one."""
    source = np.random.default_rng(draw.amount.getrandbits(32))
    # Tickets that were collected in the evening.
    later = x.copy()
    later[:, 6] = y + source.normal(size=len(y))
    found: tuple[Array, Array] = draw.by_fault(
        {
            "target_leak": (later, y),
            "shuffled_labels": (x, source.permutation(y)),
            # Visits of the day before.
            "misaligned_targets": (x, np.roll(y, 1)),
            "wrong_axis": (x.T.reshape(x.shape).copy(), y),
            "constant_inputs": (np.zeros_like(x), y),
        },
        (x, y),
    )
    return found


def _days(draw: Draw, count: int) -> tuple[Array, Array, Array]:
    """Return features float64 [count, F], hours and numbers of visitors [count]."""
    source = draw.numpy
    x = source.normal(size=(count, _FEATURES))
    x[:, 0] = source.integers(0, 7, count)
    hours = source.integers(4, 11, count).astype(float)
    log = 0.8 * (x[:, 0] >= 5) + 0.5 * np.tanh(2 * x[:, 1]) - 0.6 * np.maximum(x[:, 2], 0)
    log = log + 0.4 * np.where(x[:, 3] > 0, x[:, 4], -x[:, 4])
    return x, hours, source.poisson(hours * np.exp(log + draw.between(1.0, 1.5))).astype(float)


FAMILY = Family(
    _train,
    (
        *("target_leak", "shuffled_labels", "misaligned_targets", "wrong_axis", "constant_inputs"),
        *("duplicated_rows", "weight_decay_too_high", "over_regularization", "clip_too_small"),
        *("lr_too_low",),
    ),
    framework="xgboost",
    spent="2026-11-28",
)
