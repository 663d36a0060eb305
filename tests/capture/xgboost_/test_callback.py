"""The callback in all kinds of XGBoost trainings, and its messages."""

from __future__ import annotations

import copy
import gc
import pickle
import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xgboost
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from xgboost.callback import EarlyStopping, TrainingCallback

from tests.capture.xgboost_.trainings import (
    PROBLEMS,
    Batches,
    breast_cancer,
    digits,
    everything,
)
from tests.paths import ROOT
from vinedresser.capture import Hook, SaveConfig, open_run
from vinedresser.capture.xgboost_.callback import IdleCallback
from vinedresser.errors import ConfigError

LOGISTIC = {"objective": "binary:logistic", "nthread": 1}


def halves() -> tuple[xgboost.DMatrix, xgboost.DMatrix]:
    x, y = breast_cancer()
    return xgboost.DMatrix(x[::2], y[::2]), xgboost.DMatrix(x[1::2], y[1::2])


def test_the_run_is_described(tmp_path: Path) -> None:
    x, y = breast_cancer()
    names = [f"measurement {number}" for number in range(30)]
    data = xgboost.DMatrix(x, y, feature_names=names)
    with Hook(tmp_path / "run", collections=everything()) as hook:
        PROBLEMS["binary"].train(hook.xgboost(train=data), data=data)
    info = open_run(tmp_path / "run").info
    assert (info.framework, info.versions["xgboost"]) == ("xgboost", xgboost.__version__)
    assert info.features == names
    assert hook.problems == []


def test_features_without_names_are_numbered(tmp_path: Path) -> None:
    with Hook(tmp_path / "run") as hook:
        PROBLEMS["linear"].train(hook.xgboost())
    assert open_run(tmp_path / "run").info.features == [f"f{number}" for number in range(10)]


def test_save_configs_count_rounds_in_evaluations_too(tmp_path: Path) -> None:
    data, other = halves()
    collections = {
        "predictions": SaveConfig(every=4),
        "trees": SaveConfig(start=2, every=3, reductions=("max",)),
        "feature_importance": SaveConfig(every=0, steps=(7,), reductions=("l2",), tensor=True),
        "metrics": SaveConfig(every=2),
    }
    with Hook(tmp_path / "run", collections=collections) as hook:
        xgboost.train(
            LOGISTIC,
            data,
            9,
            evals=[(data, "train"), (other, "valid")],
            callbacks=[hook.xgboost(train=data, validation=other)],
            verbose_eval=False,
        )
    run = open_run(tmp_path / "run")
    assert run.tensor("predictions/train").steps().tolist() == [0, 4, 8]
    assert run.tensor("predictions/validation").steps("eval").tolist() == [0, 4, 8]
    assert run.reductions("max")["trees/gain"].steps.tolist() == [2, 5, 8]
    assert run.tensor("feature_importance/gain").steps().tolist() == [7]
    gain = run.tensor("feature_importance/gain")
    assert gain.reduction("l2").values[0] == pytest.approx(np.linalg.norm(gain.value(7)))
    for name in ("train", "valid"):
        column = run.scalars("metrics")[f"metrics/{name}-logloss"]
        assert column.steps.tolist() == [0, 2, 4, 6, 8]
        assert len(run.scalars("losses")[f"losses/{name}-logloss"]) == 9


@pytest.mark.parametrize("first", [False, True])
def test_early_stopping_loses_no_round(first: bool, tmp_path: Path) -> None:
    data, other = halves()
    stop = EarlyStopping(rounds=3, data_name="valid", save_best=True)
    log: dict[str, Any] = {}
    with Hook(tmp_path / "run", collections=everything()) as hook:
        callback = hook.xgboost(train=data)
        booster = xgboost.train(
            {**LOGISTIC, "learning_rate": 1.0},
            data,
            200,
            evals=[(data, "train"), (other, "valid")],
            evals_result=log,
            # A callback that stops the training hides the round from later callbacks.
            callbacks=[stop, callback] if first else [callback, stop],
            verbose_eval=False,
        )
    run = open_run(tmp_path / "run")
    rounds = len(log["valid"]["logloss"])
    assert booster.num_boosted_rounds() == rounds - 3 < 197
    assert run.scalars()["losses/valid-logloss"].values.tolist() == log["valid"]["logloss"]
    assert run.steps().tolist() == list(range(rounds))
    assert run.tensor("trees/node").steps().tolist() == list(range(rounds))


def test_a_callback_that_prevents_a_round_leaves_no_step(tmp_path: Path) -> None:
    class Never(TrainingCallback):
        def before_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
            return epoch == 2

    with Hook(tmp_path / "run") as hook:
        PROBLEMS["binary"].train(hook.xgboost(), Never())
    assert open_run(tmp_path / "run").steps().tolist() == [0, 1]


def test_a_continued_training_uses_the_same_run(tmp_path: Path) -> None:
    data, _ = halves()
    with Hook(tmp_path / "run", collections=everything()) as hook:
        callback = hook.xgboost(train=data)
        evals = [(data, "train")]
        arguments: dict[str, Any] = {
            "evals": evals,
            "callbacks": [callback],
            "verbose_eval": False,
        }
        first = xgboost.train(LOGISTIC, data, 3, **arguments)
        second = xgboost.train(LOGISTIC, data, 4, xgb_model=first, **arguments)
    run = open_run(tmp_path / "run")
    assert run.steps().tolist() == list(range(7))
    plain = xgboost.train(LOGISTIC, data, 3)
    assert xgboost.train(LOGISTIC, data, 4, xgb_model=plain).save_raw() == second.save_raw()
    np.testing.assert_allclose(
        run.tensor("shap/values").value(6),
        second.predict(
            data.slice(np.linspace(0, 284, 256).round().astype(int)), pred_contribs=True
        ),
        atol=1e-5,
    )


def test_a_training_continued_from_a_model_captures_its_new_trees(tmp_path: Path) -> None:
    data, _ = halves()
    before = xgboost.train(LOGISTIC, data, 3)
    with Hook(tmp_path / "run", collections=everything()) as hook:
        booster = xgboost.train(
            LOGISTIC, data, 2, xgb_model=before, callbacks=[hook.xgboost(train=data)]
        )
    run = open_run(tmp_path / "run")
    assert run.steps().tolist() == [0, 1]
    table = booster[4:5].trees_to_dataframe()
    np.testing.assert_array_equal(run.tensor("trees/node").value(1), table["Node"])
    np.testing.assert_allclose(run.tensor("trees/cover").value(1), table["Cover"], rtol=1e-6)


def test_the_trees_of_a_model_are_updated(tmp_path: Path) -> None:
    data, other = halves()
    model = xgboost.train(LOGISTIC, data, 3)
    params = {**LOGISTIC, "process_type": "update", "updater": "refresh", "tree_method": "approx"}
    arguments: dict[str, Any] = {"evals": [(other, "train")], "verbose_eval": False}
    with Hook(tmp_path / "run", collections=everything()) as hook, warnings.catch_warnings():
        # XGBoost warns of any updater that is named.
        warnings.simplefilter("ignore")
        plain = xgboost.train(params, other, 3, xgb_model=model.copy(), **arguments)
        callbacks = [hook.xgboost(train=other, shap_rows=20)]
        watched = xgboost.train(
            params, other, 3, xgb_model=model.copy(), callbacks=callbacks, **arguments
        )
    assert watched.save_raw() == plain.save_raw()
    (problem,) = hook.problems
    assert problem.startswith("trees not captured: ")
    run = open_run(tmp_path / "run")
    rows = np.linspace(0, other.num_row() - 1, 20).round().astype(int)
    values = watched.predict(other, pred_contribs=True)[rows]
    np.testing.assert_allclose(run.tensor("shap/values").value(2), values, atol=1e-5)
    scores = watched.get_score(importance_type="total_gain")
    assert run.tensor("feature_importance/total_gain").value(2).sum() == pytest.approx(
        sum(float(np.sum(score)) for score in scores.values())
    )


def test_each_fold_of_a_cross_validation_is_captured(tmp_path: Path) -> None:
    data = xgboost.DMatrix(*breast_cancer())
    with Hook(tmp_path / "run", collections=everything()) as hook:
        log: Any = xgboost.cv(
            LOGISTIC, data, 4, nfold=3, callbacks=[hook.xgboost()], as_pandas=False
        )
    assert hook.problems == []
    run = open_run(tmp_path / "run")
    scalars = run.scalars()
    for name, mode in (("train", "train"), ("test", "eval")):
        assert scalars[f"losses/{name}-logloss"].values.tolist() == log[f"{name}-logloss-mean"]
        deviation = scalars[f"metrics/{name}-logloss-std"]
        assert deviation.values.tolist() == log[f"{name}-logloss-std"]
        assert deviation.mode == mode
    labels = [run.tensor(f"labels/fold{fold}.test").value(3, "eval") for fold in range(3)]
    assert sum(map(len, labels)) == data.num_row()
    loss = [
        -np.log(np.where(truth > 0, p, 1 - p)).mean()
        for fold, truth in enumerate(labels)
        if (p := run.tensor(f"predictions/fold{fold}.test").value(3, "eval")) is not None
    ]
    assert np.mean(loss) == pytest.approx(log["test-logloss-mean"][3], rel=1e-5)
    assert "trees/fold2.depth" in scalars
    assert "feature_importance/fold1.gain" in run.tensor_names()


def test_an_estimator_takes_the_callback(tmp_path: Path) -> None:
    x, y = digits()
    arguments: dict[str, Any] = {"n_estimators": 4, "max_depth": 3, "n_jobs": 1}
    plain = xgboost.XGBClassifier(**arguments).fit(x[:400], y[:400])
    with Hook(tmp_path / "run", collections=everything()) as hook:
        callback = hook.xgboost(
            train=(x[:400], y[:400]), validation=(x[400:], y[400:]), training_set="validation_0"
        )
        estimator = xgboost.XGBClassifier(**arguments, callbacks=[callback])
        sets = [(x[:400], y[:400]), (x[400:], y[400:])]
        estimator.fit(x[:400], y[:400], eval_set=sets, verbose=False)
    assert hook.problems == []
    assert estimator.get_booster().save_raw() == plain.get_booster().save_raw()
    run = open_run(tmp_path / "run")
    log = estimator.evals_result()
    for place, mode in (("validation_0", "train"), ("validation_1", "eval")):
        column = run.scalars("losses")[f"losses/{place}-mlogloss"]
        assert column.mode == mode
        assert column.values.tolist() == log[place]["mlogloss"]
    np.testing.assert_allclose(
        run.tensor("predictions/validation").value(3, "eval"),
        estimator.predict_proba(x[400:]),
        rtol=1e-5,
    )
    # Trees of the ten classes.
    assert run.scalars("trees")["trees/depth[9]"].values.max() <= 3


def test_a_copy_of_the_callback_is_the_callback_and_a_pickle_is_idle(tmp_path: Path) -> None:
    x, y = breast_cancer()
    with Hook(tmp_path / "run") as hook:
        callback = hook.xgboost()
        estimator = xgboost.XGBClassifier(n_estimators=2, n_jobs=1, callbacks=[callback])
        assert clone(estimator).callbacks == [callback]
        assert copy.deepcopy(callback) is callback is copy.copy(callback)
        search = GridSearchCV(estimator, {"max_depth": [1, 2]}, cv=2).fit(x, y)
        loaded = pickle.loads(pickle.dumps(search.best_estimator_))
    assert isinstance(loaded.callbacks[0], IdleCallback)
    np.testing.assert_array_equal(loaded.predict(x), search.predict(x))
    # Two candidates, two folds, and once more with the best.
    (problem,) = hook.problems
    assert problem.startswith("no losses, no metrics: ")
    assert "evals=[(dtrain, 'train')]" in problem
    assert "eval_set=[(X, y)]" in problem


def test_missing_data_is_reported_once(tmp_path: Path) -> None:
    data, other = halves()
    with Hook(tmp_path / "run", collections=everything()) as hook:
        xgboost.train(
            LOGISTIC,
            data,
            3,
            evals=[(other, "valid")],
            callbacks=[hook.xgboost()],
            verbose_eval=False,
        )
    data_asked, losses = hook.problems
    assert data_asked.startswith("predictions, labels, shap not captured: ")
    assert "hook.xgboost(train=…, validation=…)" in data_asked
    assert losses.startswith("no losses of the training: ")
    assert "(valid)" in losses
    assert "hook.xgboost(training_set='valid')" in losses


def test_vector_leaves_have_no_shapley_values(tmp_path: Path) -> None:
    problem = PROBLEMS["vector leaves"]
    data = problem.make()
    with Hook(tmp_path / "run", collections=everything()) as hook:
        problem.train(hook.xgboost(train=data), data=data)
    (said,) = hook.problems
    assert re.match(r"shap not captured: .*vector leaves", said)


def test_invalid_data_is_rejected(tmp_path: Path) -> None:
    with Hook(tmp_path / "run") as hook:
        with pytest.raises(
            ConfigError, match=r"train: must be an xgboost.DMatrix or \(X, y\), not a ndarray"
        ):
            hook.xgboost(train=np.ones((3, 2)))
        with pytest.raises(ConfigError, match="shap_rows = 0: must be an integer, at least 1"):
            hook.xgboost(shap_rows=0)


STOPPED = """
import os, signal, sys
from xgboost.callback import TrainingCallback
from tests.capture.xgboost_.trainings import PROBLEMS
from vinedresser.capture import Hook

class Wish(TrainingCallback):
    def before_iteration(self, model, epoch, evals_log):
        if epoch == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        return False

try:
    PROBLEMS["sampled rows and columns"].train(Wish(), Hook(sys.argv[1]).xgboost())
finally:
    print("finally")
"""


@pytest.mark.thorough
def test_a_stop_saves_the_booster_and_ends_between_rounds(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", STOPPED, tmp_path / "run"],
        check=False,
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout, done.stderr) == (143, "finally\n", "")
    run = open_run(tmp_path / "run")
    assert run.steps().tolist() == [0, 1, 2, 3]
    assert run.status.state == "killed"
    (path,) = (tmp_path / "run" / "checkpoints").iterdir()
    assert path.name == "step-4.ubj"
    saved = xgboost.Booster(model_file=path)
    problem = PROBLEMS["sampled rows and columns"]
    data = problem.make()
    np.testing.assert_array_equal(saved.predict(data), problem.train()[:4].predict(data))


def test_a_closed_hook_watches_no_more(tmp_path: Path) -> None:
    with Hook(tmp_path / "run") as hook:
        callback = hook.xgboost()
    PROBLEMS["binary"].train(callback)
    assert hook.problems == []
    assert len(open_run(tmp_path / "run").steps()) == 0


def test_batches_in_external_memory_cannot_be_sliced(tmp_path: Path) -> None:
    x, y = breast_cancer()

    def make() -> xgboost.DMatrix:
        batches = Batches((x, y), cache_prefix=str(tmp_path / "cache"))
        return xgboost.ExtMemQuantileDMatrix(batches)

    models = []
    hook = Hook(tmp_path / "run", collections=everything())
    for watched in (False, True):
        data = make()
        callbacks = [hook.xgboost(train=data, shap_rows=50, rows=100)] if watched else []
        booster = xgboost.train(LOGISTIC, data, 3, evals=[(data, "train")], callbacks=callbacks)
        models.append(booster.save_raw())
    hook.close()
    assert models[0] == models[1]
    (problem,) = hook.problems
    assert re.match(r"shap not captured: .*\btrain\b.*hook\.xgboost\(train=sample\)", problem)
    run = open_run(tmp_path / "run")
    assert run.tensor("predictions/train").shape == (100,)
    # XGBoost removes its cache files when the matrices are freed, which needs the directory.
    del data, callbacks, booster, hook
    gc.collect()
