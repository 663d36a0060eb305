"""A pruned model computes what the unpruned one does if nothing reads the removed channels."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.pruning.keras_.pruning_of import drawn_example, random_plan, redraw
from tests.pruning.keras_.zoo import ZOO, channels_first, keras
from vinedresser.pruning.keras_ import KerasPrunable
from vinedresser.pruning.plan import Plan
from vinedresser.pruning.proof import prove, relative_difference

BACKEND = keras.backend.backend()


def planned(model: Any) -> tuple[KerasPrunable, Plan]:
    """Return a model with drawn weights, and a plan that removes half of its channels."""
    rng = np.random.default_rng(1)
    redraw(model, rng)
    prunable = KerasPrunable(model, drawn_example(model, rng))
    return prunable, random_plan(prunable, rng)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ZOO)
def test_a_pruned_model_equals_the_masked_one(name: str) -> None:
    prunable, plan = planned(ZOO[name]())
    before = prunable.tensors()
    masked, pruned = prunable.compared(plan, "float32")
    assert plan.count > 5
    assert relative_difference(masked, pruned) <= 1e-5
    # The removed channels mattered, and the model itself stays as it is.
    assert relative_difference(prunable.outputs(prunable.model), masked) > 1e-3
    assert all(np.array_equal(before[one], now) for one, now in prunable.tensors().items())


def prove_and_save(model: Any, directory: Path) -> None:
    """Prove a pruning of a model in all precisions, and that it can be saved and loaded."""
    prunable, plan = planned(model)
    pruned = prunable.removed(plan)
    proof = prove(prunable, plan, pruned, count=plan.count)
    assert proof.parameters[1] < 0.85 * proof.parameters[0]
    pruned.save(directory / "pruned.keras")
    loaded = keras.models.load_model(directory / "pruned.keras")
    assert relative_difference(prunable.outputs(pruned), prunable.outputs(loaded)) <= 1e-6


# Keras itself converts TensorFlow's variables so when it saves them.
@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_a_pruned_model_is_proved_and_saved(tmp_path: Path) -> None:
    prove_and_save(ZOO["plain"](), tmp_path)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
@pytest.mark.parametrize("name", ZOO)
def test_every_architecture_is_proved_and_saved(name: str, tmp_path: Path) -> None:
    prove_and_save(ZOO[name](), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["MobileNetV2", "ResNet50", "DenseNet121", "EfficientNetV2B0"])
def test_architectures_that_keras_brings_are_pruned(name: str) -> None:
    build = getattr(keras.applications, name)
    model = build(weights=None, input_shape=(32, 32, 3), classes=10, classifier_activation=None)
    rng = np.random.default_rng(0)
    prunable = KerasPrunable(model, drawn_example(model, rng))
    plan = random_plan(prunable, rng, share=0.3)
    assert [group.name for group in prunable.groups if group.locked] == ["predictions"]
    assert relative_difference(*prunable.compared(plan, "redrawn")) <= 1e-12


@pytest.mark.slow
@pytest.mark.skipif(BACKEND != "torch", reason="TensorFlow convolves channels_last only on a CPU")
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_models_with_channels_first_are_pruned(tmp_path: Path) -> None:
    prove_and_save(channels_first(), tmp_path)


@pytest.mark.slow
@pytest.mark.skipif(BACKEND == "torch", reason="runs the tests on the torch backend")
@pytest.mark.timeout(600)
def test_the_torch_backend_passes_the_same_tests() -> None:
    # Keras itself converts tensors of PyTorch so.
    ignored = "ignore:__array__ implementation:DeprecationWarning"
    command = [sys.executable, "-m", "pytest", "-q", os.path.dirname(__file__)]
    found = subprocess.run(
        [*command, "-W", ignored, "-p", "no:cacheprovider", "-k", "not nearly_all"],
        env={**os.environ, "KERAS_BACKEND": "torch"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stdout[-4000:]
    assert "channels_first" not in found.stdout
