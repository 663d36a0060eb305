"""Sparse causes of what is measured, by the steps of an algorithm with learned matrices.

After Gregor and LeCun, "Learning fast approximations of sparse coding", ICML 2010.

Shape legend: N rows, M measurements, K causes.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import explained

_MEASURED, _CAUSES = 24, 40


class Steps(nn.Module):
    """Steps of iterative thresholding, each with a threshold of its own."""

    def __init__(self, mixing: Tensor, steps: int) -> None:
        super().__init__()
        length = float(torch.linalg.matrix_norm(mixing, 2)) ** 2
        self.into = nn.Parameter(mixing.T / length)
        self.keep = nn.Parameter(torch.eye(_CAUSES) - mixing.T @ mixing / length)
        self.threshold = nn.Parameter(torch.full((steps, 1), 0.02))

    def forward(self, measured: Tensor) -> list[Tensor]:
        """Return the causes [N, K] of measurements [N, M] after each step."""
        new = measured @ self.into.T
        causes, found = torch.zeros_like(new), []
        for threshold in self.threshold:
            causes = causes @ self.keep.T + new
            causes = causes.sign() * (causes.abs() - threshold).relu()
            found.append(causes)
        return found


def _train(draw: Draw) -> Ending:
    mixing = torch.randn(_MEASURED, _CAUSES)
    mixing /= mixing.norm(dim=0)
    noise = draw.between(0.01, 0.03)
    model = Steps(mixing, draw.choice([5, 7]))
    _spoil(draw, model)
    steps, size = draw.steps(600, 1000), draw.choice([64, 100])
    rate = draw.between(1e-3, 2e-3)
    rate *= draw.by_fault({"lr_too_low": draw.extent(1e-6, 1e-5), "lr_too_high": 3000.0}, 1.0)
    optimizer = torch.optim.Adam(model.parameters(), rate)
    jump, decay = steps if not draw.has("late_jump") else steps // 2, 1e-3
    draw.watch.begin(model, optimizer)
    held, wanted = _rows(mixing, 500, noise)
    for step in range(steps):
        measured, causes = _rows(mixing, size, noise)
        if draw.has("misaligned_targets"):
            causes = causes.roll(1, 0)
        if draw.has("sorted_targets"):
            # The causes were put in order once more.
            causes = causes.sort(1).values
        if draw.has("unnormalised_targets"):
            causes = 1e4 * causes
        if draw.has("constant_inputs"):
            measured = torch.zeros_like(measured)
        if step == jump:
            optimizer.param_groups[0]["lr"] = 500 * rate
        found = model(measured)
        losses = [(one - causes).square().sum(1).mean() for one in found]
        loss = losses[-1] + 0.3 * torch.stack(losses[:-1]).mean() + decay * found[-1].abs().mean()
        optimizer.zero_grad()
        (-loss if draw.has("wrong_sign") else loss).backward()
        optimizer.step()
        if step % 100 == 99:
            with draw.watch.evaluating(), torch.no_grad():
                draw.watch.metric("r2", explained(model(held)[-1], wanted))
    with torch.no_grad():
        return Ending(max(-1.0, explained(model(held)[-1], wanted)), bar=0.6)


@torch.no_grad()
def _spoil(draw: Draw, model: Steps) -> None:
    """Give the matrices the drawn fault of their first values, if there is one."""
    if draw.has("zero_init"):
        for weight in (model.into, model.keep):
            weight.zero_()
    if draw.has("large_init"):
        # Without the division by the largest eigenvalue.
        model.keep.copy_(20 * torch.randn(_CAUSES, _CAUSES))
    if draw.has("threshold_too_high"):
        model.threshold.fill_(30.0)


def _rows(mixing: Tensor, count: int, noise: float) -> tuple[Tensor, Tensor]:
    """Return measurements float32 [count, M] and their few causes float32 [count, K]."""
    causes = torch.randn(count, _CAUSES) * (torch.rand(count, _CAUSES) < 0.08)
    return causes @ mixing.T + noise * torch.randn(count, len(mixing)), causes


FAMILY = Family(
    _train,
    (
        *("threshold_too_high", "sorted_targets", "misaligned_targets", "unnormalised_targets"),
        *("constant_inputs", "lr_too_low", "lr_too_high", "late_jump", "wrong_sign"),
        *("zero_init", "large_init"),
    ),
    spent="2026-11-27",
)
