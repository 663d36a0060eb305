"""A watched estimator can be used like the original."""

from __future__ import annotations

import copy
import json
import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.cluster import KMeans
from sklearn.datasets import load_diabetes, load_wine
from sklearn.ensemble import RandomForestClassifier, VotingClassifier
from sklearn.linear_model import LogisticRegression, SGDClassifier, SGDRegressor
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from vinedresser.capture import Hook, SaveConfig, open_run
from vinedresser.errors import ConfigError


@pytest.fixture
def wine() -> tuple[Any, Any]:
    x, y = load_wine(return_X_y=True)
    return StandardScaler().fit_transform(x), y


def test_the_proxy_behaves_like_the_estimator(tmp_path: Path, wine: tuple[Any, Any]) -> None:
    plain = RandomForestClassifier(4, random_state=0)
    with Hook(tmp_path / "run") as hook:
        watched = hook.sklearn(plain)
        assert isinstance(watched, RandomForestClassifier)
        assert watched.__class__ is RandomForestClassifier
        assert is_classifier(watched)
        assert not is_regressor(watched)
        assert repr(watched) == repr(plain)
        assert watched.get_params() == plain.get_params()
        assert has_fit_parameter(watched, "sample_weight")
        assert not hasattr(watched, "partial_fit")
        assert not hasattr(watched, "feature_importances_")
        assert "n_estimators" in dir(watched)
        watched.n_estimators = 3
        assert watched.set_params(max_depth=2) is watched
        assert watched.fit(*wine) is watched
        check_is_fitted(watched)
        np.testing.assert_array_equal(watched.predict_proba(wine[0]), plain.predict_proba(wine[0]))
        assert watched.score(*wine) == plain.score(*wine)
        # It has members, as a forest has.
        assert len(watched) == 3
        assert watched[0] is plain.estimators_[0]
        assert list(watched) == plain.estimators_
        assert (plain.n_estimators, plain.max_depth) == (3, 2)
        watched.note = "mine"
        del watched.note
        assert not hasattr(plain, "note")
    assert open_run(tmp_path / "run").steps().tolist() == [0, 1, 2]


def test_an_estimator_without_members_has_no_length(tmp_path: Path) -> None:
    with Hook(tmp_path / "run") as hook:
        watched = hook.sklearn(SGDClassifier())
        assert not hasattr(type(watched), "__len__")
        assert not hasattr(watched, "__iter__")


def test_copies_and_pickles_are_plain(tmp_path: Path, wine: tuple[Any, Any]) -> None:
    with Hook(tmp_path / "run") as hook:
        watched = hook.sklearn(LogisticRegression()).fit(*wine)
        for other in (
            copy.copy(watched),
            copy.deepcopy(watched),
            pickle.loads(pickle.dumps(watched)),
        ):
            assert type(other) is LogisticRegression
            np.testing.assert_array_equal(other.coef_, watched.coef_)
        assert hook.problems == []
        assert type(clone(watched)) is LogisticRegression
    (problem,) = hook.problems
    assert re.match(r"a clone of .*\bLogisticRegression is not watched\b", problem)
    assert "hook.sklearn(GridSearchCV(…))" in problem


@pytest.mark.thorough
def test_a_saved_model_does_not_need_vinedresser(tmp_path: Path, wine: tuple[Any, Any]) -> None:
    with Hook(tmp_path / "run") as hook:
        watched = hook.sklearn(LogisticRegression()).fit(*wine)
        (tmp_path / "model").write_bytes(pickle.dumps(watched))
    program = (
        "import pickle, sys\n"
        "model = pickle.load(open(sys.argv[1], 'rb'))\n"
        "print(model.n_features_in_, 'vinedresser' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path / "model"],
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == ["13", "False"]


def test_it_can_be_the_last_step_of_a_pipeline(tmp_path: Path, wine: tuple[Any, Any]) -> None:
    with Hook(tmp_path / "run", collections={"inputs": SaveConfig(every=1)}) as hook:
        watched = hook.sklearn(SGDClassifier(random_state=0))
        pipeline = Pipeline([("scale", StandardScaler()), ("model", watched)])
        pipeline.set_params(model__alpha=0.5).fit(*wine)
    assert hook.problems == []
    plain = make_pipeline(StandardScaler(), SGDClassifier(alpha=0.5, random_state=0)).fit(*wine)
    np.testing.assert_array_equal(pipeline.predict(wine[0]), plain.predict(wine[0]))
    seen = open_run(tmp_path / "run").tensor("inputs/batch").value(0)
    np.testing.assert_array_equal(seen, pipeline[:-1].transform(wine[0]))


def test_a_search_is_watched_as_a_whole(tmp_path: Path, wine: tuple[Any, Any]) -> None:
    collections = {name: SaveConfig(every=1) for name in ("trees", "feature_importance")}
    model = make_pipeline(StandardScaler(), RandomForestClassifier(3, random_state=0))
    grid = {"randomforestclassifier__max_depth": [1, 3]}
    with Hook(tmp_path / "run", collections=collections) as hook:
        search = hook.sklearn(GridSearchCV(model, grid, cv=2)).fit(*wine)
    assert hook.problems == []
    run = open_run(tmp_path / "run")
    assert run.scalars()["metrics/best_score"].values.tolist() == [search.best_score_]
    best = search.best_estimator_[-1]
    depths = [tree.get_depth() for tree in best.estimators_]
    assert run.scalars()["trees/depth"].values.tolist() == depths
    np.testing.assert_array_equal(
        run.tensor("feature_importance/impurity").value(2, "eval"), best.feature_importances_
    )


def test_a_search_over_a_watched_estimator_is_not_affected(
    tmp_path: Path, wine: tuple[Any, Any]
) -> None:
    grid, tree = {"max_depth": [1, 3]}, DecisionTreeClassifier(random_state=0)
    plain = GridSearchCV(tree, grid, cv=2).fit(*wine)
    with Hook(tmp_path / "run") as hook:
        watched = GridSearchCV(hook.sklearn(tree), grid, cv=2).fit(*wine)
        voting = VotingClassifier([("one", hook.sklearn(tree))]).fit(*wine)
        scores = cross_val_score(hook.sklearn(tree), *wine, cv=2)
    assert watched.best_params_ == plain.best_params_
    assert (len(voting.estimators_), len(scores)) == (1, 2)
    assert [problem.split(";")[0] for problem in hook.problems] == [
        "a clone of the watched DecisionTreeClassifier is not watched"
    ]


def test_fit_predict_and_fit_transform_are_fits(tmp_path: Path, wine: tuple[Any, Any]) -> None:
    with Hook(tmp_path / "run") as hook:
        watched = hook.sklearn(KMeans(3, n_init=1, random_state=0))
        labels = watched.fit_predict(wine[0])
        distances = watched.fit_transform(X=wine[0])
    twin = KMeans(3, n_init=1, random_state=0)
    np.testing.assert_array_equal(labels, twin.fit_predict(wine[0]))
    np.testing.assert_array_equal(distances, twin.fit_transform(wine[0]))
    inertia = open_run(tmp_path / "run").scalars()["losses/inertia"]
    assert inertia.values.tolist() == [twin.inertia_] * 2


def test_an_error_of_the_fit_is_the_users(tmp_path: Path) -> None:
    hook = Hook(tmp_path / "run")
    with hook, pytest.raises(ValueError, match="inconsistent numbers of samples"):
        hook.sklearn(SGDClassifier()).fit(np.ones((3, 2)), [0, 1])
    assert len(open_run(tmp_path / "run").steps()) == 0


def test_an_estimator_that_cannot_predict_is_reported(tmp_path: Path) -> None:
    class Broken(SGDRegressor):  # type: ignore[misc]
        def predict(self, X: Any) -> Any:  # noqa: N803
            raise RuntimeError("not today")

    x, y = load_diabetes(return_X_y=True)
    with Hook(tmp_path / "run") as hook:
        watched = hook.sklearn(Broken(random_state=0))
        for _ in range(2):
            watched.partial_fit(x, y)
    assert hook.problems == [
        "capture failed in recording predictions: RuntimeError: not today; training continues"
    ]
    # The other values of the fit are recorded.
    assert len(open_run(tmp_path / "run").scalars()["metrics/n_iter"]) == 2


def test_missing_tensors_are_reported(tmp_path: Path, wine: tuple[Any, Any]) -> None:
    collections = {name: SaveConfig(every=1) for name in ("trees", "shap", "inputs")}
    with Hook(tmp_path / "run", collections=collections) as hook:
        words = np.array([["a"], ["b"]] * 10, dtype=object)
        model = make_pipeline(OneHotEncoder(), LogisticRegression())
        hook.sklearn(model).fit(words, [0, 1] * 10)
    inputs, *rest = hook.problems
    assert re.match(r"inputs/batch not captured: .*\(object\)", inputs)
    assert rest == [
        "LogisticRegression: trees not captured: it has no accessible trees",
        "LogisticRegression: shap not captured: only XGBoost computes Shapley values",
    ]


def test_invalid_arguments_are_rejected(tmp_path: Path) -> None:
    with Hook(tmp_path / "run") as hook:
        for wrong in (SGDClassifier, 3, object()):
            with pytest.raises(ConfigError, match="neither fit nor partial_fit"):
                hook.sklearn(wrong)
        with pytest.raises(ConfigError, match="already watched"):
            hook.sklearn(hook.sklearn(SGDClassifier()))
        with pytest.raises(ConfigError, match=r"validation: must be \(X, y\), not a list"):
            hook.sklearn(SGDClassifier(), validation=[1, 2, 3])
        with pytest.raises(ConfigError, match="rows = 0"):
            hook.sklearn(SGDClassifier(), rows=0)


def test_a_closed_hook_captures_nothing(tmp_path: Path, wine: tuple[Any, Any]) -> None:
    with Hook(tmp_path / "run") as hook:
        watched = hook.sklearn(SGDClassifier(random_state=0)).fit(*wine)
    watched.fit(*wine)
    assert open_run(tmp_path / "run").steps().tolist() == [0]
    assert hook.problems == []


STOPPED = """
import os, pickle, signal, sys
from sklearn.datasets import load_diabetes
from sklearn.ensemble import GradientBoostingRegressor
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from vinedresser.capture import Hook

folder, how = sys.argv[1:]
x, y = load_diabetes(return_X_y=True)
if how == "loop":
    model = MLPRegressor(hidden_layer_sizes=(4,), random_state=0)
else:
    model = make_pipeline(StandardScaler(), GradientBoostingRegressor(n_estimators=3))
watched = Hook(f"{folder}/run").sklearn(model)
try:
    if how == "loop":
        watched.partial_fit(x, y)
    os.kill(os.getpid(), signal.SIGTERM)
    (watched.partial_fit if how == "loop" else watched.fit)(x, y)
    print("went on")
finally:
    with open(f"{folder}/model", "wb") as file:
        pickle.dump(model, file)
"""


def stopped(folder: Path, how: str) -> tuple[Any, dict[str, Any]]:
    """Stop a program; return its model at that time and the checkpoint."""
    done = subprocess.run(
        [sys.executable, "-c", STOPPED, folder, how],
        check=False,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout, done.stderr) == (143, "", "")
    (path,) = (folder / "run" / "checkpoints").iterdir()
    assert path.name == f"step-{len(open_run(folder / 'run').steps())}.npz"
    with np.load(path, allow_pickle=False) as saved:
        return pickle.loads((folder / "model").read_bytes()), dict(saved)


@pytest.mark.thorough
def test_a_stop_ends_a_loop_and_saves_what_was_learned(tmp_path: Path) -> None:
    model, saved = stopped(tmp_path, "loop")
    assert open_run(tmp_path / "run").steps().tolist() == [0, 1]
    for layer, (weights, biases) in enumerate(zip(model.coefs_, model.intercepts_, strict=True)):
        np.testing.assert_array_equal(saved[f"coefs_.{layer}"], weights)
        np.testing.assert_array_equal(saved[f"intercepts_.{layer}"], biases)
    assert json.loads(str(saved["params"]))["hidden_layer_sizes"] == [4]


@pytest.mark.thorough
def test_a_stop_after_a_fit_keeps_all_stages(tmp_path: Path) -> None:
    model, saved = stopped(tmp_path, "fit")
    assert open_run(tmp_path / "run").steps().tolist() == [0, 1, 2]
    np.testing.assert_array_equal(saved["standardscaler.mean_"], model[0].mean_)
    left = saved["gradientboostingregressor.trees.2.0.left"]
    np.testing.assert_array_equal(left, model[1].estimators_[2, 0].tree_.children_left)
