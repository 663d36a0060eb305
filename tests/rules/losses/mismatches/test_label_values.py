"""Labels that a loss between classes does not take, and remedies that fit the targets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from vinedresser.rules.judge import judge
from vinedresser.rules.losses.label_values import advice_for_one_unit, labels_out_of_range
from vinedresser.rules.losses.loss_output_mismatch import LossOutputMismatch
from vinedresser.rules.losses.mismatch import Given, output_form
from vinedresser.rules.signals.losses.compared import Compared
from vinedresser.rules.signals.losses.loss_identity import LossIdentity
from vinedresser.store.finding import Finding
from vinedresser.testing.runs import make_run, step_record

Labels = Callable[[NDArray[np.int64]], NDArray[Any]]


def _found(directory: Path, loss: str, labels: Labels, *, outputs: int) -> list[Finding]:
    """Judge six batches of 32 rows; the outputs are shares of classes, or of one class each."""
    generator = np.random.default_rng(0)
    records = []
    for step in range(0, 30, 5):
        numbers = generator.integers(10, size=32)
        shares = generator.dirichlet(np.ones(max(outputs, 2)), size=32)[:, :outputs]
        tensors = {f"labels/{loss}": labels(numbers), f"predictions/{loss}": shares}
        records.append(step_record(step, tensors=tensors, scalars={f"losses/{loss}": 0.7}))
    run = make_run(directory / "run", records, framework="keras")
    return judge(run, [LossOutputMismatch()])


def _one_hot(numbers: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.eye(10)[numbers]


@pytest.mark.parametrize(
    ("loss", "outputs", "labels", "kind", "severity"),
    [
        ("SparseCategoricalCrossentropy", 10, lambda y: y / 255, "no_class_numbers", "stop"),
        ("SparseCategoricalCrossentropy", 10, lambda y: y[:, None] / 9, "no_class_numbers", "stop"),
        ("SparseCategoricalCrossentropy", 10, lambda y: y - 4.5, "no_class_numbers", "stop"),
        ("CategoricalCrossentropy", 10, lambda y: _one_hot(y) / 255, "scaled_labels", "warning"),
        ("CategoricalCrossentropy", 10, lambda y: _one_hot(y) * 16, "scaled_labels", "warning"),
        ("BinaryCrossentropy", 1, lambda y: (y > 4)[:, None] / 16, "labels_not_binary", "warning"),
        ("BinaryCrossentropy", 1, lambda y: y[:, None] * 30, "labels_not_binary", "stop"),
    ],
)
def test_labels_that_were_scaled(
    loss: str, outputs: int, labels: Labels, *, kind: str, severity: str, tmp_path: Path
) -> None:
    (finding,) = _found(tmp_path, loss, labels, outputs=outputs)
    assert (finding.evidence["kind"], finding.severity) == (kind, severity)
    assert finding.step == 10


def _smoothed(numbers: NDArray[np.int64]) -> NDArray[np.float64]:
    return 0.9 * _one_hot(numbers) + 0.01


def _weighted(numbers: NDArray[np.int64]) -> NDArray[np.float64]:
    return _one_hot(numbers) * (1 + numbers[:, None] % 3)


@pytest.mark.parametrize(
    ("loss", "outputs", "labels"),
    [
        ("SparseCategoricalCrossentropy", 10, lambda y: y.astype(float)),
        ("SparseCategoricalCrossentropy", 10, lambda y: y[:, None].astype(float)),
        ("CategoricalCrossentropy", 10, _one_hot),
        ("CategoricalCrossentropy", 10, _smoothed),
        # Several labels of a row, and labels times the weight of their class.
        ("CategoricalCrossentropy", 10, lambda y: np.maximum(_one_hot(y), _one_hot(9 - y))),
        ("CategoricalCrossentropy", 10, _weighted),
        ("BinaryCrossentropy", 1, lambda y: (y > 4)[:, None] * 0.8 + 0.1),
        # Soft labels, such as the grey values of dark images.
        ("BinaryCrossentropy", 1, lambda y: y[:, None] / 99),
    ],
)
def test_other_labels_are_ignored(loss: str, outputs: int, labels: Labels, tmp_path: Path) -> None:
    assert _found(tmp_path, loss, labels, outputs=outputs) == []


def _numbers(numbers: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return ten numbers of each row, as of the data that examples draw at random."""
    return np.random.default_rng(1).random((len(numbers), 10))


@pytest.mark.parametrize(
    ("labels", "kind"),
    [
        (_numbers, "no_shares"),
        (lambda y: _numbers(y) - 0.5, "no_shares"),
        # These sum to 1, or have one number in a row, or equal ones.
        (lambda y: _numbers(y) / _numbers(y).sum(-1, keepdims=True), None),
        (_weighted, None),
        (lambda y: np.maximum(_one_hot(y), _one_hot(9 - y)) * (1 + y[:, None] % 3), None),
    ],
)
def test_labels_that_are_no_shares_of_classes(labels: Labels, kind: str | None) -> None:
    given = labels(np.random.default_rng(0).integers(10, size=32))
    predictions = np.full((32, 10), 0.1)
    form = output_form(predictions)
    assert form is not None
    found = labels_out_of_range(
        Given(
            LossIdentity("cross_entropy", "probabilities", "mean", by_name=True),
            Compared("loss", given, predictions),
            given,
            form,
            activation="softmax",
            broadcasts=False,
            value=2.3,
            negated=False,
            dropout="",
        )
    )
    assert (found and found.kind) == kind
    # A training that learns may have weighted its rows.
    assert found is None or not found.sure


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ([0, 1, 1, 0], "sigmoid and a binary cross-entropy"),
        ([-1, 1, 1, -1], "(labels + 1) / 2"),
        ([0, 2, 1, 0, 2, 1, 1, 0], "one output for each (at least 3) with softmax"),
        ([25, 346, 71, 202, 118, 90], "without an activation and MSELoss"),
        ([0.5, 1.25, 3.75], "without an activation and MSELoss"),
        ([-3, 4, -3, 4, 4, 4], "without an activation and MSELoss"),
    ],
)
def test_the_remedy_for_one_unit_fits_the_targets(labels: list[float], expected: str) -> None:
    assert expected in advice_for_one_unit(np.array(labels)[:, None])
