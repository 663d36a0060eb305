"""Captured tensors of a booster equal those of XGBoost itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xgboost
from numpy.typing import NDArray

from tests.capture.xgboost_.trainings import PROBLEMS, breast_cancer, diabetes, digits, everything
from vinedresser.capture import Hook, Run, SaveConfig, open_run
from vinedresser.capture.xgboost_.booster_info import LOSSES


def captured(name: str, path: Path) -> tuple[Run, xgboost.Booster, xgboost.DMatrix]:
    """Train with a hook that captures everything in every round."""
    problem = PROBLEMS[name]
    data = problem.make()
    with Hook(path, collections=everything()) as hook:
        booster = problem.train(hook.xgboost(train=data), data=data)
    return open_run(path), booster, data


def columns(run: Run, step: int) -> dict[str, NDArray[Any]]:
    names = run.tensor_names(collection="trees")
    return {name.removeprefix("trees/"): run.tensor(name).value(step) for name in names}


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["binary", "classes", "dart", "vector leaves", "linear"])
@pytest.mark.parametrize("kind", ["weight", "gain", "cover", "total_gain", "total_cover"])
def test_importance_equals_that_of_the_booster(name: str, kind: str, tmp_path: Path) -> None:
    run, booster, data = captured(name, tmp_path / "run")
    if name == "linear" and kind != "weight":
        assert f"feature_importance/{kind}" not in run.tensor_names()
        return
    scores = booster.get_score(importance_type=kind)
    expected = [scores.get(f"f{feature}", 0.0) for feature in range(data.num_col())]
    captured_last = run.tensor(f"feature_importance/{kind}").value(len(run.steps()) - 1)
    np.testing.assert_allclose(captured_last, expected, rtol=1e-6)
    if name == "binary":
        # Earlier rounds have the importance of the model at that round.
        early = booster[:3].get_score(importance_type=kind)
        expected = [early.get(f"f{feature}", 0.0) for feature in range(data.num_col())]
        importance = run.tensor(f"feature_importance/{kind}").value(2)
        np.testing.assert_allclose(importance, expected, rtol=1e-6)


def test_importance_of_linear_classes_is_by_class(tmp_path: Path) -> None:
    run, booster, data = captured("linear of classes", tmp_path / "run")
    importance = run.tensor("feature_importance/weight").value(1)
    assert importance.shape == (data.num_col(), 10)
    scores = booster.get_score(importance_type="weight")
    np.testing.assert_allclose(importance[20], scores["f20"])
    np.testing.assert_array_equal(
        importance.astype(np.float32), run.tensor("weights/linear").value(1)
    )
    margin = data.get_data().toarray() @ importance + run.tensor("biases/linear").value(1)
    np.testing.assert_allclose(
        margin - margin.mean(axis=1, keepdims=True),
        (own := booster.predict(data, output_margin=True)) - own.mean(axis=1, keepdims=True),
        atol=1e-4,
    )


@pytest.mark.parametrize(
    "name",
    ["binary", "classes", "forest of each class", "dart", "exact, pruned", "approx by loss"],
)
def test_trees_equal_the_data_frame(name: str, tmp_path: Path) -> None:
    run, booster, _ = captured(name, tmp_path / "run")
    step = len(run.steps()) - 1
    found = columns(run, step)
    table = booster[step : step + 1].trees_to_dataframe().sort_values(["Tree", "Node"])
    leaf = (table["Feature"] == "Leaf").to_numpy()
    np.testing.assert_array_equal(found["tree"], table["Tree"])
    np.testing.assert_array_equal(found["node"], table["Node"])
    np.testing.assert_array_equal(found["left"] < 0, leaf)
    for column, key in (("left", "Yes"), ("right", "No")):
        ids = [int(one.rpartition("-")[2]) for one in table[key][~leaf]]
        np.testing.assert_array_equal(found[column][~leaf], ids)
    features = [int(one.removeprefix("f")) for one in table["Feature"][~leaf]]
    np.testing.assert_array_equal(found["split_feature"][~leaf], features)
    assert set(found["split_feature"][leaf]) == {-1}
    np.testing.assert_allclose(found["threshold"][~leaf], table["Split"][~leaf], rtol=1e-6)
    np.testing.assert_allclose(found["gain"][~leaf], table["Gain"][~leaf], rtol=1e-6)
    np.testing.assert_allclose(found["cover"], table["Cover"], rtol=1e-6)
    # For a leaf, the data frame has its value in the column of the gain.
    np.testing.assert_allclose(found["leaf_value"][leaf], table["Gain"][leaf], rtol=1e-6)
    assert np.isnan(found["threshold"][leaf]).all()
    assert np.isnan(found["leaf_value"][~leaf]).all()
    missing = table["Missing"][~leaf].to_numpy() == table["Yes"][~leaf].to_numpy()
    np.testing.assert_array_equal(found["default_left"][~leaf], missing)


def depth(table: pd.DataFrame, node: str) -> int:
    """Return the depth of a tree by recursion."""
    row = table[table["ID"] == node].iloc[0]
    if row["Feature"] == "Leaf":
        return 0
    return 1 + max(depth(table, row["Yes"]), depth(table, row["No"]))


@pytest.mark.parametrize("name", ["binary", "classes", "forest of each class", "exact, pruned"])
def test_depth_leaves_and_nodes_are_counted(name: str, tmp_path: Path) -> None:
    run, booster, _ = captured(name, tmp_path / "run")
    scalars = run.scalars("trees")
    step = 1
    table = booster[step : step + 1].trees_to_dataframe()
    groups = columns(run, step)["group"]
    for group in np.unique(groups):
        trees = np.flatnonzero(groups == group)
        mine = table[table["Tree"].isin(trees)]
        place = f"[{group}]" if groups.max() else ""
        assert scalars[f"trees/nodes{place}"].values[step] == len(mine)
        assert scalars[f"trees/leaves{place}"].values[step] == (mine["Feature"] == "Leaf").sum()
        deepest = max(depth(mine, f"{tree}-0") for tree in trees)
        assert scalars[f"trees/depth{place}"].values[step] == deepest


def test_leaves_with_several_outputs_add_up_to_the_prediction(tmp_path: Path) -> None:
    run, booster, data = captured("vector leaves", tmp_path / "run")
    found = columns(run, 1)
    x = data.get_data().toarray()
    node = np.zeros(len(x), int)
    while (found["left"][node] >= 0).any():
        inner = found["left"][node] >= 0
        left = x[np.arange(len(x)), found["split_feature"][node]] < found["threshold"][node]
        node = np.where(inner, np.where(left, found["left"][node], found["right"][node]), node)
    more = booster[:2].predict(data) - booster[:1].predict(data)
    np.testing.assert_allclose(found["leaf_value"][node], more, atol=2e-5)


def test_a_split_of_categories_has_no_threshold(tmp_path: Path) -> None:
    frame = pd.DataFrame({"kind": pd.Categorical(list("abc") * 60), "size": np.arange(180.0)})
    target = (frame["kind"] == "a") + frame["size"] / 180
    data = xgboost.DMatrix(frame, target.astype(float), enable_categorical=True)
    with Hook(tmp_path / "run", collections=everything()) as hook:
        xgboost.train({"max_depth": 2}, data, 2, callbacks=[hook.xgboost(train=(frame, target))])
    run = open_run(tmp_path / "run")
    found = columns(run, 0)
    assert run.info.features == ["kind", "size"]
    assert found["split_feature"][0] == 0
    assert np.isnan(found["threshold"][0])
    np.testing.assert_array_equal(
        run.tensor("predictions/train").value(1), hook_free(data).predict(data)
    )


def hook_free(data: xgboost.DMatrix) -> xgboost.Booster:
    return xgboost.train({"max_depth": 2}, data, 2)


@pytest.mark.parametrize(
    "name",
    ["binary", "classes", "dart", "two outputs", "vector leaves", "ranking", "quantized", "linear"],
)
def test_predictions_equal_those_of_the_model_at_that_round(name: str, tmp_path: Path) -> None:
    run, booster, data = captured(name, tmp_path / "run")
    last = len(run.steps()) - 1
    predicted = run.tensor("predictions/train")
    np.testing.assert_allclose(predicted.value(last), booster.predict(data), rtol=1e-6)
    if name not in ("dart", "linear"):
        # A slice of two rounds was never passed to a callback.
        np.testing.assert_allclose(predicted.value(1), booster[:2].predict(data), rtol=1e-5)
    np.testing.assert_array_equal(run.tensor("labels/train").value(last), data.get_label())


@pytest.mark.parametrize(
    "name",
    ["sampled rows and columns", "forest of each class", "absolute error", "two outputs"],
)
def test_cached_margins_equal_those_of_a_fresh_model(name: str, tmp_path: Path) -> None:
    problem = PROBLEMS[name]
    data = problem.make()
    with Hook(tmp_path / "run", collections={"predictions": SaveConfig(every=2)}) as hook:
        booster = problem.train(hook.xgboost(train=data, rows=100), data=data)
    predicted = open_run(tmp_path / "run").tensor("predictions/train")
    last = int(predicted.steps()[-1])
    rows = np.linspace(0, data.num_row() - 1, 100).round().astype(int)
    stranger = xgboost.Booster(model_file=booster[: last + 1].save_raw())
    expected = stranger.predict(problem.make())[rows]
    np.testing.assert_array_equal(predicted.value(last), expected)


def test_trees_in_every_round_and_importance_in_some(tmp_path: Path) -> None:
    problem = PROBLEMS["classes"]
    collections = {"trees": SaveConfig(every=1), "feature_importance": SaveConfig(every=2)}
    with Hook(tmp_path / "run", collections=collections) as hook:
        booster = problem.train(hook.xgboost())
    run = open_run(tmp_path / "run")
    for step in range(problem.rounds):
        table = booster[step : step + 1].trees_to_dataframe().sort_values(["Tree", "Node"])
        np.testing.assert_array_equal(run.tensor("trees/node").value(step), table["Node"])
        # The data frame is parsed from text with fewer digits.
        cover = run.tensor("trees/cover").value(step)
        np.testing.assert_allclose(cover, table["Cover"], rtol=1e-6)
    gain = run.tensor("feature_importance/total_gain")
    assert gain.steps().tolist() == [0, 2]
    scores = booster.get_score(importance_type="total_gain")
    expected = [scores.get(f"f{feature}", 0.0) for feature in range(booster.num_features())]
    np.testing.assert_allclose(gain.value(2), expected, rtol=1e-6)


@pytest.mark.parametrize("name", ["binary", "quantized", "ranking"])
def test_many_rows_are_sampled_with_a_stride(name: str, tmp_path: Path) -> None:
    problem = PROBLEMS[name]
    data = problem.make()
    with Hook(tmp_path / "run", collections=everything()) as hook:
        booster = problem.train(hook.xgboost(train=data, rows=50, shap_rows=10), data=data)
    run = open_run(tmp_path / "run")
    rows = np.linspace(0, data.num_row() - 1, 50).round().astype(int)
    last = len(run.steps()) - 1
    np.testing.assert_allclose(
        run.tensor("predictions/train").value(last), booster.predict(data)[rows], rtol=1e-6
    )
    np.testing.assert_array_equal(run.tensor("labels/train").value(last), data.get_label()[rows])
    assert run.tensor("shap/values").shape == (10, data.num_col() + 1)


@pytest.mark.parametrize(
    "name", ["binary", "classes", "two outputs", "dart", "linear", "quantized", "absolute error"]
)
def test_shapley_values_equal_those_of_the_whole_model(name: str, tmp_path: Path) -> None:
    problem = PROBLEMS[name]
    data = problem.make()
    # Every second round includes the skipped one.
    with Hook(tmp_path / "run", collections={"shap": SaveConfig(every=2, start=1)}) as hook:
        booster = problem.train(hook.xgboost(train=data, shap_rows=30), data=data)
    assert hook.problems == []
    run = open_run(tmp_path / "run")
    last = int(run.tensor("shap/values").steps()[-1])
    values = run.tensor("shap/values").value(last)
    rows = np.linspace(0, data.num_row() - 1, 30).round().astype(int)
    # The final weights of DART trees differ, and a linear booster cannot be sliced.
    model = booster if last == problem.rounds - 1 else booster[: last + 1]
    whole = model.predict(data, pred_contribs=True)[rows]
    np.testing.assert_allclose(values, whole, atol=2e-5 * max(1.0, np.abs(whole).max()))
    margin = model.predict(data, output_margin=True)[rows]
    np.testing.assert_allclose(
        values.sum(axis=-1), margin, atol=2e-6 * max(1.0, np.abs(margin).max())
    )
    np.testing.assert_allclose(
        run.tensor("shap/mean_abs").value(last),
        np.abs(values[..., :-1]).mean(axis=0),
        rtol=1e-6,
    )


@pytest.mark.parametrize("objective", sorted(LOSSES))
def test_the_loss_of_an_objective_is_its_default_metric(objective: str, tmp_path: Path) -> None:
    x, y = digits() if "multi" in objective else diabetes()
    targets = y if "multi" in objective else y / 400 if "binary" not in objective else y > 150
    params: dict[str, Any] = {"objective": objective, "nthread": 1, "max_depth": 2}
    data = xgboost.DMatrix(x, targets)
    if "multi" in objective:
        params["num_class"] = 10
    if objective == "reg:quantileerror":
        params["quantile_alpha"] = 0.5
    if objective == "survival:aft":
        data = xgboost.DMatrix(x, label_lower_bound=y, label_upper_bound=y)
    log: dict[str, dict[str, list[float]]] = {}
    with Hook(tmp_path / "run") as hook:
        xgboost.train(
            params,
            data,
            2,
            evals=[(data, "train")],
            evals_result=log,
            callbacks=[hook.xgboost()],
            verbose_eval=False,
        )
    (metric,) = log["train"]
    scalars = open_run(tmp_path / "run").scalars()
    assert sorted(scalars) == [f"losses/train-{metric}", f"metrics/train-{metric}"]
    assert scalars[f"losses/train-{metric}"].values.tolist() == log["train"][metric]


def test_every_set_and_metric_is_recorded_in_its_mode(tmp_path: Path) -> None:
    x, y = breast_cancer()
    data, other = xgboost.DMatrix(x[:400], y[:400]), xgboost.DMatrix(x[400:], y[400:])
    log: dict[str, dict[str, list[float]]] = {}
    with Hook(tmp_path / "run", collections=everything()) as hook:
        booster = xgboost.train(
            {"objective": "binary:logistic", "eval_metric": ["auc", "logloss"], "nthread": 1},
            data,
            5,
            evals=[(data, "train"), (other, "valid")],
            evals_result=log,
            callbacks=[hook.xgboost(validation={"valid": other})],
            verbose_eval=False,
        )
    run = open_run(tmp_path / "run")
    for name, mode in (("train", "train"), ("valid", "eval")):
        for metric in ("auc", "logloss"):
            column = run.scalars("metrics")[f"metrics/{name}-{metric}"]
            assert column.values.tolist() == log[name][metric]
            assert column.mode == mode
            assert column.steps.tolist() == list(range(5))
        loss = run.scalars("losses")[f"losses/{name}-logloss"]
        assert loss.values.tolist() == log[name]["logloss"]
    assert "losses/train-auc" not in run.scalars()
    predicted = run.tensor("predictions/valid")
    np.testing.assert_allclose(predicted.value(4, "eval"), booster.predict(other), rtol=1e-6)
    assert predicted.steps("train").size == 0
