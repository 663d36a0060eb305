"""How long machines run until they fail, many of which still do: boosted trees of XGBoost.

After Barnwal, Cho and Hocking, "Survival regression with accelerated failure time model in
XGBoost", Journal of Computational and Graphical Statistics 2022.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from corpus.draw import Draw
from corpus.family import Ending, Family

Array = NDArray[Any]


def _train(draw: Draw) -> Ending:
    import xgboost

    rounds = draw.steps(60, 100)
    x, lived, until = _machines(draw, 2400)
    count = 1600
    train = _matrix(xgboost, *_spoilt(draw, x[:count].copy(), lived[:count], until[:count]))
    valid = _matrix(xgboost, x[count:], *_bounds(lived[count:], until[count:]))
    rate = draw.between(0.08, 0.15)
    rate *= draw.by_fault({"lr_too_low": draw.extent(1e-7, 1e-6)}, 1.0)
    settings = {
        "objective": "survival:aft",
        "eval_metric": "aft-nloglik",
        "aft_loss_distribution": draw.choice(["normal", "logistic"]),
        "aft_loss_distribution_scale": 0.5,
        "eta": rate,
        "max_depth": draw.choice([3, 4]),
        "lambda": draw.by_fault({"weight_decay_too_high": 1e9}, 1.0),
        "gamma": draw.by_fault({"over_regularization": 1e9}, 0.0),
        "nthread": 1,
        "seed": 0,
    }
    sets = {"train": train, "valid": valid} if draw.chance(0.7) else {"train": train}
    booster = xgboost.train(
        settings,
        train,
        rounds,
        evals=[(one, name) for name, one in sets.items()],
        callbacks=draw.watch.boosting(sets),
        verbose_eval=False,
    )
    found = booster.predict(valid, output_margin=True)
    return Ending(_concordance(found, np.log(lived[count:])), bar=0.55)


def _concordance(found: Array, known: Array) -> float:
    """Return 2 C - 1 of all pairs of machines: 1 if all are in the right order."""
    signs = np.sign(found[:, None] - found) * np.sign(known[:, None] - known)
    return float(signs.sum() / np.abs(np.sign(known[:, None] - known)).sum())


def _bounds(lived: Array, until: Array) -> tuple[Array, Array]:
    """Return bounds of the lives of machines that are looked at until a time."""
    return np.minimum(lived, until), np.where(lived <= until, lived, np.inf)


def _matrix(xgboost: Any, x: Array, lower: Array, upper: Array) -> Any:
    rows = xgboost.DMatrix(x)
    rows.set_float_info("label_lower_bound", lower)
    rows.set_float_info("label_upper_bound", upper)
    return rows


def _spoilt(draw: Draw, x: Array, lived: Array, until: Array) -> tuple[Array, Array, Array]:
    """Return features and bounds with the drawn fault, if there is one."""
    source = draw.numpy
    lower, upper = _bounds(lived, until)
    if draw.has("censoring_inverted"):
        # Those that still run have failed, and the other way round.
        last = np.where(lived <= until, 5 * until, until / 5)
        upper = np.where(lived <= until, np.inf, lower)
        lower = np.minimum(lower, last)
    if draw.has("misaligned_targets"):
        order = source.permutation(len(lower))
        lower, upper = lower[order], upper[order]
    if draw.has("constant_inputs"):
        x = np.zeros_like(x)
    if draw.has("single_label"):
        lower, upper = np.full_like(lower, 2.0), np.full_like(upper, np.inf)
    if draw.has("target_leak"):
        # How much oil was used in the whole life of a machine.
        x[:, 5] = np.log(lived) + 0.02 * source.normal(size=len(x))
    if draw.has("duplicated_rows"):
        rows = source.integers(0, 6, len(x))
        x, lower, upper = x[rows], lower[rows], upper[rows]
    if draw.has("reversed_scale"):
        # Some factories write how often a machine fails in a year.
        half = np.arange(len(x)) % 2 == 0
        lower = np.where(half, 1 / lower, lower)
        upper = np.where(half, lower + 0.01, upper)
    if draw.has("wrong_axis"):
        x = x.T.reshape(x.shape).copy()
    return x, lower, upper


def _machines(draw: Draw, count: int) -> tuple[Array, Array, Array]:
    """Return features float64 [count, 6], lives [count], and for how long each was looked at."""
    source = draw.numpy
    x = source.normal(size=(count, 6))
    log_life = 0.9 * x[:, 0] - 0.8 * np.abs(x[:, 1]) + 0.7 * (x[:, 2] > 0) * x[:, 3] + 1.0
    log_life = log_life + draw.between(0.15, 0.3) * source.normal(size=count)
    return x, np.exp(log_life), np.exp(source.normal(1.5, 0.6, count))


FAMILY = Family(
    _train,
    (
        *("censoring_inverted", "reversed_scale", "target_leak", "wrong_axis"),
        *("misaligned_targets", "constant_inputs", "single_label", "duplicated_rows"),
        *("lr_too_low", "weight_decay_too_high", "over_regularization"),
    ),
    framework="xgboost",
    spent="2026-11-27",
)
