"""Keras on the torch backend, in a separate process, since a process has one backend."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from tests.paths import ROOT
from tests.warm_python import TORCH

# Keras on TensorFlow is the quick case.
pytestmark = pytest.mark.thorough

# Those of tests/capture/keras_/zoo.py. This process cannot import them: that would choose the
# backend.
_TRAININGS = (
    "accumulated",
    "again",
    "attention",
    "batches",
    "brain",
    "cnn",
    "custom",
    "half",
    "late",
    "recurrent",
    "schedule",
    "several",
)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Results of each training."""
    folder = tmp_path_factory.mktemp("torch")
    words = ["-m", "tests.capture.keras_.torch_trainings", str(folder)]
    done = TORCH.run(words, ROOT, os.environ)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


@pytest.mark.parametrize("training", _TRAININGS)
def test_final_state_is_the_same_as_without_a_hook(training: str, found: dict[str, Any]) -> None:
    assert set(found) == {*_TRAININGS, "loop"}
    result = found[training]
    assert result["equal"]
    assert result["problems"] == []
    assert result["steps"] == list(range(0, result["steps"][-1] + 1, 2))
    kinds = {"weights", "gradients", "inputs", "outputs", "optimizer_state", "labels"}
    found_kinds = {name.partition("/")[0] for name in result["names"]}
    assert kinds <= found_kinds
    assert ("attention" in found_kinds) == (training == "attention")


def test_layers_have_the_names_of_their_attributes(found: dict[str, Any]) -> None:
    """As with TensorFlow."""
    expected = {
        "custom": {"outputs/mix#2", "outputs/encoder.dense", "outputs/blocks.0", "outputs/head"},
        "attention": {"attention/fused", "weights/grouped.query_dense.kernel"},
        "recurrent": {"weights/lstm.cell.recurrent_kernel"},
    }
    for training, names in expected.items():
        assert names <= set(found[training]["names"])


def test_a_custom_loop_is_captured_step_by_step(found: dict[str, Any]) -> None:
    loop = found["loop"]
    assert loop["problems"] == []
    assert loop["steps"] == [0, 1, 2]
    assert loop["evaluations"] == [3]
    assert loop["losses"] == loop["own losses"]
    assert all(loop["weights"])
    assert all(loop["gradients"])
