"""Each rule for estimators, on a faulty training and on a near miss."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.datasets import load_diabetes, load_digits
from sklearn.ensemble import GradientBoostingClassifier, GradientBoostingRegressor
from sklearn.linear_model import SGDClassifier, SGDRegressor
from sklearn.neural_network import MLPClassifier, MLPRegressor

from tests.rules.frameworks import Case, missed, uncovered, wrongly_told
from tests.rules.trees.trainings import Rows, hook_for, mislabelled, tumours
from vinedresser.rules.registry import RULES
from vinedresser.store.reading.reader import Run, open_run

Array = NDArray[Any]

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def digits() -> Rows:
    """Return digits with pixels from 0 to 1, in two thirds and one third."""
    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))
    return x[order] / 16, y[order]


def patients(scaled: bool = True) -> Rows:
    """Return ten measurements of patients, standardised or raw."""
    x, y = load_diabetes(return_X_y=True, scaled=False)
    order = np.random.default_rng(0).permutation(len(x))
    x, y = x[order], y[order]
    return ((x - x.mean(0)) / x.std(0), (y - y.mean()) / y.std()) if scaled else (x, y)


def of_others() -> Rows:
    x, y = digits()
    return x, np.random.default_rng(1).permutation(y)


def one_class() -> Rows:
    x, y = digits()
    return x, np.full_like(y, 3)


def told() -> Rows:
    """Return digits with their labels among the inputs."""
    x, y = digits()
    return np.concatenate([x, 10 * np.eye(10)[y]], 1), y


def lost() -> Rows:
    x, y = digits()
    return np.zeros_like(x), y


def copied() -> Rows:
    """Return rows with evaluated rows among the training rows."""
    x, y = digits()
    order = np.r_[0:600, 0:300]
    return x[order], y[order]


def rare(apart: float) -> Rows:
    """Return rows with a class of 4 %, at a distance from the others."""
    rng = np.random.default_rng(0)
    y = (rng.random(3000) < 0.04).astype(int)
    x = rng.normal(size=(3000, 20))
    x[:, 0] += apart * y
    return x, y


def twins() -> Rows:
    """Return two classes; four in ten rows of one are labelled as the other."""
    x, y = digits()
    x, y = x[y < 2], y[y < 2]
    return x, np.where(np.random.default_rng(0).random(len(y)) < 0.4, 0, y)


def few() -> Rows:
    """Return 60 training rows, a third of them with wrong labels."""
    x, y = digits()
    y = np.where((np.arange(len(y)) < 60) & (np.arange(len(y)) % 3 == 0), 9 - y, y)
    return np.concatenate([x[:60], x[1400:1430]]), np.concatenate([y[:60], y[1400:1430]])


def sgd(rate: float = 0.05, **more: Any) -> Any:
    given = {"loss": "log_loss", "learning_rate": "constant", "eta0": rate, "random_state": 0}
    return SGDClassifier(**given | more)


def line(rate: float) -> Any:
    return SGDRegressor(learning_rate="constant", eta0=rate, random_state=0)


def network(rate: float = 3e-3, kind: Any = MLPClassifier, **more: Any) -> Any:
    given = {"hidden_layer_sizes": (32,), "learning_rate_init": rate, "random_state": 0}
    return kind(**given | more)


@dataclass(frozen=True)
class Learning:
    """Trains an estimator on batches of the first two thirds of some rows.

    Attributes:
        make: creates the estimator.
        rows: creates the rows.
        steps: calls of ``partial_fit``; 0 for one call of ``fit``.
        batch: rows per call.
        evaluate: whether to evaluate after each call.
    """

    make: Callable[[], Any] = sgd
    rows: Callable[[], Rows] = digits
    steps: int = 220
    batch: int = 32
    evaluate: bool = True

    def run(self, directory: Path) -> Run:
        """See `Training.run`."""
        x, y = self.rows()
        split, rng = len(x) * 2 // 3, np.random.default_rng(0)
        classes = {} if y.dtype.kind == "f" else {"classes": np.arange(max(10, y.max() + 1))}
        classes = classes and ({"classes": np.arange(2)} if y.max() < 2 else classes)
        with hook_for(directory, [kind() for kind in RULES.values()]) as hook:
            held = (x[split:], y[split:]) if self.evaluate else None
            model = hook.sklearn(self.make(), validation=held)
            if not self.steps:
                model.fit(x[:split], y[:split])
            for _step in range(self.steps):
                chosen = rng.choice(split, min(self.batch, split), replace=False)
                model.partial_fit(x[chosen], y[chosen], **classes)
        assert not [problem for problem in hook.problems if "failed" in problem]
        return open_run(directory)


def rules(*names: str) -> frozenset[str]:
    return frozenset(names)


FAULTY = {
    "labels of other rows": Case(
        Learning(rows=of_others, steps=200), rules("corrupt_labels"), "corrupt_labels"
    ),
    "one class": Case(
        Learning(rows=one_class, steps=160, evaluate=False), rules("single_label"), "single_label"
    ),
    "labels among the inputs": Case(
        Learning(lambda: sgd(0.3), told, 40, evaluate=False),
        rules("target_leakage"),
        "data_leakage",
    ),
    "inputs that are lost": Case(
        Learning(rows=lost, evaluate=False),
        rules("corrupt_inputs", "no_signal", "identical_units", "loss_not_decreasing"),
        "corrupt_inputs",
    ),
    "copied rows": Case(Learning(rows=copied, steps=60), rules("data_leakage"), "data_leakage"),
    "a rare class": Case(
        Learning(rows=lambda: rare(0.3), steps=400, evaluate=False),
        rules("class_imbalance"),
        "class_imbalance",
    ),
    "numbers of classes": Case(
        Learning(
            lambda: network(kind=MLPRegressor),
            lambda: (digits()[0], digits()[1] * 1.0),
            80,
            evaluate=False,
        ),
        rules("loss_output_mismatch"),
        "loss_output_mismatch",
    ),
    "inputs and targets as they were measured": Case(
        Learning(lambda: line(0.01), lambda: patients(scaled=False), 250, evaluate=False),
        rules("unnormalised_inputs", "unnormalised_targets"),
        "unnormalised_inputs",
    ),
    "a learning rate that is too large": Case(
        Learning(lambda: line(0.25), patients, 160, batch=8, evaluate=False),
        rules("learning_rate_too_high"),
        "learning_rate_too_high",
    ),
    "a learning rate far too small": Case(
        Learning(lambda: network(1e-7), evaluate=False), rules("underfitting"), "underfitting"
    ),
    "a penalty far too strong": Case(
        Learning(lambda: network(alpha=100.0), evaluate=False),
        rules("over_regularisation"),
        "over_regularisation",
    ),
    "few rows": Case(
        Learning(lambda: network(1e-2, hidden_layer_sizes=(128,)), few, 120),
        rules("overfitting"),
        "overfitting",
    ),
    "batches that add nothing": Case(
        Learning(lambda: line(0.01), patients, 60), rules("overfitting")
    ),
    "classes that look alike": Case(
        Learning(rows=twins, steps=160, evaluate=False), rules("classifier_confusion")
    ),
    "trees without a split": Case(
        Learning(
            lambda: GradientBoostingRegressor(n_estimators=60, min_impurity_decrease=1e9),
            patients,
            0,
        ),
        rules("empty_trees"),
        "over_regularisation",
    ),
    "more than full steps": Case(
        Learning(
            lambda: GradientBoostingRegressor(n_estimators=12, learning_rate=3.0), patients, 0
        ),
        rules("shrinkage_too_high"),
        "learning_rate_too_high",
    ),
    "trees that learn rows by heart": Case(
        Learning(
            lambda: GradientBoostingClassifier(n_estimators=40, max_depth=14, random_state=0),
            mislabelled,
            0,
        ),
        rules("tree_depth"),
        "tree_depth",
    ),
    "a feature that is the label": Case(
        Learning(
            lambda: GradientBoostingClassifier(n_estimators=40, max_depth=2, random_state=0),
            lambda: (np.column_stack([tumours()[0], tumours()[1]]), tumours()[1].astype(int)),
            0,
        ),
        rules("feature_dominance"),
    ),
}

SOUND = {
    "a linear model": Case(
        Learning(),
        rules(
            *("corrupt_labels", "single_label", "corrupt_inputs"),
            *("data_leakage", "loss_not_decreasing", "no_signal", "identical_units"),
            *("class_imbalance", "learning_rate_too_high", "target_leakage"),
        ),
    ),
    "a rare class that is learned": Case(
        Learning(rows=lambda: rare(6.0), steps=400, evaluate=False),
        rules("class_imbalance", "classifier_confusion"),
    ),
    "a network": Case(
        Learning(lambda: network(1e-2)),
        rules(
            *("over_regularisation", "underfitting"),
        ),
    ),
    "values as they should be": Case(
        Learning(lambda: network(3e-3, MLPRegressor), patients, 60),
        rules(
            *("unnormalised_inputs", "unnormalised_targets", "loss_output_mismatch"),
            "overfitting",
        ),
    ),
    "trees": Case(
        Learning(
            lambda: GradientBoostingClassifier(n_estimators=32, max_depth=4, random_state=0),
            lambda: (digits()[0], (digits()[1] < 5).astype(int)),
            0,
            evaluate=False,
        ),
        rules(
            *("empty_trees", "tree_depth", "feature_dominance", "shrinkage_too_high"),
        ),
    ),
}


_OUTCOME = "rules/trees/test_boosting_outcome.py"
ELSEWHERE = {
    "shrinkage_too_low": (
        f"{_OUTCOME}::test_a_low_rate_is_found_in_scikit_learn",
        f"{_OUTCOME}::test_estimators_that_learn_are_ignored",
    ),
    "memorised_labels": (
        f"{_OUTCOME}::test_shuffled_labels_are_found_in_scikit_learn",
        f"{_OUTCOME}::test_estimators_that_learn_are_ignored",
    ),
}

THOROUGH = (
    "a learning rate far too small",
    "a penalty far too strong",
    "inputs that are lost",
    "labels of other rows",
    "one class",
    "trees that learn rows by heart",
)


@pytest.mark.slow
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
    assert uncovered("scikit-learn", FAULTY, SOUND, ELSEWHERE) == []
