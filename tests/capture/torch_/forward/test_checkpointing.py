"""Activation checkpointing computes parts twice; only the first computation is captured."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

from tests.capture.torch_.zoo import EVERYTHING
from vinedresser.capture import Hook, open_run
from vinedresser.store.reading.reader import Run

WAYS = ("reentrant", "not_reentrant", "no_early_stop", "sequential")


class Deep(nn.Module):
    """A perceptron of checkpointed blocks; without a way, the same computed as usual."""

    def __init__(self, way: str | None) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.first = nn.Linear(6, 8)
        self.blocks = nn.Sequential(
            *(
                nn.Sequential(
                    nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU(inplace=True), nn.Dropout()
                )
                for _ in range(2)
            )
        )
        self.last = nn.Linear(8, 3)
        self._way = way

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.first(x)
        if self._way == "sequential":
            y = checkpoint_sequential(self.blocks, 2, y, use_reentrant=False)
        else:
            for block in self.blocks:
                y = self._block(block, y)
        out: Tensor = self.last(y)
        return out

    def _block(self, block: nn.Module, y: Tensor) -> Tensor:
        if self._way is None:
            return block(y)  # type: ignore[no-any-return]
        with torch.utils.checkpoint.set_checkpoint_early_stop(self._way != "no_early_stop"):
            out: Tensor = checkpoint(block, y, use_reentrant=self._way == "reentrant")
        return out


def train(way: str | None, path: Path) -> tuple[Run, dict[str, Tensor]]:
    """Train with everything captured; return the run, and the weights at the end."""
    model, loss = Deep(way), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    with Hook(path, collections=EVERYTHING) as hook:
        hook.watch(model, loss, optimizer)
        torch.manual_seed(4)
        for _ in range(3):
            x, y = torch.randn(8, 6), torch.randint(0, 3, (8,))
            optimizer.zero_grad()
            loss(model(x), y).backward()
            optimizer.step()
    assert hook.problems == []
    return open_run(path), copy.deepcopy(model.state_dict())


@pytest.mark.thorough
@pytest.mark.parametrize("way", WAYS)
def test_checkpointing_changes_nothing(way: str, tmp_path: Path) -> None:
    usual, _ = train(None, tmp_path / "usual")
    run, _ = train(way, tmp_path / "run")
    assert run.steps("train").tolist() == usual.steps("train").tolist() == [0, 1, 2]
    names = [name for name in usual.tensor_names() if not name.startswith("buffers/")]
    # Nothing under the name of a second call.
    extra = set(run.tensor_names()) - set(usual.tensor_names())
    assert not [name for name in extra if "#" in name]
    assert "outputs/blocks.1.2" in names
    for name in names:
        if way == "sequential" and name.endswith("/blocks"):
            # It calls the blocks, not their sequence.
            continue
        if way == "reentrant" and name.startswith(("input_taylor/blocks.", "loss_terms/blocks.")):
            # Inside, the first computation has no gradients.
            continue
        if name.endswith("[rest]"):
            # What is left to the caller differs.
            continue
        one, other = usual.tensor(name), run.tensor(name)
        assert other.steps().tolist() == one.steps().tolist(), name
        for step in one.steps()[:2].tolist():
            np.testing.assert_array_equal(other.value(step), one.value(step), err_msg=name)
    both = (each.scalars("losses")["losses/CrossEntropyLoss"] for each in (usual, run))
    assert len({tuple(column.values.tolist()) for column in both}) == 1
