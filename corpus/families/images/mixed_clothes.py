"""Pictures of clothes, mixed with each other, with smoothed labels and averaged weights.

After Zhang et al., "mixup: beyond empirical risk minimization", ICLR 2018, and Yun et al.,
"CutMix", ICCV 2019; in bfloat16, as `torch.autocast` computes it on a CPU.

Shape legend: N pictures.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from corpus import networks
from corpus.data.fashion import clothes
from corpus.data.rows import LABEL_FAULTS
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import accuracy, gained

_ROWS = 3000


class Block(nn.Module):
    """A residual block of two convolutions."""

    def __init__(self, width: int, momentum: float) -> None:
        super().__init__()
        self.first = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.second = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(width, momentum=momentum) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        """Return maps [N, width, H, W] of maps of the same shape."""
        inner = self.norms[0](self.first(x)).relu()
        outer: Tensor = (x + self.norms[1](self.second(inner))).relu()
        return outer


def _train(draw: Draw) -> Ending:
    x, y = clothes(_ROWS + 800)
    x_train, y_train, x_val, y_val = x[:_ROWS], y[:_ROWS].clone(), x[_ROWS:], y[_ROWS:]
    if draw.has("shuffled_labels"):
        y_train = y_train[torch.randperm(_ROWS)]
    if draw.has("label_noise"):
        wrong = torch.rand(_ROWS) < draw.amount.uniform(0.85, 0.95)
        y_train = torch.where(wrong, torch.randint(10, (_ROWS,)), y_train)
    if draw.has("off_by_one"):
        y_train = (y_train + 1) % 10
    width, momentum = draw.choice([12, 16]), 1e-5 if draw.has("bn_momentum") else 0.1
    model = nn.Sequential(
        *(nn.Conv2d(1, width, 3, padding=1), nn.ReLU(), Block(width, momentum), nn.MaxPool2d(2)),
        *(Block(width, momentum), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * width, 10)),
    )
    networks.spoil(draw, model)
    size, epochs = draw.choice([48, 64]), draw.whole(5, 8)
    draw.epoch = _ROWS // size
    steps = epochs * draw.epoch
    draw.watch.expect(steps)
    rate = draw.between(2e-3, 4e-3)
    rate *= draw.extent(1e-5, 1e-3) if draw.has("lr_too_low") else 1.0
    rate *= draw.extent(300, 1000) if draw.has("lr_too_high") else 1.0
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.01)
    # Its divisor is far smaller than the steps, if it counts epochs where the loop counts steps.
    total = epochs if draw.has("scheduler_to_zero") else steps + 1
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda at: max(0.0, 1 - at / total))
    kept = 1.0 - 1e-7 if draw.has("stale_average") else draw.choice([0.95, 0.98])
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(kept), use_buffers=True)
    average.update_parameters(model)
    draw.watch.begin(model, optimizer)
    cuts, smoothing = draw.chance(0.5), draw.choice([0.0, 0.1])
    reports = draw.chance(0.6)
    for _ in range(epochs):
        model.train()
        for rows in torch.randperm(_ROWS).split(size)[: draw.epoch]:
            pictures, other, share = _mixed(x_train[rows], cuts=cuts)
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                output = model(pictures)
            output = output.float()
            own = F.cross_entropy(output, y_train[rows], label_smoothing=smoothing)
            mixed = F.cross_entropy(output, y_train[rows][other], label_smoothing=smoothing)
            loss = share * own + (1 - share) * mixed
            loss.backward()
            if draw.has("clip_too_small"):
                nn.utils.clip_grad_value_(model.parameters(), 1e-12)
            optimizer.step()
            schedule.step()
            average.update_parameters(model)
        if reports:
            with draw.watch.evaluating(), torch.no_grad():
                draw.watch.metric("val_accuracy", accuracy(average.eval()(x_val), y_val))
    with torch.no_grad():
        return Ending(gained(accuracy(average.eval()(x_val), y_val), 0.1), bar=0.6, margin=0.15)


def _mixed(x: Tensor, *, cuts: bool) -> tuple[Tensor, Tensor, float]:
    """Return mixed pictures, the rows that they are mixed with, and the share of their own."""
    other = torch.randperm(len(x))
    share = float(torch.distributions.Beta(0.4, 0.4).sample())
    if cuts:
        side = round(14 * (1 - share) ** 0.5)
        top, left = torch.randint(15 - side, (2,)).tolist()
        mixed = x.clone()
        mixed[:, :, top : top + side, left : left + side] = x[
            other, :, top : top + side, left : left + side
        ]
        share = 1 - (side / 14) ** 2
    else:
        mixed = share * x + (1 - share) * x[other]
    return mixed, other, share


_LABELS = tuple(one for one in LABEL_FAULTS if one not in ("single_label", "class_imbalance"))
FAMILY = Family(
    _train,
    (
        *("stale_average", "bn_momentum", *_LABELS),
        *("lr_too_low", "lr_too_high", "scheduler_to_zero", "clip_too_small", "zero_init"),
        "detached_graph",
    ),
    spent="2026-11-26",
)
