"""Simple models for rows of tokens and ids, and of several inputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.preprocessing import OneHotEncoder

from vinedresser.rules.signals.outcomes.mixed_baseline import MixedBaseline, indicators
from vinedresser.testing.runs import make_run, step_record

_ROWS, _BATCH = 256, 32


def gain_of(
    directory: Path, inputs: dict[str, NDArray[np.generic]], labels: NDArray[np.generic]
) -> float | None:
    """Return the gain of simple models on rows that are recorded batch by batch."""
    width = labels.shape[1] if labels.ndim > 1 else 1
    records = []
    for place, first in enumerate(range(0, len(labels), _BATCH)):
        rows = slice(first, first + _BATCH)
        tensors = {
            **{f"model_inputs/{name}": values[rows] for name, values in inputs.items()},
            "labels/loss": labels[rows],
            "predictions/loss": np.zeros((_BATCH, width)),
        }
        records.append(step_record(5 * place, tensors=tensors, scalars={"losses/loss": 1.0}))
    baseline = MixedBaseline()
    for seen in make_run(directory, records, framework="torch").follow():
        for signal in (baseline.batches, baseline):
            signal.update(seen)
    return baseline.gain("loss")


def test_indicators_of_ids_are_those_of_scikit_learn() -> None:
    ids = np.random.default_rng(0).integers(7, size=(40, 3)).astype(np.float64)
    expected = OneHotEncoder(sparse_output=False).fit_transform(ids)
    found = indicators(ids)
    assert sorted(map(tuple, found[:, : expected.shape[1]].T)) == sorted(map(tuple, expected.T))
    # How often a row has a value, in any column.
    assert np.array_equal(found[:, expected.shape[1] :].sum(1), np.full(40, 3))


def test_a_word_decides(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    tokens = random.integers(1, 30, size=(_ROWS, 12))
    labels = (tokens == 3).any(1).astype(np.float32)
    gain = gain_of(tmp_path / "run", {"model": tokens}, labels)
    assert gain is not None
    words = np.stack([(tokens == word).sum(1) for word in range(30)], axis=1)
    accuracy = cross_val_score(LogisticRegression(), words, labels).mean()
    chance = max(labels.mean(), 1 - labels.mean())
    assert gain == pytest.approx(1 - (1 - accuracy) / (1 - chance), abs=0.15)
    assert gain > 0.8


def test_an_id_and_a_number(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    ids, numbers = random.integers(5, size=_ROWS), random.normal(size=(_ROWS, 2))
    labels = np.array([3.0, -1.0, 0.5, 2.0, -2.0])[ids] + numbers[:, 0]
    gain = gain_of(tmp_path / "run", {"model[0]": ids, "model[1]": numbers}, labels)
    assert gain is not None
    assert gain > 0.95
    shuffled = random.permutation(labels)
    gain = gain_of(tmp_path / "shuffled", {"model[0]": ids, "model[1]": numbers}, shuffled)
    assert gain is not None
    assert gain < 0.1


def test_targets_of_autoencoders_are_copies(tmp_path: Path) -> None:
    """The encoder's rows and the decoder's are two inputs, and one of them is the target."""
    rows = np.random.default_rng(0).normal(size=(_ROWS, 6))
    assert gain_of(tmp_path / "run", {"encoder": rows, "decoder": rows[:, :2]}, rows) is None
