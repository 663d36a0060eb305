"""What other tools break or skip silently: pruned here, or locked with the reason."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.pruning.torch_ import zoo_attention
from tests.pruning.torch_.reference import plan_of
from vinedresser.pruning.proof import prove
from vinedresser.pruning.torch_ import TorchPrunable


class Between(nn.Module):
    """A convolution, something between, and what reads it."""

    def __init__(
        self, between: Callable[[Any, Tensor], Any], reader: nn.Module, **layers: Any
    ) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.between = between
        self.reader = reader
        for name, layer in layers.items():
            setattr(self, name, layer)

    def forward(self, x: Tensor) -> Any:
        return self.reader(self.between(self, self.first(x).relu()))


def pruned(model: nn.Module) -> TorchPrunable:
    """Prune a quarter of all open groups, with proof."""
    torch.manual_seed(0)
    prunable = TorchPrunable(model, torch.randn(2, 3, 6, 6))
    plan = plan_of(prunable)
    prove(prunable, plan, prunable.removed(plan), count=plan.count)
    return prunable


def reason(prunable: TorchPrunable, name: str) -> str:
    """Return why a group is locked."""
    return next(group.locked for group in prunable.groups if group.name == name)


def depthwise() -> nn.Module:
    """Return a depthwise convolution and one that reads it."""
    return nn.Sequential(nn.Conv2d(8, 8, 3, groups=8), nn.Conv2d(8, 4, 1))


OPEN: dict[str, Callable[[], nn.Module]] = {
    "space padded with zeros": lambda: Between(
        lambda _, x: nn.functional.pad(x, (1, 2, 0, 1)), depthwise()
    ),
    "space padded with ones, and cut": lambda: Between(
        lambda _, x: nn.functional.pad(x, (1, 2, -1, 0), value=1.0), depthwise()
    ),
    "view with the module's attribute": lambda: Between(
        lambda s, x: x.view(-1, s.features), nn.Linear(8 * 36, 4), features=8 * 36
    ),
    "split by the module's attribute": lambda: Between(
        lambda s, x: torch.mul(*x.split(s.half, 1)), nn.Conv2d(4, 4, 1), half=4
    ),
    "convolution with a raw parameter": lambda: Between(
        lambda s, x: nn.functional.conv2d(x, s.kernel),
        nn.Conv2d(6, 4, 1),
        kernel=nn.Parameter(torch.randn(6, 8, 1, 1)),
    ),
    "a product with a raw parameter": lambda: Between(
        lambda s, x: x.mean((2, 3)) @ s.matrix,
        nn.Linear(6, 4),
        matrix=nn.Parameter(torch.randn(8, 6)),
    ),
    "einsum": lambda: Between(
        lambda s, x: torch.einsum("nchw,cd->ndhw", x, s.matrix),
        nn.Conv2d(6, 4, 1),
        matrix=nn.Parameter(torch.randn(8, 6)),
    ),
    "a concatenation with itself": lambda: Between(
        lambda s, x: torch.cat([x, x], 1), nn.Conv2d(16, 4, 1)
    ),
    "a bilinear resize": lambda: Between(
        lambda s, x: nn.functional.interpolate(x, scale_factor=2.0, mode="bilinear"),
        nn.Conv2d(8, 4, 1),
    ),
    "instance norm": lambda: Between(
        lambda s, x: s.norm(x), nn.Conv2d(8, 4, 1), norm=nn.InstanceNorm2d(8, affine=True)
    ),
    "an attribute that counts two layers": lambda: Between(
        lambda s, x: (
            s.one(x).view(len(x), s.inner, -1).softmax(-1).mean(-1, keepdim=True)
            * s.other(x).view(len(x), s.inner, -1)
        ).view(len(x), s.inner, 6, 6),
        nn.Conv2d(6, 4, 1),
        one=nn.Conv2d(8, 6, 1),
        other=nn.Conv2d(8, 6, 1),
        inner=6,
    ),
    "a kernel that is repeated for each channel": lambda: Between(
        lambda s, x: nn.functional.conv2d(
            x, s.kernel.expand(x.shape[1], -1, -1, -1), groups=x.shape[1]
        ),
        nn.Conv2d(8, 4, 1),
        kernel=nn.Parameter(torch.ones(1, 1, 3, 3)),
    ),
    "a cast to float32": lambda: Between(
        lambda s, x: s.inner((x.float() * torch.ones(x.shape)[:1, :1]).float()),
        nn.Conv2d(6, 4, 1),
        inner=nn.Conv2d(8, 6, 1),
    ),
    "an old weight norm": lambda: Between(
        lambda s, x: x, nn.Sequential(nn.utils.weight_norm(nn.Conv2d(8, 6, 1)), nn.Conv2d(6, 4, 1))
    ),
    "standardised weights": lambda: Between(
        lambda s, x: nn.functional.conv2d(x, s.inner.weight - s.inner.weight.mean((1, 2, 3), True)),
        nn.Conv2d(6, 4, 1),
        inner=nn.Conv2d(8, 6, 1),
    ),
}  # fmt: skip


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning")
@pytest.mark.parametrize("name", OPEN)
def test_can_be_pruned(name: str) -> None:
    prunable = pruned(OPEN[name]())
    assert any(not group.locked for group in prunable.groups)
    if name != "standardised weights":
        assert not reason(prunable, "first")


class Read(nn.Module):
    """Reads a value out of a tensor."""

    def forward(self, x: Tensor) -> Any:
        return x * float(x[0, 0, 0, 0])


class Constant(nn.Module):
    """Has a tensor that is neither a parameter nor a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.rand(8, 1, 1)

    def forward(self, x: Tensor) -> Any:
        return x * self.scale.to(x.dtype)


LOCKED: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "a view with a constant": (
        lambda: Between(lambda s, x: x.view(-1, 288), nn.Linear(288, 4)),
        "does not run without some of its channels",
    ),
    "softmax over channels": (
        lambda: Between(lambda s, x: x.softmax(1), nn.Conv2d(8, 4, 1)),
        "_softmax over channels in the model",
    ),
    "a mean over channels": (
        lambda: Between(lambda s, x: x - x.mean(1, keepdim=True), nn.Conv2d(8, 4, 1)),
        "mean over channels",
    ),
    "a constant tensor": (
        lambda: Between(lambda s, x: s.constant(x), nn.Conv2d(8, 4, 1), constant=Constant()),
        r"neither a parameter nor a buffer in constant \(Constant\)",
    ),
    "a value that is read": (
        lambda: Between(lambda s, x: s.read(x), nn.Conv2d(8, 4, 1), read=Read()),
        r"in read \(Read\)",
    ),
    "its number of channels": (
        lambda: Between(lambda s, x: x / x.shape[1], nn.Conv2d(8, 4, 1)),
        "computes something else",
    ),
    "an operator without a rule": (
        lambda: Between(lambda s, x: torch.fft.fft(x, dim=1).real, nn.Conv2d(8, 4, 1)),
        "which is not supported, in the model",
    ),
    "attention of torch": (
        lambda: Between(
            lambda s, x: s.attention(*[x.flatten(2).transpose(1, 2)] * 3)[0],
            nn.Linear(8, 4),
            attention=nn.MultiheadAttention(8, 2, batch_first=True),
        ),
        r"in attention \(MultiheadAttention\)",
    ),
    "a permutation": (
        lambda: Between(lambda s, x: x[:, [1, 0, 3, 2, 5, 4, 7, 6]], nn.Conv2d(8, 4, 1)),
        "index of channels by number",
    ),
    "a recurrent layer": (
        lambda: Between(
            lambda s, x: s.cell(x.flatten(2).transpose(1, 2))[0],
            nn.Linear(6, 4),
            cell=nn.LSTM(8, 6, batch_first=True),
        ),
        r"in cell \(LSTM\)",
    ),
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", LOCKED)
def test_is_locked_with_the_reason(name: str) -> None:
    make, message = LOCKED[name]
    prunable = pruned(make())
    with pytest.raises(AssertionError, match=message):
        assert not reason(prunable, "first")


class ConstantWidth(nn.Module):
    """Attention whose heads are split as pruning can follow, but not joined so."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = 4
        self.qkv = nn.Linear(16, 48)
        self.project = nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Any:
        batch, tokens, width = x.shape
        parts = self.qkv(x).reshape(batch, tokens, 3, self.heads, 4).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(*parts.unbind(0))
        joined = mixed.transpose(1, 2).reshape(batch, tokens, width)  # the line to change
        return x + self.project(joined)


def test_the_reason_names_the_line_that_no_way_gets_past() -> None:
    source, first = inspect.getsourcelines(ConstantWidth)
    line = first + next(at for at, text in enumerate(source) if "the line to change" in text)
    prunable = TorchPrunable(ConstantWidth(), torch.randn(2, 5, 16))
    assert f"{Path(__file__).name}:{line})" in reason(prunable, "qkv")


def test_only_the_rest_of_a_constant_slice_is_pruned() -> None:
    model = Between(
        lambda s, x: s.left(x[:, :3]) + s.right(x[:, 3:]),
        nn.Conv2d(4, 4, 1),
        left=nn.Conv2d(3, 4, 1),
        right=nn.Conv2d(5, 4, 1),
    )
    prunable = pruned(model)
    found = {group.name: (group.size, bool(group.locked)) for group in prunable.groups}
    assert found["first"] == (3, True)
    assert found["first#2"] == (5, False)


def test_tied_weights_stay_tied() -> None:
    class Autoencoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = nn.Conv2d(3, 8, 1)
            self.inner = nn.Linear(8, 16)
            self.outer = nn.Linear(16, 8)
            self.again = nn.Linear(8, 16)
            self.again.weight = self.inner.weight

        def forward(self, x: Tensor) -> Any:
            x = self.encoder(x).mean((2, 3))
            return self.again(self.outer(self.inner(x).relu())).sum(1)

    torch.manual_seed(0)
    prunable = TorchPrunable(Autoencoder(), torch.randn(2, 3, 6, 6))
    plan = plan_of(prunable)
    smaller: Any = prunable.removed(plan)
    prove(prunable, plan, smaller, count=plan.count)
    assert smaller.again.weight is smaller.inner.weight


@pytest.mark.thorough
def test_heads_are_removed_as_a_whole() -> None:
    torch.manual_seed(0)
    prunable = TorchPrunable(zoo_attention.ZOO["ViT, fused"](), torch.randn(2, 3, 16, 16))
    heads = next(group for group in prunable.groups if group.kind == "heads")
    weight = next(member for member in heads.members if member.tensor.endswith("qkv.weight"))
    rows = [part * 16 + 4 * 2 + unit for part in range(3) for unit in range(4)]
    assert heads.size == 4
    assert np.array_equal(weight.indices[2], rows)
