"""Loss identities, gains and simple models, compared with other libraries."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_diabetes, load_digits
from sklearn.linear_model import Ridge
from sklearn.metrics import accuracy_score, r2_score, roc_auc_score
from sklearn.model_selection import LeaveOneOut, cross_val_predict
from torch.nn import functional

from vinedresser.rules.signals.base import SignalPool
from vinedresser.rules.signals.losses.compared import Compared
from vinedresser.rules.signals.losses.loss_formulas import row_losses
from vinedresser.rules.signals.losses.loss_identity import LossIdentity
from vinedresser.rules.signals.outcomes.baseline import baseline_gain, features
from vinedresser.rules.signals.outcomes.fit import FitSeries
from vinedresser.rules.signals.outcomes.guessing import Guessing
from vinedresser.testing.runs import make_run, step_record

CROSS_ENTROPY = LossIdentity("cross_entropy", "logits", "mean", by_name=True)
SQUARED = LossIdentity("mean_squared_error", "", "mean", by_name=True)
BINARY = LossIdentity("binary_cross_entropy", "logits", "mean", by_name=True)

random = np.random.default_rng(0)
LOGITS = random.normal(size=(32, 5))
CLASSES = random.integers(0, 5, 32)
SCORES = random.normal(size=(32, 1))
TRUTHS = random.integers(0, 2, (32, 1)).astype(float)


def tensor(values: np.ndarray) -> torch.Tensor:
    return torch.tensor(values)


@pytest.mark.parametrize(
    ("formula", "labels", "predictions", "expected"),
    [
        (
            ("cross_entropy", "logits"),
            CLASSES,
            LOGITS,
            lambda: functional.cross_entropy(tensor(LOGITS), tensor(CLASSES)),
        ),
        (
            ("cross_entropy", "logits"),
            np.eye(5)[CLASSES],
            LOGITS,
            lambda: functional.cross_entropy(tensor(LOGITS), tensor(np.eye(5)[CLASSES])),
        ),
        (
            ("cross_entropy", "probabilities"),
            CLASSES[:, None],
            np.exp(LOGITS) / np.exp(LOGITS).sum(1, keepdims=True),
            lambda: functional.cross_entropy(tensor(LOGITS), tensor(CLASSES)),
        ),
        (
            ("cross_entropy", "logarithms"),
            CLASSES,
            functional.log_softmax(tensor(LOGITS), 1).numpy(),
            lambda: functional.nll_loss(functional.log_softmax(tensor(LOGITS), 1), tensor(CLASSES)),
        ),
        (
            ("binary_cross_entropy", "logits"),
            TRUTHS,
            SCORES,
            lambda: functional.binary_cross_entropy_with_logits(tensor(SCORES), tensor(TRUTHS)),
        ),
        (
            ("binary_cross_entropy", "probabilities"),
            TRUTHS[:, 0],
            1 / (1 + np.exp(-SCORES)),
            lambda: functional.binary_cross_entropy_with_logits(tensor(SCORES), tensor(TRUTHS)),
        ),
        (
            ("mean_squared_error", ""),
            TRUTHS,
            SCORES,
            lambda: functional.mse_loss(tensor(SCORES), tensor(TRUTHS)),
        ),
        (
            ("huber", ""),
            TRUTHS,
            SCORES,
            lambda: functional.huber_loss(tensor(SCORES), tensor(TRUTHS)),
        ),
    ],
)
def test_losses_are_those_of_torch(
    formula: tuple[str, str],
    labels: np.ndarray,
    predictions: np.ndarray,
    expected: Callable[[], torch.Tensor],
) -> None:
    losses = row_losses(formula, labels, predictions)
    assert losses is not None
    assert losses.mean() == pytest.approx(float(expected()), rel=1e-6)


def test_data_that_do_not_fit_a_loss_have_no_loss() -> None:
    assert row_losses(("cross_entropy", "logits"), CLASSES + 5, LOGITS) is None
    assert row_losses(("cross_entropy", "logits"), TRUTHS + 0.5, SCORES) is None
    assert row_losses(("binary_cross_entropy", "probabilities"), TRUTHS, SCORES) is None
    assert row_losses(("mean_squared_error", ""), CLASSES, LOGITS) is None


def test_the_gain_of_classes_is_accuracy_over_guessing() -> None:
    series = FitSeries(CROSS_ENTROPY)
    series.add(0, Compared("l", CLASSES, LOGITS))
    gain = series.gain()
    assert gain is not None
    accuracy = accuracy_score(CLASSES, LOGITS.argmax(1))
    guessed = np.bincount(CLASSES).max() / len(CLASSES)
    assert gain.score == pytest.approx(accuracy)
    assert gain.value == pytest.approx((accuracy - guessed) / (1 - guessed))
    assert series.task == "classes"


def test_the_gain_of_values_is_r2_over_all_looks() -> None:
    truth = random.normal(100, 5, (64, 1))
    said = truth + random.normal(0, 2, (64, 1))
    series = FitSeries(SQUARED)
    for part in range(4):
        rows = slice(16 * part, 16 * part + 16)
        series.add(part, Compared("l", truth[rows], said[rows]))
    gain = series.gain()
    assert gain is not None
    assert gain.value == pytest.approx(r2_score(truth, said))


def test_the_correlation_of_values_is_that_over_all_looks() -> None:
    truth = random.normal(100, 5, (64, 1))
    said = -2 * truth + random.normal(0, 4, (64, 1))
    series = FitSeries(SQUARED)
    for part in range(4):
        rows = slice(16 * part, 16 * part + 16)
        series.add(part, Compared("l", truth[rows], said[rows]))
    assert series.correlation() == pytest.approx(np.corrcoef(truth[:, 0], said[:, 0])[0, 1])


def test_the_order_counts_for_a_rare_class() -> None:
    truth = (random.random((400, 1)) < 0.1).astype(float)
    # All predictions are no, but the rare rows have higher scores.
    scores = -5 + truth + random.normal(0, 0.5, (400, 1))
    series = FitSeries(BINARY)
    series.add(0, Compared("l", truth, scores))
    gain = series.gain()
    assert gain is not None
    assert gain.value == pytest.approx(2 * roc_auc_score(truth, scores) - 1)


def test_guessing_gains_nothing() -> None:
    labels = random.integers(0, 4, 256)
    series = FitSeries(CROSS_ENTROPY)
    constant = np.zeros((256, 4))
    constant[:, np.bincount(labels).argmax()] = 1
    series.add(0, Compared("l", labels, constant))
    gain = series.gain()
    assert gain is not None
    assert gain.value == pytest.approx(0.0)


def test_labels_that_never_change_tell_nothing() -> None:
    series = FitSeries(BINARY)
    series.add(0, Compared("l", np.ones((16, 1)), np.zeros((16, 1))))
    assert series.gain() is None


def test_ridge_leaves_out_each_row() -> None:
    x, y = load_diabetes(return_X_y=True)
    x, y = x[:60] / x[:60].std(0), y[:60]
    scaled = (x - x.mean(0)) / x.std(0)
    # Brute force; inputs are centred by the mean of all rows, as in the closed form.
    best = max(
        r2_score(y, cross_val_predict(Ridge(penalty), scaled, y, cv=LeaveOneOut()))
        for penalty in (1e-2, 1.0, 1e2)
    )
    gain = baseline_gain(x, y[:, None], 1)
    assert gain is not None
    # Five neighbours do worse here; the intercept is not exactly leave-one-out.
    assert gain == pytest.approx(best, abs=0.02)


def test_simple_models_read_digits_and_not_shuffled_ones() -> None:
    x, y = load_digits(return_X_y=True)
    gain = baseline_gain(x[:400], y[:400], 10)
    assert gain is not None
    assert gain > 0.85
    shuffled = baseline_gain(x[:400], random.permutation(y[:400]), 10)
    assert shuffled is not None
    assert shuffled < 0.1


def test_a_number_for_each_row_is_one_feature() -> None:
    rows = np.linspace(0, 1, 200)
    of_columns = features(rows[:, None])
    assert of_columns is not None
    assert np.array_equal(np.asarray(features(rows)), of_columns)
    # A curve, which is no line.
    assert (baseline_gain(of_columns, np.sin(9 * rows), 1) or 0) > 0.95
    assert features(np.asarray(3.0)) is None


def test_an_autoencoder_has_no_baseline() -> None:
    x = random.normal(size=(200, 6))
    assert baseline_gain(x, x, 6) is None


def test_classes_at_several_places_have_no_baseline() -> None:
    # The next level of a wave, which a simple model reads from the inputs of the next place.
    places = np.arange(21)
    waves = np.sin(0.3 * places + random.uniform(0, 6, (300, 1)))
    levels = ((waves + 1) * 3.99).astype(int)
    assert baseline_gain(waves[:, :-1], levels[:, 1:], 8) is None
    assert baseline_gain(waves[:, :-1], levels[:, -1], 8) is not None


@pytest.mark.parametrize(("metric", "known"), [("rmse", True), ("deviance", False)])
def test_a_default_objective_with_another_loss_is_not_compared(
    metric: str, known: bool, tmp_path: Path
) -> None:
    """The margins of a custom objective, such as logarithms, are not those of squared errors."""
    labels = random.gamma(2.0, 10.0, 64)
    tensors = {"labels/train": labels, "predictions/train": np.log(labels)}
    error = float(np.sqrt(np.mean((labels - np.log(labels)) ** 2)))
    records = [
        step_record(step, scalars={f"losses/train-{metric}": error + step}, tensors=tensors)
        for step in range(30)
    ]
    losses = {"objective": {"type": "reg:squarederror"}}
    run = make_run(tmp_path / "run", records, losses=losses, framework="xgboost")
    guessing, pool = Guessing(), SignalPool()
    pool.adopt(guessing)
    pool.begin(run.info)
    for step in run.follow():
        pool.update(step)
    assert bool(guessing.fit.of("train")) is known
