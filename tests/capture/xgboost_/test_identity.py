"""XGBoost builds the same bits with and without a hook."""

from __future__ import annotations

from pathlib import Path

import pytest
import xgboost

from tests.capture.xgboost_.trainings import PROBLEMS, breast_cancer, everything
from vinedresser.capture import Hook, open_run


@pytest.mark.thorough
@pytest.mark.parametrize("name", PROBLEMS)
def test_the_model_is_the_same(name: str, tmp_path: Path) -> None:
    problem = PROBLEMS[name]
    plain = problem.train()
    data = problem.make()
    with Hook(tmp_path / "run", collections=everything()) as hook:
        watched = problem.train(hook.xgboost(train=data, rows=100, shap_rows=20), data=data)
    assert watched.save_raw() == plain.save_raw()
    assert not [one for one in hook.problems if "failed" in one]
    # Every round has a record.
    assert open_run(tmp_path / "run").steps("train").tolist() == list(range(problem.rounds))


@pytest.mark.parametrize("name", ["sampled rows and columns", "dart", "classes"])
def test_the_model_is_the_same_without_evaluation_sets(name: str, tmp_path: Path) -> None:
    problem = PROBLEMS[name]
    models = []
    for watched in (False, True):
        data, callbacks = problem.make(), []
        if watched:
            hook = Hook(tmp_path / "run", collections=everything(every=2))
            callbacks = [hook.xgboost(train=data)]
        params = {"nthread": 1, **problem.params}
        models.append(xgboost.train(params, data, problem.rounds, callbacks=callbacks).save_raw())
    hook.close()
    assert models[0] == models[1]


def test_cross_validation_is_the_same(tmp_path: Path) -> None:
    params = {"objective": "binary:logistic", "nthread": 1, "subsample": 0.8}
    arguments = {"num_boost_round": 4, "nfold": 3, "metrics": "logloss", "as_pandas": False}
    plain = xgboost.cv(params, xgboost.DMatrix(*breast_cancer()), **arguments)
    with Hook(tmp_path / "run", collections=everything()) as hook:
        watched = xgboost.cv(
            params, xgboost.DMatrix(*breast_cancer()), callbacks=[hook.xgboost()], **arguments
        )
    assert hook.problems == []
    assert watched == plain
