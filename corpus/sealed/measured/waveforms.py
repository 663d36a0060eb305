"""Which instrument plays, from the raw sound: one-dimensional convolutions with long strides.

After Dai et al., "Very deep convolutional neural networks for raw waveforms", ICASSP 2017; the
sounds are drawn.

Shape legend: N sounds of T samples.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from corpus.data.held_out import HeldOut, held_out
from corpus.draw import Draw
from corpus.epochs import learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.loop import accuracy, gained
from corpus.networks import spoil

_TIME, _KINDS, _SEEN = 256, 4, 480


class M5(nn.Module):
    """Log-probabilities of instruments."""

    def __init__(self, draw: Draw, width: int) -> None:
        super().__init__()
        momentum = draw.by_fault({"bn_momentum": 0.0}, 0.1)
        self.conv1 = nn.Conv1d(1, width, 16, stride=4)
        self.bn1 = nn.BatchNorm1d(width, momentum=momentum)
        self.conv2 = nn.Conv1d(width, width, 3)
        self.bn2 = nn.BatchNorm1d(width, momentum=momentum)
        self.fc = nn.Linear(width, _KINDS)

    def forward(self, x: Tensor) -> Tensor:
        """Return log-probabilities [N, 4] of sounds float32 [N, 1, T]."""
        x = F.max_pool1d(F.relu(self.bn1(self.conv1(x))), 4)
        x = F.relu(self.bn2(self.conv2(x))).mean(2)
        scores: Tensor = self.fc(x)
        return scores.log_softmax(1)


def _train(draw: Draw) -> Ending:
    rows = _sounds(draw, 720)
    model = M5(draw, draw.choice([24, 32]))
    spoil(draw, model)
    length = plan(draw, _SEEN, [20, 24], (9, 12))
    rate = learning_rate(draw, 5e-3, 1e-2)
    optimizer = optimizer_of(draw, "adam", trained(draw, model, model.fc), rate, 1e-4)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5, 0.3)
    loss_fn = draw.watch.loss(F.nll_loss)
    draw.watch.begin(model, optimizer)
    loader = DataLoader(TensorDataset(rows.x, rows.y), length.size, shuffle=True, drop_last=True)
    for _ in range(length.epochs):
        model.train()
        for data, target in loader:
            loss = loss_fn(model(data), target)
            optimizer.zero_grad()
            (-loss if draw.has("wrong_sign") else loss).backward()
            optimizer.step()
        scheduler.step()
        model.eval()
        with draw.watch.evaluating(), torch.no_grad():
            draw.watch.metric("accuracy", accuracy(model(rows.x_val), rows.y_val))
    model.eval()
    with torch.no_grad():
        return Ending(gained(accuracy(model(rows.x_test), rows.y_test), 1 / _KINDS), bar=0.6)


def _sounds(draw: Draw, count: int) -> HeldOut:
    """Return standardised sounds float32 [count, 1, T] and instruments int64 [count]."""
    y = torch.randint(_KINDS, (count,))
    tone = torch.tensor([[1, 0.1, 0.5, 0.05], [1, 0.8, 0.2, 0.1], [0.3, 1, 0.1, 0.8], [1, 0, 0, 0]])
    pitch = 0.15 * 2 ** torch.rand(count, 1)
    time = torch.arange(_TIME)
    waves = torch.stack([torch.sin(k * pitch * time + k) for k in range(1, 5)], 2)
    x = (waves * tone[y][:, None]).sum(2)
    fade = torch.tensor([90.0, 500, 200, 120])[y][:, None] * (0.7 + 0.6 * torch.rand(count, 1))
    x = x * (-time / fade).exp() + draw.between(0.2, 0.35) * torch.randn(count, _TIME)
    x = ((x - x.mean()) / x.std())[:, None]
    noisy = torch.randn(x.shape) * 12 + x
    return held_out(
        *(draw, x, y, _SEEN),
        # Samples of all sounds one after the other, in a file that is read by columns.
        prepared={"wrong_axis": (x.flatten(1).T.reshape(x.shape), y)},
        training={"ruinous_augmentation": (noisy, y)},
    )


FAMILY = Family(
    _train,
    (
        *("shuffled_labels", "wrong_axis", "ruinous_augmentation", "label_noise"),
        *("bn_momentum", "wrong_sign", "nan_inputs", "lr_too_low", "lr_too_high"),
    ),
)
