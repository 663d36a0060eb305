"""Networks drawn at random are pruned as the oracle says, or refused by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.pruning.keras_.drawn_networks import draw_network
from tests.pruning.keras_.oracle import masked_by_nan
from tests.pruning.keras_.pruning_of import drawn_example, random_plan, redraw
from vinedresser.frameworks.keras_.names import Names
from vinedresser.pruning.keras_ import KerasPrunable
from vinedresser.pruning.plan import Plan
from vinedresser.pruning.proof import relative_difference


def makers(prunable: KerasPrunable, plan: Plan) -> dict[int, list[tuple[int, list[int]]]]:
    """Return the removed filters in what makes them: axes and indices by id of a variable."""
    readers = {
        (one.tensor, one.axis) for group in prunable.groups for one in group.of_role("input")
    }
    # The first half of a separable convolution reads what its input makes.
    readers |= {(name, 2) for name in plan.tensors if name.endswith("depthwise_kernel")}
    variables = {variable.path: variable.value for variable in Names(prunable.model).variables()}
    return {
        id(variables[name]): [
            (int(axis), gone) for axis, gone in axes.items() if (name, int(axis)) not in readers
        ]
        for name, axes in plan.tensors.items()
    }


def pruned(seed: int, *, odd: bool) -> bool:
    """Prune a network and compare it; return False if all its channels are locked."""
    rng = np.random.default_rng(seed)
    model: Any = draw_network(seed, odd=odd)
    redraw(model, rng)
    example = drawn_example(model, rng, batch=3)
    prunable = KerasPrunable(model, example)
    plan = random_plan(prunable, rng)
    assert prunable.groups
    if not plan.count:
        assert all(group.locked or group.size == 1 for group in prunable.groups)
        return False
    expected = masked_by_nan(model, example, makers(prunable, plan))
    found = prunable.outputs(prunable.removed(plan))
    assert relative_difference(expected, found) <= 1e-5
    assert relative_difference(*prunable.compared(plan, "float32")) <= 1e-5
    return True


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_a_plain_network_is_pruned(seed: int) -> None:
    assert pruned(seed, odd=False)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_a_network_with_an_odd_operation_is_pruned_or_locked(seed: int) -> None:
    pruned(seed, odd=True)


@pytest.mark.slow
def test_nearly_all_plain_networks_are_pruned() -> None:
    results = [pruned(seed, odd=False) for seed in range(4, 130)]
    assert np.mean(results) >= 0.95


@pytest.mark.slow
def test_nearly_all_networks_with_an_odd_operation_are_pruned() -> None:
    results = [pruned(seed, odd=True) for seed in range(4, 85)]
    assert np.mean(results) >= 0.75
