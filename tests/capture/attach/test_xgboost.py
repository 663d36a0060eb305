"""Capture from XGBoost trainings in unchanged scripts."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.capture.attach.runs import Both, alone_in_process, attached, script, split_stderr

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
    model = xgboost.XGBClassifier(n_estimators=4, n_jobs=1, eval_metric="error")
    model.fit(x, y, eval_set=[(x, y)], verbose=False)
    print(model.predict_proba(x)[:9].tolist(), model.callbacks)
    print(xgboost.cv(parameters, data, 3).shape)
"""


def test_both_interfaces_are_captured_and_nothing_else_changes(tmp_path: Path) -> None:
    path = script(tmp_path, TRAINING)
    pair = Both(
        alone_in_process(path), attached("train.py", cwd=tmp_path), tmp_path / "runs" / "run"
    )
    assert pair.attached.returncode == 0, pair.attached.stderr
    assert pair.attached.stdout == pair.alone.stdout
    said = split_stderr(pair.attached.stderr)[0].splitlines()
    # The metric of an unidentified evaluation set is not a training loss.
    assert len(said) == 2
    assert "another training is captured in" in said[0]
    assert "no losses of the training" in said[1]
    expected = [float(word) for word in pair.alone.stdout.splitlines()[3].split()]
    native, estimator = pair.open(), pair.open(2)
    column = native.scalars("losses")["losses/train-logloss"]
    np.testing.assert_allclose(column.values, expected, rtol=1e-5)
    assert native.info.framework == "xgboost"
    assert len(estimator.scalars("metrics", mode="eval")["metrics/validation_0-error"].values) == 4
    # Cross-validation is left alone.
    assert not pair.run.with_name("run.3").exists()
