"""Networks drawn at random are pruned, or refused by name; none is silently wrong."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from tests.pruning.torch_.networks import random_network
from tests.pruning.torch_.reference import (
    masked_reference,
    plan_of,
    random_weights,
    results,
    share_removed,
)
from vinedresser.pruning.torch_ import TorchPrunable
from vinedresser.pruning.torch_.surgery import removed


def _pruned(seeds: range, *, nasty: bool) -> list[float]:
    """Prune networks and compare them; return the share of its filters that each lost."""
    shares = []
    for seed in seeds:
        network, names = random_network(seed, nasty=nasty)
        model = random_weights(network, seed)
        example = torch.randn(2, 3, 6, 6, dtype=torch.float64)
        # In float32, most trials of removals are decided without float64.
        given = torch.float32 if seed % 2 else torch.float64
        prunable = TorchPrunable(copy.deepcopy(model).to(given), example.to(given))
        plan = plan_of(prunable, seed=seed)
        pruned = removed(model, plan).eval()
        expected, found = masked_reference(model, plan, example), results(pruned, example)
        for one, other in zip(expected, found, strict=True):
            assert np.abs(one - other).max() <= 1e-11 * np.abs(one).max(), (seed, names)
        left = [group for group in prunable.groups if group.name not in plan.channels]
        assert all(one.locked or one.size == 1 for one in left), (seed, names)
        shares.append(share_removed(prunable, plan))
    return shares


# Of a group of 7, a quarter is one: the shares of whole networks are lower than a quarter.
_QUARTER = 0.19


def _check(shares: list[float], least: float) -> None:
    share = sum(one >= _QUARTER for one in shares) / len(shares)
    assert share >= least, f"only {share:.0%} of the networks lose a quarter of their filters"


@pytest.mark.thorough
def test_networks_of_plain_operations() -> None:
    _check(_pruned(range(10), nasty=False), 0.95)


@pytest.mark.thorough
def test_networks_that_break_other_tools() -> None:
    _check(_pruned(range(10), nasty=True), 0.75)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 1300, 50))
def test_many_networks_of_plain_operations(first: int) -> None:
    _check(_pruned(range(first, first + 50), nasty=False), 0.95)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 1300, 50))
def test_many_networks_that_break_other_tools(first: int) -> None:
    _check(_pruned(range(first, first + 50), nasty=True), 0.75)
