"""Capture from XGBoost trainings in unchanged scripts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.capture.attach.runs import Both, alone_in_process, attached, script, split_stderr
from vinedresser.explain.verdicts import verdict

TRAINING = """
    import numpy as np
    import xgboost

    generator = np.random.default_rng(0)
    x = generator.normal(size=(200, 4))
    y = (x[:, 0] + 0.3 * x[:, 1] > 0).astype(int)
    data = xgboost.DMatrix(x, y)
    history = {}
    parameters = {"objective": "binary:logistic", "seed": 0, "nthread": 1}
    booster = xgboost.train(
        parameters, data, 10, evals=[(data, "train")], evals_result=history, verbose_eval=5
    )
    print(*history["train"]["logloss"])
    print(booster.save_raw("json").hex()[:20000], booster.attributes())
    model = xgboost.XGBClassifier(n_estimators=4, n_jobs=1, eval_metric=["error", "logloss"])
    model.fit(x, y, eval_set=[(x[:50], y[:50]), (x, y)], verbose=False)
    print(*model.evals_result()["validation_1"]["logloss"])
    for rounds in range(3):
        booster = xgboost.train(parameters, data, 2, xgb_model=booster)
    print(model.predict_proba(x)[:9].tolist(), model.callbacks)
    print(xgboost.cv(parameters, data, 3).to_string())

    def squared(margins, given):
        return margins - given.get_label(), np.ones_like(margins)

    print(xgboost.cv({"nthread": 1}, data, 3, obj=squared).to_string())
"""


@pytest.mark.thorough
def test_both_interfaces_are_captured_and_nothing_else_changes(tmp_path: Path) -> None:
    path = script(tmp_path, TRAINING)
    pair = Both(
        alone_in_process(path), attached("train.py", cwd=tmp_path), tmp_path / "runs" / "run"
    )
    assert pair.attached.returncode == 0, pair.attached.stderr
    assert pair.attached.stdout == pair.alone.stdout
    said = split_stderr(pair.attached.stderr)[0].splitlines()
    # Nothing is said of what three of them lack: the script is not the hook's to change.
    assert ["another training is captured in" in line for line in said] == [True] * 5
    expected = [float(word) for word in pair.alone.stdout.splitlines()[3].split()]
    native, estimator = pair.open(), pair.open(2)
    column = native.scalars("losses")["losses/train-logloss"]
    np.testing.assert_allclose(column.values, expected, rtol=1e-5)
    assert native.info.framework == "xgboost"
    # The second evaluation set is the training data.
    losses = estimator.scalars("losses")["losses/validation_1-logloss"].values
    expected = [float(word) for word in pair.alone.stdout.splitlines()[5].split()]
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    assert len(estimator.scalars("metrics", mode="eval")["metrics/validation_0-error"].values) == 4
    # The folds of a cross-validation are one training.
    folds = pair.open(6)
    assert len(folds.scalars("losses", mode="eval")["losses/test-logloss"].values) == 3
    # Of those of a custom objective nothing says what they predict.
    assert not pair.run.with_name("run.7").exists()


ROWS = """
    import numpy as np
    import xgboost

    generator = np.random.default_rng(0)
    x = generator.normal(size=(600, 4))
    y = (x[:, 0] + 0.3 * x[:, 1] + generator.normal(size=600) > 0).astype(int)
    train, other = xgboost.DMatrix(x[:400], y[:400]), xgboost.DMatrix(x[400:], y[400:])
    fixed = {"objective": "binary:logistic", "nthread": 1, "max_depth": 2}
    history = {}

    def boost(data, **arguments):
        xgboost.train(fixed, data, 30, verbose_eval=False, **arguments)

    boost(train)
    boost(train, evals=[(other, "eval")], evals_result=history)
    boost(train, evals=[(train, "eval")])
    model = xgboost.XGBClassifier(n_estimators=30, n_jobs=1, early_stopping_rounds=5)
    model.fit(x[:400], y[:400], eval_set=[(x[:400], y[:400])], verbose=False)
    boost(train, evals=[(train, "train")])
    boost(train, evals=[(xgboost.DMatrix(x[:300], y[:300]), "valid")])
    boost(train, evals=[(xgboost.DMatrix(x[:400], y[:400]), "train")])
    auc = fixed | {"eval_metric": "auc"}
    xgboost.train(auc, train, 30, evals=[(train, "train"), (other, "eval")], verbose_eval=False)
    boost(train, obj=lambda margin, data: (margin - data.get_label(), np.ones_like(margin)))
"""


@pytest.mark.thorough
def test_rows_and_losses_come_from_the_call_and_leaked_ones_are_found(tmp_path: Path) -> None:
    script(tmp_path, ROWS)
    done = attached("train.py", cwd=tmp_path, options=("--preset", "advisory"))
    assert done.returncode == 0, done.stderr
    pair = Both(done, done, tmp_path / "runs" / "run")
    runs = [pair.open(number) for number in range(1, 10)]
    leaks = [[one.severity for one in run.findings() if one.rule == "data_leakage"] for run in runs]
    assert leaks == [[], [], ["warning"], ["warning"], [], ["warning"], [], [], []]
    # Whatever is evaluated, the loss of the training is known, with a builtin objective.
    known = [[*run.scalars("losses", mode="train")] for run in runs]
    assert [len(names) for names in known] == [1, 1, 1, 1, 1, 1, 1, 1, 0]
    assert known[0] == known[1] == ["losses/train-logloss"]
    assert verdict(runs[0]).kind == "healthy"
    assert verdict(runs[8]).kind == "cannot tell"
    assert "no labels" in verdict(runs[8]).sentence
