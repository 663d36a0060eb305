"""A pruned model computes what the unpruned one does if nothing reads the removed channels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.pruning.keras_.pruning_of import drawn_example, random_plan, redraw
from tests.pruning.keras_.zoo import ZOO, keras
from vinedresser.pruning.keras_ import KerasPrunable
from vinedresser.pruning.proof import prove, relative_difference


# Keras itself converts TensorFlow's variables so when it saves them.
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
@pytest.mark.parametrize("name", ZOO)
def test_a_pruned_model_equals_the_masked_one(name: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    model = ZOO[name]()
    redraw(model, rng)
    prunable = KerasPrunable(model, drawn_example(model, rng))
    before = prunable.tensors()
    plan = random_plan(prunable, rng)
    pruned = prunable.removed(plan)
    assert plan.count > 5
    assert pruned.count_params() < 0.85 * model.count_params()
    proof = prove(prunable, plan, pruned, count=plan.count)
    assert proof.parameters[1] < proof.parameters[0]
    # The removed channels mattered, and the model itself stays as it is.
    assert relative_difference(prunable.outputs(model), prunable.outputs(pruned)) > 1e-3
    assert all(np.array_equal(before[one], now) for one, now in prunable.tensors().items())
    pruned.save(tmp_path / "pruned.keras")
    loaded = keras.models.load_model(tmp_path / "pruned.keras")
    assert relative_difference(prunable.outputs(loaded), prunable.outputs(pruned)) <= 1e-6
