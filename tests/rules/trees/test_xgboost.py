"""Each rule for boosting, on a faulty training and on a near miss."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xgboost
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, make_classification

from tests.rules.frameworks import Case, missed, uncovered, wrongly_told
from tests.rules.trees.trainings import Rows, hook_for
from vinedresser.rules.registry import RULES
from vinedresser.store.reading.reader import Run, open_run

_BINARY: dict[str, Any] = {"objective": "binary:logistic", "max_depth": 3}
_CLASSES: dict[str, Any] = {"objective": "multi:softprob", "max_depth": 3, "num_class": 10}


def shuffled(x: Any, y: Any) -> Rows:
    order = np.random.default_rng(0).permutation(len(x))
    return x[order], np.asarray(y[order], np.float64)


def tumours() -> Rows:
    return shuffled(*load_breast_cancer(return_X_y=True))


def digits() -> Rows:
    return shuffled(*load_digits(return_X_y=True))


def patients() -> Rows:
    return shuffled(*load_diabetes(return_X_y=True))


def wrong_labels() -> Rows:
    x, _ = tumours()
    return x, np.random.default_rng(0).integers(0, 2, len(x)).astype(float)


def one_class() -> Rows:
    x, _ = tumours()
    return x, np.ones(len(x))


def hardly_another_class() -> Rows:
    x, y = tumours()
    keep = (y > 0) | (np.cumsum(y == 0) <= 40)
    return x[keep], y[keep]


def lost() -> Rows:
    x, y = tumours()
    return np.zeros_like(x), y


def rare(apart: float) -> Rows:
    """Return rows with a class of 4 %, at a distance from the others."""
    x, y = make_classification(
        6000, 20, n_informative=4, weights=[0.96], class_sep=apart, flip_y=0, random_state=0
    )
    return x, y.astype(float)


def copied() -> Rows:
    """Return rows with half of the evaluated rows among the training rows."""
    x, y = digits()
    order = np.r_[0:600, 0:150, 600:750]
    return x[order], y[order]


def steps_of_a_quantity() -> Rows:
    """Return integers that are quantities."""
    x, _ = patients()
    size = x[:, 2] + x[:, 8]
    return x, np.digitize(size, np.quantile(size, np.arange(1, 8) / 8)).astype(float)


def twins() -> Rows:
    """Return two classes; four in ten rows of one are labelled as the other."""
    x, y = digits()
    keep = np.isin(y, (0, 1))
    x, y = x[keep], y[keep]
    return x, np.where(np.random.default_rng(0).random(len(y)) < 0.4, 0.0, y)


@dataclass(frozen=True)
class Boosting:
    """Boosts trees on the first two thirds of some rows.

    Attributes:
        rows: creates the rows.
        rounds: rounds of boosting.
        params: parameters of the booster.
    """

    rows: Callable[[], Rows] = tumours
    rounds: int = 60
    params: dict[str, Any] = field(default_factory=lambda: dict(_BINARY))

    def run(self, directory: Path) -> Run:
        """See `Training.run`."""
        x, y = self.rows()
        split = len(x) * 2 // 3
        train = xgboost.DMatrix(x[:split], y[:split])
        valid = xgboost.DMatrix(x[split:], y[split:])
        with hook_for(directory, [kind() for kind in RULES.values()]) as hook:
            xgboost.train(
                {"nthread": 1, "seed": 0, **self.params},
                train,
                self.rounds,
                evals=[(train, "train"), (valid, "valid")],
                callbacks=[hook.xgboost(train=train, validation=valid)],
                verbose_eval=False,
            )
        assert hook.problems == []
        return open_run(directory)


def binary(**params: Any) -> dict[str, Any]:
    return _BINARY | params


def rules(*names: str) -> frozenset[str]:
    return frozenset(names)


FAULTY = {
    "labels drawn at random": Case(
        Boosting(wrong_labels, 160), rules("corrupt_labels", "overfitting"), "corrupt_labels"
    ),
    "one class": Case(Boosting(one_class), rules("single_label"), "single_label"),
    "inputs that are lost": Case(
        Boosting(lost, 220),
        rules("corrupt_inputs", "empty_trees", "loss_not_decreasing"),
        "corrupt_inputs",
    ),
    "a rare class": Case(
        Boosting(lambda: rare(0.3), 160, binary(max_depth=2, eta=0.05)),
        rules("class_imbalance"),
        "class_imbalance",
    ),
    "copied rows": Case(
        Boosting(copied, 40, dict(_CLASSES)), rules("data_leakage"), "data_leakage"
    ),
    "numbers of classes": Case(
        Boosting(digits, 60, {"max_depth": 3}),
        rules("loss_output_mismatch"),
        "loss_output_mismatch",
    ),
    "a learning rate far too small": Case(
        Boosting(tumours, 220, binary(eta=1e-6)),
        rules("loss_not_decreasing"),
        "learning_rate_too_low",
    ),
    "a learning rate that is too small": Case(
        Boosting(patients, 180, {"max_depth": 2, "eta": 2e-4}),
        rules("underfitting"),
        "learning_rate_too_low",
    ),
    "a learning rate that is too large": Case(
        Boosting(patients, 110, {"eta": 1.5, "max_depth": 1, "subsample": 0.1}),
        rules("learning_rate_too_high"),
        "learning_rate_too_high",
    ),
    "more than full steps": Case(
        Boosting(digits, 20, {**_CLASSES, "eta": 5.0}),
        rules("shrinkage_too_high"),
        "learning_rate_too_high",
    ),
    "more than full steps of numbers": Case(
        Boosting(patients, 20, {"max_depth": 4, "eta": 2.5}),
        rules("shrinkage_too_high"),
        "learning_rate_too_high",
    ),
    "a learning rate that overflows": Case(
        Boosting(patients, 60, {"eta": 30.0}), rules("nonfinite"), "learning_rate_too_high"
    ),
    "rounds that add nothing": Case(
        Boosting(patients, 130, {"max_depth": 1, "reg_lambda": 1000.0}), rules("overfitting")
    ),
    "classes that look alike": Case(
        Boosting(twins, 40, {**_CLASSES, "num_class": 2, "max_depth": 1, "eta": 0.1}),
        rules("classifier_confusion"),
    ),
}

SOUND = {
    "right labels": Case(
        Boosting(tumours, 160, binary(eta=0.05)),
        rules("corrupt_labels", "overfitting", "corrupt_inputs", "loss_not_decreasing"),
    ),
    "two classes, one of them hardly there": Case(
        Boosting(hardly_another_class), rules("single_label")
    ),
    "a rare class that is learned": Case(
        Boosting(lambda: rare(2.0), 160, binary(eta=0.1)), rules("class_imbalance")
    ),
    "rows that were split": Case(
        Boosting(digits, 40, dict(_CLASSES)),
        rules("data_leakage", "classifier_confusion", "overfitting"),
    ),
    "quantities in steps": Case(
        Boosting(steps_of_a_quantity, 100, {"max_depth": 2, "eta": 0.1}),
        rules("loss_output_mismatch"),
    ),
    "a small learning rate": Case(
        Boosting(patients, 180, {"max_depth": 2, "eta": 0.02}),
        rules("underfitting", "nonfinite", "empty_trees"),
    ),
    "a large learning rate": Case(
        Boosting(tumours, 110, binary(eta=1.0, max_depth=1)),
        rules("learning_rate_too_high"),
    ),
    "steps of twice the length that lower the loss": Case(
        Boosting(digits, 20, {**_CLASSES, "eta": 2.0}), rules("shrinkage_too_high")
    ),
}

_OUTCOME = "rules/trees/test_boosting_outcome.py"
# The rules about trees, and those based on step numbers alone.
ELSEWHERE = {
    name: (f"rules/trees/test_trees.py::{fires}", f"rules/trees/test_trees.py::{silent}")
    for name, fires, silent in (
        (
            "tree_depth",
            "test_deep_trees_on_noisy_labels_are_found",
            "test_shallow_trees_are_ignored",
        ),
        (
            "feature_dominance",
            "test_a_feature_derived_from_the_label_is_found",
            "test_few_or_balanced_features_are_ignored",
        ),
    )
} | {
    name: (f"{_OUTCOME}::{fires}", f"{_OUTCOME}::{silent}")
    for name, fires, silent in (
        (
            "shrinkage_too_low",
            "test_a_learning_rate_too_low_for_the_rounds_is_found",
            "test_low_rates_that_are_no_fault_are_ignored",
        ),
        (
            "memorised_labels",
            "test_shuffled_labels_are_found_in_ten_rounds",
            "test_boosters_that_learn_are_ignored",
        ),
    )
}


THOROUGH = ("a learning rate far too small", "inputs that are lost", "rounds that add nothing")


@pytest.mark.thorough
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.thorough if name in THOROUGH else ()) for name in FAULTY],
)
def test_a_faulty_training_is_found(name: str, tmp_path: Path) -> None:
    assert missed(FAULTY[name], tmp_path / "run") == []


@pytest.mark.thorough
@pytest.mark.parametrize("name", SOUND)
def test_a_correct_training_is_ignored(name: str, tmp_path: Path) -> None:
    assert wrongly_told(SOUND[name], tmp_path / "run") == []


def test_every_rule_has_its_cases_or_a_reason() -> None:
    assert uncovered("XGBoost", FAULTY, SOUND, ELSEWHERE) == []
