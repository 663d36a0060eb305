"""Statistics of small tensors in host memory, computed on the writer's thread."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from vinedresser.capture import Hook, SaveConfig
from vinedresser.capture.config.capture_config import CaptureConfig
from vinedresser.capture.recording.recording import Recording
from vinedresser.capture.torch_.copies.later_statistics import LaterStatistics
from vinedresser.store.reading.reader import open_run

WORDS = frozenset({"mean", "std", "l2", "zero_share", "channel_zero_share", "p50"})


def recording() -> Recording:
    return Recording("train", 0, CaptureConfig().due(0, "train"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_statistics_are_those_of_the_tensor_when_copied(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    later, record = LaterStatistics(), recording()
    tensor = torch.randn(30, 40, dtype=dtype).relu_().T
    before = tensor.double().numpy().copy()
    assert later.fits(record, (tensor,))
    statistics = later.copy(record, (tensor,)).statistics(0, WORDS, 1)
    tensor.fill_(7.0)
    assert not statistics.scalars
    assert statistics.settle() == {}
    figures = statistics.scalars
    assert figures["mean"] == pytest.approx(before.mean(), rel=1e-12)
    assert figures["std"] == pytest.approx(before.std(), rel=1e-9)
    assert figures["l2"] == pytest.approx(np.linalg.norm(before), rel=1e-12)
    assert figures["p50"] == pytest.approx(np.median(before))
    expected = (before == 0).mean(0)
    assert statistics.vectors["channel_zero_share"].tolist() == expected.tolist()


def test_memory_is_reused_when_all_copies_have_been_read() -> None:
    later, record = LaterStatistics(), recording()
    tensors = [torch.ones(5), torch.ones(2, 3)]
    copies = later.copy(record, tensors)
    first, second = (copies.statistics(place, frozenset({"l1"}), None) for place in (0, 1))
    addresses = {tensor.data_ptr() for tensor in copies.tensors}
    first.settle()
    assert addresses.isdisjoint(tensor.data_ptr() for tensor in later.copy(record, tensors).tensors)
    second.settle()
    assert addresses == {tensor.data_ptr() for tensor in later.copy(record, tensors).tensors}
    assert (first.scalars, second.scalars) == ({"l1": 5.0}, {"l1": 6.0})


def test_copies_of_a_step_are_limited() -> None:
    later, record = LaterStatistics(most=100), recording()
    tensor = torch.ones(20)
    assert later.fits(record, (tensor,))
    later.copy(record, (tensor,))
    assert record.arriving_bytes == 80
    assert not later.fits(record, (tensor,))
    assert later.fits(recording(), (tensor,))


@pytest.mark.parametrize(
    "tensor",
    [
        torch.ones(3, dtype=torch.bfloat16),
        torch.ones(3, dtype=torch.int64),
        torch.eye(3).to_sparse(),
    ],
    ids=["bfloat16", "int64", "sparse"],
)
def test_unusual_tensors_are_computed_at_once(tensor: torch.Tensor) -> None:
    assert not LaterStatistics().fits(recording(), (tensor,))


def test_weights_gradients_and_updates_of_a_training_are_exact(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    save = SaveConfig(every=1, reductions=("l2", "mean", "std"))
    kinds = ("weights", "biases", "gradients", "updates")
    expected: list[dict[str, float]] = []
    with Hook(tmp_path / "run", collections=dict.fromkeys(kinds, save)) as hook:
        hook.watch(model, optimizer=optimizer)
        for _ in range(4):
            optimizer.zero_grad()
            model(torch.randn(8, 6)).square().sum().backward()
            weight = model.get_parameter("0.weight")
            before = weight.detach().double().clone()
            assert weight.grad is not None
            norms = {"weights": before, "gradients": weight.grad.double()}
            optimizer.step()
            norms["updates"] = weight.detach().double() - before
            expected.append({kind: float(one.norm()) for kind, one in norms.items()})
    assert hook.problems == []
    run = open_run(tmp_path / "run")
    for kind in ("weights", "gradients", "updates"):
        column = run.reductions("l2", kind)[f"{kind}/0.weight"]
        assert column.values.tolist() == pytest.approx([one[kind] for one in expected], rel=1e-6)
