"""Captured tensors of a fit equal those of scikit-learn's own functions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy import sparse
from sklearn import metrics
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
from sklearn.ensemble import (
    AdaBoostClassifier,
    AdaBoostRegressor,
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
)
from sklearn.linear_model import LinearRegression, SGDClassifier
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeRegressor

from vinedresser.capture import Hook, Run, SaveConfig, open_run
from vinedresser.store.step_record import Mode

ALL = (
    "weights",
    "biases",
    "feature_importance",
    "trees",
    "inputs",
    "labels",
    "predictions",
    "losses",
    "metrics",
)


class Halves:
    """Training rows and evaluation rows."""

    def __init__(self, rows: tuple[Any, Any]) -> None:
        x, y = rows
        self.x, self.y, self.x_eval, self.y_eval = x[::2], y[::2], x[1::2], y[1::2]

    @property
    def validation(self) -> tuple[Any, Any]:
        return self.x_eval, self.y_eval

    def both(self) -> Iterator[tuple[Any, Any, Mode]]:
        yield self.x, self.y, "train"
        yield self.x_eval, self.y_eval, "eval"


def digits() -> Halves:
    x, y = load_digits(return_X_y=True)
    return Halves((x / 16, y))


def diabetes() -> Halves:
    return Halves(load_diabetes(return_X_y=True))


def fitted(estimator: Any, data: Halves, path: Path, every: int = 1) -> Run:
    collections = {name: SaveConfig(every=every) for name in ALL}
    with Hook(path, collections=collections) as hook:
        hook.sklearn(estimator, validation=data.validation).fit(data.x, data.y)
    assert not [problem for problem in hook.problems if "not captured" not in problem]
    return open_run(path)


def series(run: Run, name: str, mode: Mode) -> NDArray[np.float64]:
    return run.scalars()[name].of(mode).values


BOOSTED = [
    GradientBoostingClassifier(n_estimators=4, random_state=0),
    HistGradientBoostingClassifier(max_iter=4, random_state=0),
    AdaBoostClassifier(n_estimators=4, random_state=0),
]


@pytest.mark.thorough
@pytest.mark.parametrize("estimator", BOOSTED, ids=lambda one: type(one).__name__)
def test_stages_of_a_boosted_classifier(estimator: Any, tmp_path: Path) -> None:
    data = digits()
    run = fitted(estimator, data, tmp_path / "run")
    assert run.steps().tolist() == run.steps("eval").tolist() == [0, 1, 2, 3]
    for x, y, mode in data.both():
        probabilities = [one.copy() for one in estimator.staged_predict_proba(x)]
        losses = [metrics.log_loss(y, probability) for probability in probabilities]
        np.testing.assert_allclose(series(run, "losses/log_loss", mode), losses, rtol=1e-9)
        accuracies = [metrics.accuracy_score(y, one) for one in estimator.staged_predict(x)]
        np.testing.assert_allclose(series(run, "metrics/accuracy", mode), accuracies)
        for step, one in enumerate(probabilities):
            np.testing.assert_allclose(run.tensor("predictions/batch").value(step, mode), one)
        np.testing.assert_array_equal(run.tensor("labels/batch").value(2, mode), y)
        np.testing.assert_array_equal(run.tensor("inputs/batch").value(2, mode), x)


@pytest.mark.parametrize(
    "estimator",
    [
        GradientBoostingRegressor(n_estimators=4, random_state=0),
        HistGradientBoostingRegressor(max_iter=4, random_state=0),
        AdaBoostRegressor(n_estimators=4, random_state=0),
    ],
    ids=lambda one: type(one).__name__,
)
def test_stages_of_a_boosted_regressor(estimator: Any, tmp_path: Path) -> None:
    data = diabetes()
    run = fitted(estimator, data, tmp_path / "run")
    for x, y, mode in data.both():
        values = [one.copy() for one in estimator.staged_predict(x)]
        losses = [metrics.mean_squared_error(y, value) for value in values]
        np.testing.assert_allclose(series(run, "losses/mse", mode), losses, rtol=1e-9)
        scores = [metrics.r2_score(y, value) for value in values]
        np.testing.assert_allclose(series(run, "metrics/r2", mode), scores, rtol=1e-9)


def test_the_own_losses_of_boosted_ensembles(tmp_path: Path) -> None:
    data = diabetes()
    plain = GradientBoostingRegressor(n_estimators=5, subsample=0.5, random_state=0)
    run = fitted(plain, data, tmp_path / "plain")
    np.testing.assert_allclose(series(run, "losses/objective", "train"), plain.train_score_)
    binned = HistGradientBoostingRegressor(max_iter=5, early_stopping=True, random_state=0)
    run = fitted(binned, data, tmp_path / "binned")
    np.testing.assert_allclose(series(run, "losses/objective", "train"), -binned.train_score_[1:])
    np.testing.assert_allclose(
        series(run, "metrics/validation_score", "eval"), binned.validation_score_[1:]
    )


@pytest.mark.parametrize(
    "estimator",
    [
        RandomForestClassifier(n_estimators=5, random_state=0),
        ExtraTreesRegressor(n_estimators=5, random_state=0),
    ],
    ids=lambda one: type(one).__name__,
)
def test_a_forest_grows_tree_by_tree(estimator: Any, tmp_path: Path) -> None:
    classifies = isinstance(estimator, RandomForestClassifier)
    data = digits() if classifies else diabetes()
    run = fitted(estimator, data, tmp_path / "run")
    assert len(run.steps()) == 5
    whole = estimator.predict_proba(data.x_eval) if classifies else estimator.predict(data.x_eval)
    np.testing.assert_allclose(run.tensor("predictions/batch").value(4, "eval"), whole)
    for size in (1, 3):
        # A smaller forest of the same seed has the same first trees.
        small = type(estimator)(n_estimators=size, random_state=0).fit(data.x, data.y)
        if classifies:
            loss = metrics.log_loss(data.y_eval, small.predict_proba(data.x_eval))
            name = "losses/log_loss"
        else:
            loss = metrics.mean_squared_error(data.y_eval, small.predict(data.x_eval))
            name = "losses/mse"
        assert series(run, name, "eval")[size - 1] == pytest.approx(loss)
    importance = run.tensor("feature_importance/impurity").value(4, "eval")
    np.testing.assert_array_equal(importance, estimator.feature_importances_)
    trees = run.scalars("trees")
    members = estimator.estimators_
    assert trees["trees/depth"].values.tolist() == [member.get_depth() for member in members]
    assert trees["trees/leaves"].values.tolist() == [member.get_n_leaves() for member in members]
    assert trees["trees/nodes"].values.tolist() == [member.tree_.node_count for member in members]


def reached(columns: dict[str, NDArray[Any]], x: NDArray[Any]) -> NDArray[Any]:
    """Return the leaf value of each row according to the columns of a tree."""
    place = {int(node): row for row, node in enumerate(columns["node"])}
    values = []
    for row in x:
        node = 0
        while columns["left"][node] >= 0:
            goes_left = row[columns["split_feature"][node]] <= columns["threshold"][node]
            node = place[int(columns["left" if goes_left else "right"][node])]
        values.append(columns["leaf_value"][node])
    return np.array(values)


def tree_columns(run: Run, step: int) -> dict[str, NDArray[Any]]:
    names = run.tensor_names(collection="trees")
    return {name.removeprefix("trees/"): run.tensor(name).value(step) for name in names}


def test_the_columns_of_a_tree_predict_like_the_tree(tmp_path: Path) -> None:
    data = diabetes()
    tree = DecisionTreeRegressor(max_depth=4, random_state=0)
    columns = tree_columns(fitted(tree, data, tmp_path / "tree"), 0)
    np.testing.assert_allclose(reached(columns, data.x_eval), tree.predict(data.x_eval))
    # The gains of a feature add up to its importance.
    gains = np.bincount(columns["split_feature"].clip(0), columns["gain"], minlength=10)
    np.testing.assert_allclose(gains / gains.sum(), tree.feature_importances_)
    binned = HistGradientBoostingRegressor(max_iter=3, learning_rate=1.0, random_state=0)
    run = fitted(binned, data, tmp_path / "binned")
    stages = list(binned.staged_predict(data.x_eval))
    for step in (1, 2):
        more = stages[step] - stages[step - 1]
        walked = reached(tree_columns(run, step), data.x_eval)
        np.testing.assert_allclose(walked, more, atol=1e-9)


def test_trees_of_classes_are_distinguished(tmp_path: Path) -> None:
    estimator = GradientBoostingClassifier(n_estimators=2, random_state=0)
    run = fitted(estimator, digits(), tmp_path / "run")
    columns = tree_columns(run, 1)
    assert columns["group"].tolist() == list(range(10))
    for group, tree in enumerate(estimator.estimators_[1]):
        mine = columns["tree"] == group
        np.testing.assert_array_equal(columns["left"][mine], tree.tree_.children_left)
        assert run.scalars("trees")[f"trees/leaves[{group}]"].values[1] == tree.get_n_leaves()


def test_the_epochs_of_a_network(tmp_path: Path) -> None:
    data = digits()
    network = MLPClassifier((8, 6), max_iter=400, tol=1e-2, random_state=0)
    run = fitted(network, data, tmp_path / "run")
    assert network.n_iter_ < 400
    np.testing.assert_array_equal(series(run, "losses/objective", "train"), network.loss_curve_)
    last = network.n_iter_ - 1
    for layer in range(3):
        for kind, values in (("weights", network.coefs_), ("biases", network.intercepts_)):
            kept = run.tensor(f"{kind}/layers.{layer}").value(last, "eval")
            np.testing.assert_array_equal(kept, values[layer])
    # Predictions exist for the last epoch only.
    loss = metrics.log_loss(data.y_eval, network.predict_proba(data.x_eval))
    assert series(run, "losses/log_loss", "eval").tolist() == [pytest.approx(loss, rel=1e-5)]


def test_the_epochs_of_a_network_with_held_out_rows(tmp_path: Path) -> None:
    network = MLPRegressor(hidden_layer_sizes=(4,), tol=1.0, early_stopping=True, random_state=0)
    run = fitted(network, diabetes(), tmp_path / "run")
    scores = series(run, "metrics/validation_score", "eval")
    np.testing.assert_array_equal(scores, network.validation_scores_)


def test_batch_by_batch(tmp_path: Path) -> None:
    data = digits()
    collections = {name: SaveConfig(every=2) for name in ALL}
    twin = SGDClassifier(random_state=0)
    with Hook(tmp_path / "run", collections=collections) as hook:
        estimator = hook.sklearn(SGDClassifier(random_state=0), validation=data.validation)
        losses, accuracies, coefficients = [], [], []
        for start in range(0, 500, 100):
            x, y = data.x[start : start + 100], data.y[start : start + 100]
            for one in (estimator, twin):
                one.partial_fit(x, y, classes=range(10))
            losses.append(metrics.hinge_loss(y, twin.decision_function(x), labels=range(10)))
            accuracies.append(twin.score(data.x_eval, data.y_eval))
            coefficients.append(twin.coef_.copy())
    run = open_run(tmp_path / "run")
    assert run.steps().tolist() == run.steps("eval").tolist() == [0, 2, 4]
    np.testing.assert_allclose(series(run, "losses/hinge_loss", "train"), losses[::2])
    np.testing.assert_allclose(series(run, "metrics/accuracy", "eval"), accuracies[::2])
    for step in (0, 2, 4):
        np.testing.assert_array_equal(run.tensor("weights/coef").value(step), coefficients[step])
    np.testing.assert_array_equal(run.tensor("biases/intercept").value(4), twin.intercept_)


@pytest.mark.thorough
@pytest.mark.parametrize("classes", [2, 10])
def test_hinge_loss(classes: int, tmp_path: Path) -> None:
    data = digits()
    data.y, data.y_eval = data.y % classes, data.y_eval % classes
    run = fitted(SVC(), data, tmp_path / "run")
    machine = SVC().fit(data.x, data.y)
    expected = metrics.hinge_loss(data.y_eval, machine.decision_function(data.x_eval))
    assert series(run, "losses/hinge_loss", "eval").tolist() == [pytest.approx(expected)]
    accuracy = machine.score(data.x_eval, data.y_eval)
    assert series(run, "metrics/accuracy", "eval").tolist() == [accuracy]


def test_several_outputs_are_averaged(tmp_path: Path) -> None:
    x, y = load_diabetes(return_X_y=True)
    data = Halves((x, np.stack([y, x[:, 2] * 100], axis=1)))
    run = fitted(LinearRegression(), data, tmp_path / "run")
    predicted = LinearRegression().fit(data.x, data.y).predict(data.x_eval)
    for name, function in (
        ("losses/mse", metrics.mean_squared_error),
        ("metrics/r2", metrics.r2_score),
    ):
        assert series(run, name, "eval")[0] == pytest.approx(function(data.y_eval, predicted))


def test_class_names_are_numbered(tmp_path: Path) -> None:
    bunch = load_breast_cancer(as_frame=True)
    words = bunch.target_names[bunch.target]
    estimator = make_pipeline(StandardScaler(), GradientBoostingClassifier(n_estimators=3))
    with Hook(tmp_path / "run", collections={name: SaveConfig(every=1) for name in ALL}) as hook:
        watched = hook.sklearn(estimator, validation=(bunch.data[1::2], words[1::2]))
        watched.fit(bunch.data[::2], words[::2])
    assert hook.problems == []
    run = open_run(tmp_path / "run")
    assert run.info.classes == ["benign", "malignant"]
    assert run.info.features == list(bunch.data.columns)
    numbers = (words[1::2] == "malignant").astype(int)
    np.testing.assert_array_equal(run.tensor("labels/batch").value(0, "eval"), numbers)
    last = estimator[-1]
    stages = last.staged_predict_proba(estimator[:-1].transform(bunch.data[1::2]))
    losses = [metrics.log_loss(numbers, stage) for stage in stages]
    np.testing.assert_allclose(series(run, "losses/log_loss", "eval"), losses)


def test_an_unknown_class_counts_as_wrong(tmp_path: Path) -> None:
    data = digits()
    learned = data.y < 9
    with Hook(tmp_path / "run") as hook:
        estimator = hook.sklearn(
            RandomForestClassifier(5, random_state=0), validation=data.validation
        )
        estimator.fit(data.x[learned], data.y[learned])
    assert hook.problems == []
    accuracy = np.mean(estimator.predict(data.x_eval) == data.y_eval)
    assert series(open_run(tmp_path / "run"), "metrics/accuracy", "eval")[-1] == accuracy


@pytest.mark.parametrize("kind", ["frame", "sparse", "list"])
def test_rows_of_any_kind_are_sampled(kind: str, tmp_path: Path) -> None:
    data = diabetes()
    wrap: dict[str, Any] = {
        "frame": lambda x: pd.DataFrame(x, columns=[f"c{n}" for n in range(10)]),
        "sparse": sparse.csr_matrix,
        "list": lambda x: x.tolist(),
    }
    with Hook(tmp_path / "run", collections={name: SaveConfig(every=1) for name in ALL}) as hook:
        estimator = hook.sklearn(ExtraTreesRegressor(3, random_state=0), rows=20)
        estimator.fit(wrap[kind](data.x), y=list(data.y))
    assert hook.problems == []
    run = open_run(tmp_path / "run")
    rows = np.linspace(0, len(data.x) - 1, 20).round().astype(int)
    np.testing.assert_array_equal(run.tensor("inputs/batch").value(2), data.x[rows])
    np.testing.assert_array_equal(run.tensor("labels/batch").value(2), data.y[rows])
    loss = metrics.mean_squared_error(data.y[rows], estimator.predict(wrap[kind](data.x[rows])))
    assert series(run, "losses/mse", "train")[-1] == pytest.approx(loss)


@pytest.mark.parametrize(
    "estimator",
    [
        GradientBoostingRegressor(n_estimators=3, warm_start=True, random_state=0),
        HistGradientBoostingRegressor(max_iter=3, warm_start=True, random_state=0),
        ExtraTreesRegressor(n_estimators=3, warm_start=True, random_state=0),
    ],
    ids=lambda one: type(one).__name__,
)
def test_a_warm_start_adds_its_new_stages(estimator: Any, tmp_path: Path) -> None:
    data = diabetes()
    size = "max_iter" if hasattr(estimator, "max_iter") else "n_estimators"
    with Hook(tmp_path / "run", collections={"trees": SaveConfig(every=1)}) as hook:
        watched = hook.sklearn(estimator, validation=data.validation)
        watched.fit(data.x, data.y).set_params(**{size: 7}).fit(data.x, data.y)
    run = open_run(tmp_path / "run")
    assert run.steps().tolist() == list(range(7))
    if hasattr(estimator, "staged_predict"):
        losses = [
            metrics.mean_squared_error(data.y_eval, one)
            for one in estimator.staged_predict(data.x_eval)
        ]
        np.testing.assert_allclose(series(run, "losses/mse", "eval"), losses)


def test_a_warm_start_of_a_network_continues(tmp_path: Path) -> None:
    data = diabetes()
    warm = MLPClassifier((4,), solver="adam", max_iter=200, tol=0.05, warm_start=True)
    with Hook(tmp_path / "run") as hook:
        watched = hook.sklearn(warm)
        labels = (data.y > 150).astype(int)
        watched.fit(data.x, labels)
        first = len(warm.loss_curve_)
        watched.fit(data.x, labels)
        second = len(warm.loss_curve_) - first
    values = series(open_run(tmp_path / "run"), "losses/objective", "train")
    assert second > 0
    np.testing.assert_array_equal(values, warm.loss_curve_)
