"""Whether the weights of a training were loaded."""

from __future__ import annotations

import copy
from pathlib import Path

import torch
from torch import nn

from vinedresser.capture import Hook, open_run
from vinedresser.capture.torch_.weights.loaded_weights import LoadedWeights


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


def test_half_of_the_parameters_must_be_loaded() -> None:
    loaded, before, model = LoadedWeights(), network(), network()
    before.load_state_dict(model.state_dict())
    loaded.start()
    assert not loaded.cover(model.parameters())
    network().load_state_dict(model.state_dict())
    model[0].load_state_dict(before[0].state_dict())
    assert loaded.cover(model[0].parameters())
    assert loaded.cover(model.parameters())
    # The part that was loaded is the smaller one.
    assert not loaded.cover([*model.parameters(), *network().parameters()])
    assert not loaded.cover(before.parameters())
    assert not loaded.cover([])


def loaded_state(path: Path, *, resumed: bool) -> bool:
    """Return whether the record says that a state was loaded, after three steps."""
    model = network()
    optimizer = torch.optim.Adam(model.parameters())
    if resumed:
        model(torch.ones(3, 4)).sum().backward()
        optimizer.step()
        state = copy.deepcopy(optimizer.state_dict())
        optimizer = torch.optim.Adam(model.parameters())
        optimizer.load_state_dict(state)
    with Hook(path) as hook:
        hook.watch(model, optimizer=optimizer)
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.ones(3, 4)).sum().backward()
            optimizer.step()
    return open_run(path).info.loaded


def test_an_optimizer_with_a_state_was_loaded(tmp_path: Path) -> None:
    assert loaded_state(tmp_path / "resumed", resumed=True)
    assert not loaded_state(tmp_path / "new", resumed=False)
