"""A closed hook keeps nothing of the training in memory."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from vinedresser.capture import Hook


@pytest.fixture
def no_collector() -> Iterator[None]:
    """Python frees only what nothing refers to; it does not look for circles."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def train(path: Path, **options: Any) -> list[weakref.ref[Any]]:
    """Train with a hook; return references to the model, the loss and the optimizer."""
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Dropout(), nn.Linear(4, 1))
    optimizer = torch.optim.Adam(model.parameters())
    loss_fn = nn.MSELoss()
    hook = Hook(path, **options)
    hook.watch(model, loss=loss_fn, optimizer=optimizer)
    for _ in range(4):
        optimizer.zero_grad()
        loss_fn(model(torch.randn(8, 4)), torch.randn(8, 1)).backward()
        optimizer.step()
    with torch.no_grad():
        model(torch.randn(8, 4))
    hook.close()
    assert not hook.problems
    return [weakref.ref(model), weakref.ref(loss_fn), weakref.ref(optimizer)]


@pytest.mark.parametrize("options", [{}, {"guard": "nonfinite"}, {"live": True}])
def test_nothing_of_a_training_stays(
    tmp_path: Path, no_collector: None, options: dict[str, Any]
) -> None:
    # Modules that are loaded in a training for the first time may keep its frames.
    train(tmp_path / "first", **options)
    assert [one() for one in train(tmp_path / "run", **options)] == [None] * 3
