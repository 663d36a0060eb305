"""A scikit-learn estimator learns the same bits whether it is watched or not."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import joblib  # type: ignore[import-untyped]
import numpy as np
import pytest
from sklearn.base import is_regressor
from sklearn.cluster import KMeans, MiniBatchKMeans
from sklearn.datasets import load_diabetes, load_wine
from sklearn.decomposition import IncrementalPCA
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import (
    AdaBoostClassifier,
    AdaBoostRegressor,
    BaggingClassifier,
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    IsolationForest,
    RandomForestClassifier,
)
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge, SGDClassifier, SGDRegressor
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier

from vinedresser.capture import Hook, SaveConfig

EVERYTHING = {
    name: SaveConfig(every=1)
    for name in (
        "weights",
        "biases",
        "feature_importance",
        "trees",
        "inputs",
        "labels",
        "predictions",
    )
}

# Each takes a random state.
FITTED: dict[str, Callable[[Any], Any]] = {
    "gradient boosting": lambda r: GradientBoostingClassifier(n_estimators=4, random_state=r),
    "gradient boosting, sampled": lambda r: GradientBoostingRegressor(
        n_estimators=4, subsample=0.5, max_features=0.5, random_state=r
    ),
    "histograms": lambda r: HistGradientBoostingClassifier(max_iter=4, random_state=r),
    "histograms, set aside": lambda r: HistGradientBoostingRegressor(
        max_iter=6, early_stopping=True, random_state=r
    ),
    "adaboost": lambda r: AdaBoostClassifier(n_estimators=4, random_state=r),
    "adaboost of values": lambda r: AdaBoostRegressor(n_estimators=4, random_state=r),
    "forest": lambda r: RandomForestClassifier(n_estimators=4, oob_score=False, random_state=r),
    "extra trees": lambda r: ExtraTreesRegressor(n_estimators=4, random_state=r),
    "bagging": lambda r: BaggingClassifier(n_estimators=3, max_features=0.5, random_state=r),
    "tree": lambda r: DecisionTreeClassifier(splitter="random", random_state=r),
    "network": lambda r: MLPClassifier((8,), max_iter=5, random_state=r),
    "network, set aside": lambda r: MLPRegressor(
        hidden_layer_sizes=(8,), max_iter=5, early_stopping=True, random_state=r
    ),
    "network by lbfgs": lambda r: MLPClassifier((8,), solver="lbfgs", max_iter=9, random_state=r),
    "hinge": lambda r: SGDClassifier(random_state=r),
    "logistic": lambda r: LogisticRegression(solver="saga", max_iter=20, random_state=r),
    "ridge": lambda r: Ridge(solver="sag", random_state=r),
    "kernel": lambda r: SVC(random_state=r),
    "linear kernel": lambda r: LinearSVC(random_state=r),
    "neighbours": lambda r: KNeighborsClassifier(algorithm="brute"),
    "guesses": lambda r: DummyClassifier(strategy="stratified", random_state=r),
    "clusters": lambda r: KMeans(3, n_init=2, random_state=r),
    "mixture": lambda r: GaussianMixture(2, random_state=r),
    "anomalies": lambda r: IsolationForest(n_estimators=5, random_state=r),
    "pipeline": lambda r: make_pipeline(
        StandardScaler(), GradientBoostingClassifier(n_estimators=3, random_state=r)
    ),
    "search": lambda r: GridSearchCV(
        DecisionTreeClassifier(random_state=r), {"max_depth": [1, 2]}, cv=2
    ),
}
FED: dict[str, Callable[[Any], Any]] = {
    "hinge": lambda r: SGDClassifier(random_state=r),
    "values": lambda r: SGDRegressor(random_state=r),
    "network": lambda r: MLPClassifier((8,), random_state=r),
    "bayes": lambda r: GaussianNB(),
    "clusters": lambda r: MiniBatchKMeans(3, n_init=1, random_state=r),
    "components": lambda r: IncrementalPCA(3),
}
RANDOM_STATES: dict[str, Callable[[], Any]] = {
    "number": lambda: 7,
    "generator": lambda: np.random.RandomState(7),
    "global": lambda: None,
}


def rows(estimator: Any) -> tuple[Any, Any]:
    x, y = (load_diabetes if is_regressor(estimator) else load_wine)(return_X_y=True)
    return x / np.abs(x).max(axis=0), y


def learned(
    make: Callable[[Any], Any], state: str, learn: Callable[[Any, Any, Any], Any], hook: Any = None
) -> tuple[str, str, str]:
    """Return hashes of a fitted estimator, its predictions and the random state."""
    np.random.seed(3)
    own = RANDOM_STATES[state]()
    plain = make(own)
    x, y = rows(plain)
    estimator = plain if hook is None else hook.sklearn(plain, validation=(x[::4], y[::4]))
    with warnings.catch_warnings():
        # Too few iterations to converge.
        warnings.simplefilter("ignore", ConvergenceWarning)
        learn(estimator, x, y)
    drawn = (np.random.random(), own.random() if state == "generator" else 0)
    predicted = plain.predict(x) if hasattr(plain, "predict") else plain.transform(x)
    # The other attributes of a search are times.
    model = getattr(plain, "best_estimator_", plain)
    return joblib.hash(model), joblib.hash(predicted), joblib.hash(drawn)


def fit(estimator: Any, x: Any, y: Any) -> None:
    assert estimator.fit(x, y) is estimator


def feed(estimator: Any, x: Any, y: Any) -> None:
    classes = {"classes": np.unique(y)} if hasattr(estimator, "predict_log_proba") else {}
    if isinstance(estimator, SGDClassifier):
        classes = {"classes": np.unique(y)}
    for _ in range(2):
        for start in range(0, len(x) - 50, 50):
            part = slice(start, start + 50)
            estimator.partial_fit(x[part], y[part], **classes)


def warm(estimator: Any, x: Any, y: Any) -> None:
    size = "max_iter" if hasattr(estimator, "max_iter") else "n_estimators"
    estimator.set_params(warm_start=True)
    for count in (2, 5, 6):
        estimator.set_params(**{size: count})
        estimator.fit(x, y)


def check(make: Callable[[Any], Any], state: str, learn: Any, path: Path) -> None:
    plain = learned(make, state, learn)
    with Hook(path, collections=EVERYTHING) as hook:
        watched = learned(make, state, learn, hook)
    assert watched == plain
    assert not [problem for problem in hook.problems if "not captured" not in problem]


@pytest.mark.parametrize("state", RANDOM_STATES)
@pytest.mark.parametrize("name", FITTED)
def test_a_fit_is_the_same(name: str, state: str, tmp_path: Path) -> None:
    check(FITTED[name], state, fit, tmp_path / "run")


@pytest.mark.parametrize("state", RANDOM_STATES)
@pytest.mark.parametrize("name", FED)
def test_a_loop_of_batches_is_the_same(name: str, state: str, tmp_path: Path) -> None:
    check(FED[name], state, feed, tmp_path / "run")


@pytest.mark.thorough
@pytest.mark.parametrize("state", RANDOM_STATES)
@pytest.mark.parametrize("name", ["gradient boosting", "histograms", "forest", "network"])
def test_warm_starts_are_the_same(name: str, state: str, tmp_path: Path) -> None:
    check(FITTED[name], state, warm, tmp_path / "run")
