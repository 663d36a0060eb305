"""Steps that break, and the factories that build them again."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from tests.capture.torch_.guard.trainings import DistanceLoss, Distances
from vinedresser.capture import Hook
from vinedresser.replay.batch import Batch
from vinedresser.snapshots.settings import SnapshotSettings

# The sample with large values, and the step in which it comes.
BAD_ROW, BAD_STEP = 11, 2


def distances() -> tuple[nn.Module, nn.Module]:
    """Build the model and the loss of `tests.capture.torch_.guard.trainings.train`."""
    return Distances(), DistanceLoss()


class HalfLoss(nn.Module):
    """A ranking loss in half precision, whose exponential overflows above 65504."""

    def forward(self, found: Tensor, wanted: Tensor) -> Tensor:
        """Return the loss [] of values [batch, 1] that should exceed others [batch, 1]."""
        exponential = (wanted - found).half().exp()
        return (1 + exponential).log().float().mean()


def half() -> tuple[nn.Module, nn.Module, torch.optim.Optimizer]:
    """Build the regression in half precision."""
    model = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 1))
    return model, HalfLoss(), torch.optim.Adam(model.parameters(), lr=1e-3)


class Attention(nn.Module):
    """Attention over the known entries of rows, whose pooled length is the loss.

    Its masks are minus infinity, and its logarithm of zero is masked: both are legitimate.
    """

    def __init__(self) -> None:
        super().__init__()
        self.score = nn.Linear(3, 1)
        self.value = nn.Linear(3, 3)

    def forward(self, rows: Tensor, known: Tensor) -> Tensor:
        """Return the pooled values [batch, 3] of rows [batch, items, 3] with a mask of them."""
        scores = self.score(rows).squeeze(2).masked_fill(~known, -torch.inf)
        weights = scores.softmax(1)
        # 0 * log 0, which counts as 0.
        entropy = torch.where(known, weights.detach() * weights.detach().log(), 0.0).sum(1)
        return torch.as_tensor((weights.unsqueeze(2) * self.value(rows)).sum(1)) + entropy[:, None]


def attention_step(model: nn.Module) -> Callable[[Batch], Tensor]:
    """Return the step of the attention."""

    def step(batch: Batch) -> Tensor:
        pooled = model(*batch.args)
        # One row is subtracted from itself.
        loss = (pooled - pooled[:1].detach()).norm(dim=1).pow(2).sqrt().mean()
        loss.backward()
        return torch.as_tensor(loss)

    return step


def attention() -> tuple[nn.Module, Callable[[Batch], Tensor]]:
    """Build the attention and its step."""
    model = Attention()
    return model, attention_step(model)


def accumulated(*, backward: bool = True) -> tuple[nn.Module, Callable[[Batch], Tensor]]:
    """Build a regression and its step.

    Args:
        backward: whether the step computes gradients; else it only returns its loss.
    """
    model = nn.Linear(3, 1)

    def step(batch: Batch) -> Tensor:
        loss = model(*batch.args).square().mean()
        if backward:
            loss.backward()
        return torch.as_tensor(loss)

    return model, step


accumulated_losses = partial(accumulated, backward=False)


def train_accumulated(run: Path) -> None:
    """Take one step with the gradients of three batches, with a periodic snapshot."""
    torch.manual_seed(0)
    model, step = accumulated()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    settings = SnapshotSettings(every=1)
    hook = Hook(run, guard="nonfinite", snapshots=settings).watch(model, optimizer=optimizer)
    for _ in range(3):
        step(Batch((torch.randn(4, 3),), {}, (), None))
    optimizer.step()
    hook.close()


class Doubled(nn.Module):
    """A layer, and the lengths of its rows, one of which is zero."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, data: Tensor) -> Tensor:
        """Return the lengths [batch] of rows [batch, 3]."""
        rows = self.layer(data) * data[:, :1]
        return torch.as_tensor(rows.square().sum(1).sqrt())


def compiled() -> tuple[nn.Module, Callable[[Batch], Tensor]]:
    """Build the lengths, compiled, and their step."""
    model = Doubled()
    model.compile(backend="aot_eager")

    def step(batch: Batch) -> Tensor:
        loss = model(*batch.args).mean()
        loss.backward()
        return torch.as_tensor(loss)

    return model, step


def train_compiled(run: Path) -> None:
    """Take one step with compiled code, which breaks."""
    torch.manual_seed(0)
    model, step = compiled()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    hook = Hook(run, guard="nonfinite").watch(model, optimizer=optimizer)
    data = torch.randn(6, 3)
    data[4, 0] = 0.0
    step(Batch((data,), {}, (), None))
    optimizer.step()
    hook.close()


def other_model() -> nn.Module:
    """Build another model than any of these."""
    return nn.Linear(2, 3)


def no_model() -> int:
    """Build nothing."""
    return 3


def train_half(run: Path) -> None:
    """Train the regression in half precision until a sample overflows."""
    torch.manual_seed(0)
    model, loss_fn, optimizer = half()
    hook = Hook(run, guard="nonfinite").watch(model, loss=loss_fn, optimizer=optimizer)
    for step in range(4):
        data, wanted = torch.randn(64, 5), torch.randn(64, 1)
        if step == BAD_STEP:
            wanted[BAD_ROW] = 300.0
        optimizer.zero_grad()
        loss_fn(model(data), wanted).backward()
        optimizer.step()
    hook.close()


def train_attention(run: Path) -> None:
    """Take one step with the attention, which breaks."""
    torch.manual_seed(0)
    model, step = attention()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    hook = Hook(run, guard="nonfinite").watch(model, optimizer=optimizer)
    known = torch.ones(6, 4, dtype=torch.bool)
    known[:, 2:] = False
    step(Batch((torch.randn(6, 4, 3), known), {}, (), None))
    optimizer.step()
    hook.close()
