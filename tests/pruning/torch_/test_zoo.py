"""Models of many architectures are pruned, and compute what the original computes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.utils import _pytree as pytree

from tests.pruning.torch_ import zoo, zoo_attention
from tests.pruning.torch_.reference import (
    masked_reference,
    plan_of,
    random_weights,
    results,
    share_removed,
)
from vinedresser.pruning.proof import prove
from vinedresser.pruning.torch_ import TorchPrunable

ZOO = zoo.ZOO | zoo_attention.ZOO


@pytest.mark.thorough
@pytest.mark.parametrize("name", ZOO)
def test_pruned_models_equal_their_masked_originals(name: str) -> None:
    torch.manual_seed(0)
    model = random_weights(ZOO[name](), 1)
    example = torch.randn(2, 3, 16, 16, dtype=torch.float64)
    prunable = TorchPrunable(model, example)
    plan = plan_of(prunable)
    assert share_removed(prunable, plan) >= 0.2
    pruned = prunable.removed(plan)
    for expected, found in zip(
        masked_reference(model, plan, example), results(pruned.eval(), example), strict=True
    ):
        assert np.abs(found - expected).max() <= 1e-12 * np.abs(expected).max()
    assert prunable.notes == ()
    sum(leaf.mean() for leaf in pytree.tree_leaves(pruned.train()(example))).backward()


def test_proof_has_all_checks() -> None:
    torch.manual_seed(0)
    model = ZOO["ResNet"]()
    prunable = TorchPrunable(model, torch.randn(2, 3, 16, 16))
    plan = plan_of(prunable)
    pruned = prunable.removed(plan)
    proof = prove(prunable, plan, pruned, count=plan.count)
    assert [check.limit for check in proof.checks] == [0, 1e-5, 1e-12, 1e-12, 0]
    assert all(check.figure <= check.limit for check in proof.checks)
    sizes = [sum(parameter.numel() for parameter in each.parameters()) for each in (model, pruned)]
    assert list(proof.parameters) == sizes
