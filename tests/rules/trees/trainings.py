"""Small trainings of boosted trees and forests for the rules about trees."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import xgboost
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, make_classification

from vinedresser.capture import Hook, open_run
from vinedresser.rules.base import Rule, capture_for
from vinedresser.rules.judge import judge
from vinedresser.store.finding import Finding

__all__ = ["Rows", "boost", "found", "hook_for", "mislabelled", "tumours"]

Rows = tuple[NDArray[np.float64], NDArray[np.float64]]


def tumours() -> Rows:
    """Return 569 shuffled tumours with 30 measurements, benign or not."""
    x, y = load_breast_cancer(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))
    return x[order], y[order].astype(float)


def mislabelled(rows: int = 3000) -> Rows:
    """Return rows of 20 features in two classes, a quarter of them mislabelled."""
    x, y = make_classification(rows, 20, n_informative=8, flip_y=0.5, random_state=0)
    return x, y.astype(float)


def hook_for(path: Path, rules: Iterable[Rule]) -> Hook:
    """Return a hook that captures what the rules need."""
    return Hook(path, collections=capture_for(rules).collections)


def found(path: Path, rules: Iterable[Rule]) -> list[Finding]:
    """Return the findings of some rules in a run."""
    return judge(open_run(path), rules)


def boost(
    path: Path,
    rules: Iterable[Rule],
    rows: Rows,
    *,
    rounds: int = 60,
    names: list[str] | None = None,
    evaluate: bool = True,
    **params: Any,
) -> list[Finding]:
    """Boost trees on the first two thirds of the rows; return the findings."""
    x, y = rows
    split = len(x) * 2 // 3
    train = xgboost.DMatrix(x[:split], y[:split], feature_names=names)
    valid = xgboost.DMatrix(x[split:], y[split:], feature_names=names)
    evals = [(train, "train"), (valid, "valid")] if evaluate else [(train, "train")]
    settings = {"objective": "binary:logistic", "nthread": 1, "seed": 0, **params}
    rules = list(rules)
    with hook_for(path, rules) as hook:
        callbacks = [hook.xgboost(train=train, validation=valid if evaluate else None)]
        xgboost.train(settings, train, rounds, evals=evals, callbacks=callbacks, verbose_eval=False)
    assert not hook.problems
    return found(path, rules)
