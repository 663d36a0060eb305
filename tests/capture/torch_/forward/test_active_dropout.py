"""Dropout by functions in evaluation mode is seen, and stays as it is."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from vinedresser.capture import Hook, SaveConfig, open_run


class Net(nn.Module):
    """Drops units in any mode, and fails for rows that are not finite."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 16), nn.Linear(16, 3)
        self.copies = nn.MultiheadAttention(16, 2, dropout=0.5)

    def forward(self, x: Tensor) -> Tensor:
        if not x.isfinite().all():
            raise ValueError("rows that are not finite")
        hidden = functional.dropout(torch.tanh(self.first(x)), 0.5)
        out: Tensor = self.last(self.copies(hidden, hidden, hidden)[0])
        return out


def trained(path: Path | None) -> list[Tensor]:
    """Train and evaluate; return all outputs, and what is left."""
    torch.manual_seed(0)
    net, loss = Net(), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    x, y = torch.randn(12, 4), torch.arange(12) % 3
    hook = None
    if path is not None:
        hook = Hook(path, collections={"state": SaveConfig(every=1)})
        hook.watch(net, loss=loss, optimizer=optimizer)
    found = []
    for epoch in range(3):
        for _ in range(2):
            net.train()
            optimizer.zero_grad()
            loss(net(x), y).backward()
            optimizer.step()
        net.eval()
        with torch.no_grad():
            # The second epoch passes slices of the same rows again.
            for start in (0, 6) if epoch != 1 else (0, 0, 0, 6):
                found.append(net(x[start : start + 6]))
                loss(found[-1], y[start : start + 6])
            with pytest.raises(ValueError, match="not finite"):
                net(x / 0)
    assert torch._C._len_torch_function_stack() == 0
    if hook is not None:
        hook.close()
        assert hook.problems == []
        assert not net._forward_hooks
    return [*found, torch.get_rng_state(), *(parameter.detach() for parameter in net.parameters())]


def test_it_is_recorded_and_nothing_changes(tmp_path: Path) -> None:
    captured, alone = trained(tmp_path / "run"), trained(None)
    assert all(map(torch.equal, captured, alone))
    (dropped,) = (
        column
        for name, column in open_run(tmp_path / "run").scalars("state", mode="eval").items()
        if name == "state/dropped"
    )
    assert dropped.values.tolist() == pytest.approx([1.0, 1 / 3, 1.0])


def test_models_of_torch_alone_are_not_looked_at(tmp_path: Path) -> None:
    plain = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3))
    optimizer = torch.optim.SGD(plain.parameters(), 0.1)
    with Hook(tmp_path / "run", collections={"state": SaveConfig(every=1)}) as hook:
        hook.watch(plain, optimizer=optimizer)
        plain(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        plain.eval()
        with torch.no_grad(), hook.mode("eval"):
            plain(torch.ones(2, 4))
            assert not plain._forward_hooks
    assert "state/dropped" not in open_run(tmp_path / "run").scalars("state", mode="eval")
