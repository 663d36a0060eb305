"""Healthy trainings of boosted trees, and of scikit-learn's estimators."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import xgboost
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import r2_score
from sklearn.neural_network import MLPClassifier

from tests.rules.healthy_zoo.loop import watched

__all__ = ["TREES"]


def _xgboost_classes(store: Path, seed: int) -> None:
    """Benign or malignant; two metrics on training and evaluation rows."""
    x, y = load_breast_cancer(return_X_y=True)
    train, valid = xgboost.DMatrix(x[:400], y[:400]), xgboost.DMatrix(x[400:], y[400:])
    params = {
        "objective": "binary:logistic",
        "eval_metric": ["error", "logloss"],
        "max_depth": 3,
        "eta": 0.1,
        "subsample": 0.8,
        "seed": seed,
        "nthread": 1,
    }
    with watched(store, steps=120, eta=0.1, max_depth=3) as hook:
        booster = xgboost.train(
            params,
            train,
            120,
            evals=[(train, "train"), (valid, "valid")],
            callbacks=[hook.xgboost(train=train, validation=valid)],
            verbose_eval=False,
        )
    assert ((booster.predict(valid) > 0.5) == y[400:]).mean() >= 0.93


def _xgboost_regression(store: Path, seed: int) -> None:
    """Targets from 25 to 346; early stopping by the evaluation rows."""
    x, y = load_diabetes(return_X_y=True)
    rows = np.random.default_rng(0).permutation(len(x))
    x, y = x[rows], y[rows]
    with watched(store, learning_rate=0.05) as hook:
        model = xgboost.XGBRegressor(
            n_estimators=300,
            max_depth=3,
            learning_rate=0.05,
            subsample=0.7,
            early_stopping_rounds=15,
            random_state=seed,
            n_jobs=1,
            callbacks=[hook.xgboost(training_set="validation_0")],
        )
        sets = [(x[:350], y[:350]), (x[350:], y[350:])]
        model.fit(x[:350], y[:350], eval_set=sets, verbose=False)
    assert r2_score(y[350:], model.predict(x[350:])) >= 0.25


def _gradient_boosting(store: Path, seed: int) -> None:
    """Scikit-learn's trees on three classes of digits."""
    x, y = load_digits(n_class=3, return_X_y=True)
    with watched(store) as hook:
        model = hook.sklearn(
            GradientBoostingClassifier(n_estimators=60, max_depth=2, random_state=seed),
            validation=(x[400:], y[400:]),
        )
        model.fit(x[:400], y[:400])
    assert model.score(x[400:], y[400:]) >= 0.93


def _sgd_classifier(store: Path, seed: int) -> None:
    """A linear model trained on 32 digits at a time."""
    x, y = load_digits(return_X_y=True)
    x, rng = x / 16, np.random.default_rng(seed)
    with watched(store, steps=400, eta0=0.05) as hook:
        model = hook.sklearn(
            SGDClassifier(loss="log_loss", learning_rate="constant", eta0=0.05, random_state=seed),
            validation=(x[1400:], y[1400:]),
        )
        for _ in range(400):
            rows = rng.integers(0, 1400, 32)
            model.partial_fit(x[rows], y[rows], classes=np.arange(10))
    assert model.score(x[1400:], y[1400:]) >= 0.85


def _mlp_classifier(store: Path, seed: int) -> None:
    """Scikit-learn's network; each epoch is a step, and training ends when the loss stalls."""
    x, y = load_digits(return_X_y=True)
    with watched(store) as hook:
        model = hook.sklearn(MLPClassifier((32,), max_iter=300, tol=2e-3, random_state=seed))
        model.fit(x[:1400] / 16, y[:1400])
    assert model.score(x[1400:] / 16, y[1400:]) >= 0.88


TREES = {
    "xgboost_classes": _xgboost_classes,
    "xgboost_regression": _xgboost_regression,
    "gradient_boosting": _gradient_boosting,
    "sgd_classifier": _sgd_classifier,
    "mlp_classifier": _mlp_classifier,
}
