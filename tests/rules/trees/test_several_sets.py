"""Training rows in one of several evaluation sets, and in folds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import xgboost
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from vinedresser.capture import Hook
from vinedresser.capture.xgboost_.data import DataSet
from vinedresser.rules.base import capture_for
from vinedresser.rules.data.leakage.data_leakage import DataLeakage
from vinedresser.rules.judge import judge
from vinedresser.store.finding import Finding
from vinedresser.store.reading.reader import open_run

PARAMETERS = {"objective": "multi:softprob", "num_class": 10, "max_depth": 3, "nthread": 1}
ORDER = np.random.default_rng(0).permutation(1797)


def matrix(rows: NDArray[np.int64]) -> xgboost.DMatrix:
    x, y = load_digits(return_X_y=True)
    return xgboost.DMatrix(x[rows], y[rows])


def boosted(folder: Path, **sets: NDArray[np.int64]) -> list[Finding]:
    """Train on the first 600 rows, and evaluate these sets."""
    train = matrix(ORDER[:600])
    validation = {name: matrix(rows) for name, rows in sets.items()}
    rules = [DataLeakage()]
    with Hook(folder / "run", collections=capture_for(rules).collections) as hook:
        evals = [(train, "train"), *((data, name) for name, data in validation.items())]
        callback = hook.xgboost(train=train, validation=validation)
        xgboost.train(PARAMETERS, train, 40, evals=evals, callbacks=[callback], verbose_eval=False)
    return judge(open_run(folder / "run"), rules)


def test_a_set_with_some_training_rows_is_named(tmp_path: Path) -> None:
    (finding,) = boosted(tmp_path, valid=ORDER[600:1000], test=ORDER[500:800])
    assert (finding.severity, finding.tensor) == ("warning", "inputs/batch[test]")
    assert "of inputs of batch[test]" in finding.seen or "inputs/batch[test]" in finding.seen
    assert "about 33% of all of its rows" in finding.seen


def test_a_set_of_training_rows_beside_another_is_a_hint(tmp_path: Path) -> None:
    """As of `eval_set=[(x_train, y_train), (x_valid, y_valid)]` with copied rows."""
    (finding,) = boosted(tmp_path, validation_0=ORDER[:600], validation_1=ORDER[600:1000])
    assert (finding.severity, finding.tensor) == ("info", "inputs/batch[validation_0]")


def test_several_sets_of_training_rows_are_no_result(tmp_path: Path) -> None:
    (finding,) = boosted(tmp_path, valid=ORDER[:300], test=ORDER[300:600])
    assert finding.severity == "warning"


def test_several_sets_of_other_rows_are_sound(tmp_path: Path) -> None:
    assert boosted(tmp_path, valid=ORDER[600:1000], test=ORDER[1000:]) == []


def test_a_fold_of_training_rows_is_no_result_beside_another(tmp_path: Path) -> None:
    rows = np.arange(600)
    folds = [(rows, rows[:300]), (rows[300:], rows[:300])]
    rules = [DataLeakage()]
    with Hook(tmp_path / "run", collections=capture_for(rules).collections) as hook:
        xgboost.cv(PARAMETERS, matrix(ORDER[:600]), 30, folds=folds, callbacks=[hook.xgboost()])
    (finding,) = judge(open_run(tmp_path / "run"), rules)
    assert finding.severity == "warning"


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("in_place", [False, True])
def test_the_share_of_training_rows_is_known_from_a_sample(share: float, in_place: bool) -> None:
    """The copies may be anywhere, or where they are in the training data."""
    random = np.random.default_rng(0)
    train, other = random.random((2, 8000, 3))
    copied = np.where(random.random(8000) < share, True, False)[:, None]
    rows = np.where(copied, train, other)
    rows = rows if in_place else random.permutation(rows)
    known, evaluated = (DataSet("a", xgboost.DMatrix(one), 1000) for one in (train, rows))
    assert evaluated.share_of(known) == pytest.approx(share, abs=0.2)


@pytest.mark.parametrize(("begin", "severities"), [(400, []), (300, ["warning"])])
def test_each_fold_is_compared_with_its_own_training_rows(
    begin: int, severities: list[str], tmp_path: Path
) -> None:
    """What one fold trains on, another may evaluate."""
    first, last = np.arange(400), np.arange(begin, 600)
    folds = [(first, last), (last, np.arange(begin))]
    rules = [DataLeakage()]
    with Hook(tmp_path / "run", collections=capture_for(rules).collections) as hook:
        data = matrix(ORDER[:600])
        xgboost.cv(PARAMETERS, data, 30, folds=folds, callbacks=[hook.xgboost()])
    found = judge(open_run(tmp_path / "run"), rules)
    assert [one.severity for one in found] == severities
