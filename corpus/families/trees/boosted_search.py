"""Results of searches in order of relevance, by boosted trees.

After Burges, "From RankNet to LambdaRank to LambdaMART: an overview", 2010.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import gained

Array = NDArray[Any]

_RESULTS = 12


def _train(draw: Draw) -> Ending:
    import xgboost

    rounds = draw.steps(40, 120)
    x, y = _searches(draw, draw.choice([150, 250]))
    queries = np.repeat(np.arange(len(x) // _RESULTS), _RESULTS)
    rows = _RESULTS * (2 * len(x) // (3 * _RESULTS))
    x_train, y_train, x_val = x[:rows], y[:rows], x[rows:]
    if draw.has("misaligned_targets"):
        y_train = draw.numpy.permutation(y_train)
    if draw.has("term_wrong_sign"):
        # Places, of which 0 is the best, are taken for relevance.
        y_train = y_train.max() - y_train
    if draw.has("single_label"):
        y_train = np.ones_like(y_train)
    if draw.has("wrong_axis"):
        x_train = x_train.T.reshape(x_train.shape)
    groups = queries[:rows]
    if draw.has("swapped_ids"):
        # The number of the row is taken for that of the search: nothing is compared.
        groups = np.arange(rows)
    train = xgboost.DMatrix(x_train, y_train, qid=groups)
    valid = xgboost.DMatrix(x_val, y[rows:], qid=queries[rows:])
    rate, weight = draw.between(0.08, 0.3), 1.0
    if draw.has("over_regularization"):
        weight = draw.extent(1e4, 1e6)
    settings = {
        "objective": draw.choice(["rank:ndcg", "rank:pairwise"]),
        "eval_metric": draw.choice(["ndcg@5", "ndcg"]),
        "eta": rate,
        "max_depth": draw.choice([3, 4, 5]),
        "min_child_weight": weight,
        "nthread": 1,
        "seed": 0,
    }
    sets = {"train": train, "valid": valid}
    booster = xgboost.train(
        settings,
        train,
        rounds,
        evals=[(one, name) for name, one in sets.items()],
        callbacks=draw.watch.boosting(sets),
        verbose_eval=False,
    )
    found = booster.predict(valid)
    guessed = float(np.mean([_ndcg(draw.numpy.random(len(x) - rows), y[rows:]) for _ in range(20)]))
    # Equal scores are in no order.
    reached = _ndcg(found + 1e-6 * draw.numpy.random(len(found)), y[rows:])
    return Ending(gained(reached, guessed), bar=0.4)


def _ndcg(scores: Array, relevance: Array) -> float:
    """Return the mean normalised discounted cumulative gain of all results of each search."""
    gains = 2.0 ** relevance.reshape(-1, _RESULTS) - 1
    discount = 1 / np.log2(np.arange(_RESULTS) + 2)
    order = np.argsort(-scores.reshape(-1, _RESULTS), axis=1)
    found = (np.take_along_axis(gains, order, 1) * discount).sum(1)
    best = (np.sort(gains, axis=1)[:, ::-1] * discount).sum(1)
    return float((found / np.maximum(best, 1e-9)).mean())


def _searches(draw: Draw, count: int) -> tuple[Array, Array]:
    """Return features float64 [count * results, F] and relevance from 0 to 3."""
    source, features = draw.numpy, draw.choice([8, 14])
    x = source.normal(size=(count * _RESULTS, features))
    # What a search has in common says nothing of its results.
    x[:, -2:] = np.repeat(source.normal(size=(count, 2)), _RESULTS, axis=0)
    merit = 1.5 * x[:, 0] + np.abs(x[:, 1]) + x[:, 2] * (x[:, 3] > 0) + 2.0 * x[:, -1]
    merit += draw.between(0.3, 0.8) * source.normal(size=len(merit))
    places = merit.reshape(count, _RESULTS).argsort(1).argsort(1).reshape(-1)
    return x, np.digitize(places, [6, 9, 11]).astype("float64")


FAMILY = Family(
    _train,
    (
        *("misaligned_targets", "term_wrong_sign", "swapped_ids", "wrong_axis", "single_label"),
        "over_regularization",
    ),
    framework="xgboost",
    spent="2026-11-26",
)
