"""Which metrics of a booster are its losses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xgboost

from tests.capture.xgboost_.trainings import breast_cancer, squared_error
from vinedresser.capture import Hook, open_run
from vinedresser.capture.xgboost_.data import DataSet


def rows() -> xgboost.DMatrix:
    x, y = breast_cancer()
    return xgboost.DMatrix(x[::2], y[::2])


def test_a_loss_that_is_not_evaluated_is_reported(tmp_path: Path) -> None:
    data = rows()
    arguments: dict[str, Any] = {"evals": [(data, "train")], "verbose_eval": False}
    params = {"objective": "binary:logistic", "nthread": 1, "eval_metric": ["auc", "error"]}
    with Hook(tmp_path / "run") as hook:
        xgboost.train(params, data, 2, callbacks=[hook.xgboost()], **arguments)
    (problem,) = hook.problems
    assert problem.startswith("no losses: logloss ")
    assert "(auc, error)" in problem
    assert "hook.xgboost(loss='error')" in problem
    with Hook(tmp_path / "other") as hook:
        xgboost.train(params, data, 2, callbacks=[hook.xgboost(loss="error")], **arguments)
    assert hook.problems == []
    assert "losses/train-error" in open_run(tmp_path / "other").scalars()


@pytest.mark.parametrize(
    ("metric", "loss"),
    [("deviance", "losses/train-deviance"), ("share_right", None)],
)
def test_a_custom_metric_named_for_a_loss_is_that_of_a_custom_objective(
    metric: str, loss: str | None, tmp_path: Path
) -> None:
    data = rows()
    params = {"disable_default_eval_metric": True, "base_score": 0.0}
    with Hook(tmp_path / "run") as hook:
        xgboost.train(
            params,
            data,
            3,
            obj=squared_error,
            custom_metric=lambda margin, rows: (
                metric,
                float(np.mean((margin - rows.get_label()) ** 2)),
            ),
            evals=[(data, "train")],
            callbacks=[hook.xgboost()],
            verbose_eval=False,
        )
    names = open_run(tmp_path / "run").scalars()
    assert [name for name in names if name.startswith("losses/")] == ([loss] if loss else [])


@pytest.mark.parametrize("objective", ["reg:squarederror", "binary:logitraw"])
def test_a_metric_of_xgboost_is_no_loss_of_another_objective(
    objective: str, tmp_path: Path
) -> None:
    # That of binary:logitraw takes margins for probabilities.
    data = rows()
    with Hook(tmp_path / "run") as hook:
        xgboost.train(
            {"objective": objective, "eval_metric": "logloss"},
            data,
            2,
            evals=[(data, "train")],
            callbacks=[hook.xgboost()],
            verbose_eval=False,
        )
    assert not [
        scalar for scalar in open_run(tmp_path / "run").scalars() if scalar.startswith("losses/")
    ]


@pytest.mark.parametrize(
    ("objective", "metric"),
    [
        ("binary:logistic", "logloss"),
        ("multi:softmax", "mlogloss"),
        ("multi:softprob", "mlogloss"),
        ("reg:logistic", "rmse"),
        ("reg:squarederror", "rmse"),
        ("reg:absoluteerror", "mae"),
        ("reg:gamma", "gamma-deviance"),
    ],
)
@pytest.mark.parametrize("weighted", [False, True])
def test_the_loss_of_training_rows_is_that_of_xgboost(
    objective: str, metric: str, weighted: bool
) -> None:
    x, y = breast_cancer()
    weights = np.linspace(0.1, 3, len(y)) if weighted else None
    data = xgboost.DMatrix(x, y + (objective == "reg:gamma"), weight=weights)
    params = {"objective": objective, "eval_metric": metric, "nthread": 1, "max_depth": 2}
    if objective.startswith("multi"):
        params["num_class"] = 2
    booster = xgboost.train(params, data, 3)
    expected = float(booster.eval(data).rpartition(":")[2])
    found = DataSet("train", data, 10_000).loss(booster, metric, kept=True)
    if metric == "gamma-deviance":
        assert np.isnan(found)
    else:
        assert found == pytest.approx(expected, rel=1e-5)
    # Rows that are not cached would be predicted by all trees in each round.
    assert np.isnan(DataSet("train", data, 10).loss(booster, metric, kept=True))
    assert np.isnan(DataSet("train", data, 10_000).loss(booster, metric, kept=False))
