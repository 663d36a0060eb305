"""Wines by the fixed point of a layer, which a solver finds without gradients.

After Bai, Kolter and Koltun, "Deep equilibrium models", NeurIPS 2019, and Fung et al., "JFB:
Jacobian-free backpropagation for implicit networks", AAAI 2022.

Shape legend: N rows, H width.
"""

from __future__ import annotations

import torch
from sklearn import datasets
from torch import Tensor, nn

from corpus import networks
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import accuracy, gained


class Equilibrium(nn.Module):
    """The fixed point of `tanh(A z + B x)`, and scores of it."""

    def __init__(self, features: int, width: int, classes: int, radius: float) -> None:
        super().__init__()
        self.inner = nn.Linear(width, width)
        self.outer = nn.Linear(features, width, bias=False)
        self.head = nn.Linear(width, classes)
        with torch.no_grad():
            self.inner.weight.mul_(radius)

    def forward(self, x: Tensor) -> Tensor:
        """Return scores [N, classes] of rows [N, features]."""
        drive = self.outer(x)
        with torch.no_grad():
            state = torch.zeros_like(drive)
            for _ in range(30):
                after = torch.tanh(self.inner(state) + drive)
                if (after - state).abs().max() < 1e-4:
                    break
                state = after
        # The gradient is that of one step from the fixed point on.
        scores: Tensor = self.head(torch.tanh(self.inner(state) + drive))
        return scores


def _train(draw: Draw) -> Ending:
    x, y = _rows(draw, 1500)
    classes, kept = int(y.max()) + 1, 1000
    seen, known = x[:kept], y[:kept]
    if draw.has("shuffled_labels"):
        known = known[torch.randperm(kept)]
    if draw.has("off_by_one"):
        known = (known + 1) % classes
    if draw.has("single_label"):
        known = torch.zeros_like(known)
    if draw.has("constant_inputs"):
        seen = torch.zeros_like(seen)
    features = x.shape[1]
    # With large weights, there is no fixed point that the solver could find.
    radius = 300.0 if draw.has("spectral_radius") else 0.5
    model = Equilibrium(features, draw.choice([32, 48]), classes, radius)
    networks.spoil(draw, model)
    size, epochs = draw.choice([25, 40]), draw.whole(16, 26)
    draw.epoch = max(1, len(seen) // size)
    draw.watch.expect(epochs * draw.epoch)
    rate = draw.between(0.05, 0.12)
    rate *= draw.by_fault({"lr_too_low": draw.extent(1e-5, 1e-4)}, 1.0)
    decay = 0.5 / rate if draw.has("weight_decay_too_high") else 0.0
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9, weight_decay=decay)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [epochs * 2 // 3], 0.2)
    loss_fn = draw.watch.loss(nn.CrossEntropyLoss())
    draw.watch.begin(model, optimizer)
    for _ in range(epochs):
        for rows in torch.randperm(len(seen)).split(size)[: draw.epoch]:
            loss = loss_fn(model(seen[rows]), known[rows])
            optimizer.zero_grad()
            (-loss if draw.has("wrong_sign") else loss).backward()
            optimizer.step()
        schedule.step()
        with draw.watch.evaluating(), torch.no_grad():
            draw.watch.metric("val_accuracy", accuracy(model(x[kept:]), y[kept:]))
    with torch.no_grad():
        return Ending(gained(accuracy(model(x[kept:]), y[kept:]), 1 / classes), bar=0.7)


def _rows(draw: Draw, count: int) -> tuple[Tensor, Tensor]:
    """Return rows float32 [count, F] like those of the wines, and classes int64 [count]."""
    known, kinds = datasets.load_wine(return_X_y=True)
    known = (known - known.mean(0)) / known.std(0)
    # Between two wines of a class there are others of it.
    first = draw.numpy.integers(0, len(known), count)
    second = [draw.numpy.choice((kinds == kinds[one]).nonzero()[0]) for one in first]
    share = draw.numpy.random((count, 1))
    x = share * known[first] + (1 - share) * known[second]
    x += draw.between(0.3, 0.6) * draw.numpy.normal(size=x.shape)
    return torch.tensor(x, dtype=torch.float32), torch.tensor(kinds[first])


FAMILY = Family(
    _train,
    (
        *("spectral_radius", "shuffled_labels", "off_by_one", "single_label"),
        *("constant_inputs", "lr_too_low", "weight_decay_too_high"),
        *("wrong_sign", "zero_init"),
    ),
    spent="2026-11-27",
)
