"""Networks with and without in-place operations are captured the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from vinedresser.capture import Hook, SaveConfig, open_run
from vinedresser.store.reading.reader import Run

ALL = dict.fromkeys(
    ("inputs", "outputs", "gradients", "weights", "biases", "losses"), SaveConfig(every=1)
)


class Block(nn.Module):
    """A residual block, in place or not; also a view of its input is written to."""

    def __init__(self, *, inplace: bool) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 3, padding=1)
        self.bn = nn.BatchNorm2d(4)
        self.relu = nn.ReLU(inplace)
        self.drop = nn.Dropout(0.3, inplace)
        self.conv2 = nn.Conv2d(4, 4, 1)
        self.act = nn.ELU(inplace=inplace)
        self._inplace = inplace

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.conv2(self.relu(self.drop(self.bn(self.conv(x)))))
        if self._inplace:
            y += x
            y[:, 0].mul_(2.0)
        else:
            y = y + x
            y = torch.cat([y[:, :1] * 2.0, y[:, 1:]], 1)
        out: Tensor = self.act(y)
        return out


def train(path: Path, *, inplace: bool, hooked: bool = True) -> list[Tensor]:
    torch.manual_seed(5)
    blocks = (Block(inplace=inplace) for _ in range(2))
    model = nn.Sequential(nn.Conv2d(2, 4, 3), *blocks, nn.Flatten(), nn.Linear(4 * 49, 3))
    loss, optimizer = nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), lr=0.1)
    hook = Hook(path, collections=ALL).watch(model, loss, optimizer) if hooked else None
    for _ in range(3):
        optimizer.zero_grad()
        loss(model(torch.randn(4, 2, 9, 9)), torch.randint(0, 3, (4,))).backward()
        optimizer.step()
    if hook is not None:
        hook.close()
        assert hook.problems == []
    return [parameter.detach() for parameter in model.parameters()]


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Run, Run]:
    for name, inplace in (("in_place", True), ("not", False)):
        train(tmp_path / name, inplace=inplace)
    return open_run(tmp_path / "in_place"), open_run(tmp_path / "not")


def test_inputs_and_outputs_are_correct(runs: tuple[Run, Run]) -> None:
    one, other = runs
    names = [*other.tensor_names(collection="inputs"), *other.tensor_names(collection="outputs")]
    assert {"inputs/1.relu", "outputs/1.bn", "inputs/1.drop", "outputs/1.conv2"} <= set(names)
    for name in names:
        # Calls of functions are not the same in both.
        if "()" in name:
            continue
        for step in range(3):
            captured, true = (run.tensor(name).value(step) for run in (one, other))
            np.testing.assert_allclose(captured, true, rtol=1e-5, atol=1e-6, err_msg=name)
    relu = one.tensor("inputs/1.relu").value(0)
    assert (relu < 0).any()


def test_the_graph_is_as_without_a_hook(tmp_path: Path) -> None:
    plain = train(tmp_path / "none", inplace=True, hooked=False)
    hooked = train(tmp_path / "run", inplace=True)
    assert all(torch.equal(one, other) for one, other in zip(plain, hooked, strict=True))
