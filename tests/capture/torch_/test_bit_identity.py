"""Trainings are bit-identical with and without capture."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from tests.capture.torch_.zoo import EVERYTHING, STEPS, ZOO, final_bits
from vinedresser.capture import Hook, open_run

# The other backend of the compiler does more.
_THOROUGH = "compiled_eager"


@pytest.mark.parametrize(
    "training",
    [pytest.param(one, marks=pytest.mark.thorough) if one == _THOROUGH else one for one in ZOO],
)
def test_weights_optimizer_and_generators_end_as_without_a_hook(
    training: str, tmp_path: Path
) -> None:
    plain = final_bits(training)
    hooked = final_bits(training, lambda: Hook(tmp_path / "run", collections=EVERYTHING))
    assert hooked.keys() == plain.keys()
    assert [name for name, bits in plain.items() if hooked[name] != bits] == []
    run = open_run(tmp_path / "run")
    assert run.problems == []
    # Something was captured.
    assert run.steps("train").tolist() == list(range(STEPS))
    for kind in ("weights", "gradients", "inputs", "outputs", "optimizer_state"):
        assert run.tensor_names(collection=kind), kind


def test_capture_does_not_mark_tensors(tmp_path: Path) -> None:
    # `Tensor.numpy` makes the storage unresizable, which breaks `fully_shard`.
    model, loss = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 3)), nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters())
    x, y = torch.randn(8, 6), torch.randint(0, 3, (8,))
    with Hook(tmp_path / "run", collections=EVERYTHING) as hook:
        hook.watch(model, loss, optimizer)
        logits = model(x)
        value = loss(logits, y)
        value.backward()
        hook.save("mine", x)
        optimizer.step()
    states = [one for state in optimizer.state.values() for one in state.values()]
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    for tensor in (x, y, logits, value, *model.parameters(), *gradients, *states):
        assert tensor.untyped_storage().resizable()
