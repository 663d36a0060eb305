"""Rounds of a Keras model, in this process."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.pruning.rounds import keras_functions
from vinedresser import open_run
from vinedresser.capture import Hook
from vinedresser.pruning import load
from vinedresser.pruning.folders import PRUNED, round_folder
from vinedresser.pruning.rounds.round_run import Round
from vinedresser.pruning.rounds.settings import PruneTable

pytestmark = pytest.mark.thorough

MODULE = "tests.pruning.rounds.keras_functions"
TABLE = PruneTable(
    model=f"{MODULE}:network",
    example=f"{MODULE}:example",
    train=f"{MODULE}:train",
    evaluate=f"{MODULE}:evaluate",
    losses=f"{MODULE}:losses",
    amount=2,
)


def test_rounds_of_a_keras_model(tmp_path: Path) -> None:
    records = []
    for number, criterion in enumerate(("l1", "l1", "taylor_activation")):
        table = dataclasses.replace(TABLE, criterion=criterion)
        with Hook(tmp_path / f"run-{number}") as hook:
            records.append(Round(tmp_path, number, table, hook).execute({"epochs": 2}))
    assert [record.removed for record in records] == [0, 2, 2]
    # The addition ties both convolutions into one group.
    assert [*records[0].left.values()] == [8]
    assert [*records[2].left.values()] == [4]
    assert open_run(tmp_path / "run-2").steps("train").size == 6
    served = load(round_folder(tmp_path, 2), keras_functions.network)
    assert served.get_layer("stem").filters == 4
    assert keras_functions.evaluate(served) == pytest.approx(records[2].figure, abs=1e-6)


def test_a_command_fine_tunes_a_keras_model(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.scripts.keras_fine_tuning"]
    table = dataclasses.replace(TABLE, train=command)
    for number in range(2):
        with Hook(tmp_path / f"run-{number}") as hook:
            record = Round(tmp_path, number, table, hook).execute({"epochs": 3})
    served = load(round_folder(tmp_path, 1), keras_functions.network)
    assert keras_functions.evaluate(served) == pytest.approx(record.figure, abs=1e-6)
    pruned = load(round_folder(tmp_path, 1) / PRUNED, keras_functions.network)
    assert keras_functions.evaluate(pruned) == pytest.approx(record.before, abs=1e-6)
    assert not np.allclose(served.get_weights()[0], pruned.get_weights()[0], atol=1e-3)
    # The same training in this process is the reference.
    keras_functions.fit(pruned, epochs=3)
    for tuned, expected in zip(served.get_weights(), pruned.get_weights(), strict=True):
        np.testing.assert_allclose(tuned, expected, atol=1e-5)


# Keras reads HDF5 datasets as arrays of NumPy 1.
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_weights_in_the_format_of_keras(tmp_path: Path) -> None:
    trained = keras_functions.network()
    trained.save_weights(tmp_path / "trained.weights.h5")
    table = dataclasses.replace(TABLE, weights=str(tmp_path / "trained.weights.h5"))
    with Hook(tmp_path / "run") as hook:
        Round(tmp_path, 0, table, hook).execute({})
    served = load(round_folder(tmp_path, 0), keras_functions.network)
    for one, other in zip(served.get_weights(), trained.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
