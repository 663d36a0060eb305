"""Layers that run in training mode only, or not on the example at all."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

from tests.pruning.torch_.partial_networks import (
    IN_TRAINING,
    UNREACHED,
    Auxiliary,
    Choosing,
    DeepAuxiliary,
    Encoder,
    Trunk,
    WithTargets,
)
from vinedresser.pruning import PruningError, prune
from vinedresser.pruning.torch_ import TorchPrunable

EXAMPLE = torch.randn(2, 3, 12, 12, generator=torch.Generator().manual_seed(0))


def train(model: nn.Module, *example: Any) -> None:
    """Run a model in training mode, forward and backward."""
    outputs = pytree.tree_leaves(model.train()(*example))
    torch.stack([output.mean() for output in outputs]).sum().backward()


@pytest.mark.thorough
@pytest.mark.parametrize("kind", IN_TRAINING)
@pytest.mark.parametrize("training", [False, True])
def test_a_pruned_model_can_be_trained(kind: type[Trunk], training: bool) -> None:
    model = kind().train(training)
    before = {name: one.clone() for name, one in model.state_dict().items()}
    states = random.getstate(), str(np.random.get_state()), torch.get_rng_state()
    pruned = prune(model, EXAMPLE, 4).model
    assert pruned.training == model.training == training
    assert all(torch.equal(one, before[name]) for name, one in model.state_dict().items())
    assert (random.getstate(), str(np.random.get_state())) == states[:2]
    assert torch.equal(torch.get_rng_state(), states[2])
    # Some of them draw at random what runs.
    for _ in range(20):
        train(pruned, EXAMPLE)
        pruned.eval()(EXAMPLE)


def test_a_head_for_training_is_pruned_with_what_it_reads() -> None:
    prunable = TorchPrunable(DeepAuxiliary(), EXAMPLE)
    locked = {group.name: group.locked for group in prunable.groups if group.locked}
    assert locked == {
        "out": "is an output of the model",
        "aux.inner.0": "runs only in training mode",
        "aux.inner.6": "is an output of the model",
    }
    read = [
        group.name
        for group in prunable.groups
        for each in group.members
        if "aux.inner.0" in each.tensor
    ]
    assert read == ["second", "third", "aux.inner.0", "aux.inner.0"]
    assert prunable.notes == ()


def test_operations_of_training_mode_are_not_counted() -> None:
    assert TorchPrunable(Auxiliary(), EXAMPLE).uses == TorchPrunable(Trunk(), EXAMPLE).uses


@pytest.mark.parametrize("kind", UNREACHED)
def test_what_a_layer_that_never_runs_may_read_is_locked(kind: type[Trunk]) -> None:
    prunable = TorchPrunable(kind(), EXAMPLE)
    reason = f"may pass {UNREACHED[kind]}, which no run on the example reaches"
    assert [reason in group.locked for group in prunable.groups] == [True, True, True, False]
    assert UNREACHED[kind] in prunable.notes[-1]
    with pytest.raises(PruningError, match=f"first, second, third: {reason}"):
        prune(kind(), EXAMPLE, 1)


def test_only_what_the_unused_layer_may_read_is_locked(caplog: pytest.LogCaptureFixture) -> None:
    class Body(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 12, 3))
            self.out, self.old = nn.Linear(12, 5), nn.Linear(12, 7)

        def forward(self, x: torch.Tensor) -> Any:
            return self.out(self.body(x).mean((2, 3)))

    pruned = prune(Body(), EXAMPLE, 2)
    assert pruned.plans[0].channels.keys() == {"body.0"}
    assert "old" in pruned.locked["body.2"]
    assert caplog.messages == [*pruned.notes]
    pruned.model.old(pruned.model.body(EXAMPLE).mean((2, 3)))


def test_an_example_with_targets_reaches_the_loss() -> None:
    targets = torch.tensor([0, 1])
    pruned = prune(WithTargets(), (EXAMPLE, targets), 4)
    assert pruned.notes == ()
    train(pruned.model, EXAMPLE, targets)


def test_a_training_mode_that_does_not_run_is_told() -> None:
    class Strict(Encoder):
        def forward(self, x: torch.Tensor) -> Any:
            if self.training:
                raise ValueError("only for predictions")
            return self.project(self.features(x)[2].mean((2, 3)))

    strict = Strict()
    del strict.out
    (note,) = prune(strict, EXAMPLE, 4).notes
    assert note.startswith("only evaluation mode was checked")
    assert note.endswith("ValueError: only for predictions")


def test_a_random_choice_is_told() -> None:
    (note,) = prune(Choosing(), EXAMPLE, 4).notes
    assert "draws at random what runs" in note


def test_the_trial_of_a_removal_includes_training_mode() -> None:
    class Fixed(Trunk):
        def forward(self, x: torch.Tensor) -> Any:
            _, second, third = self.features(x)
            if self.training:
                third = third + second.reshape(len(x), 8, -1).mean()
            return self.classes(third)

    locked = {group.name: group.locked for group in TorchPrunable(Fixed(), EXAMPLE).groups}
    assert locked["second"]
    assert not locked["first"]
