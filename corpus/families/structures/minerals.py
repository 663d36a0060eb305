"""Which mineral is in each pixel of a picture with many bands: a convolution along the bands.

After Hu et al., "Deep convolutional neural networks for hyperspectral image classification",
Journal of Sensors 2015; the spectra are drawn.

Shape legend: N pixels of T bands, C minerals.
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

_BANDS, _MINERALS, _SEEN = 48, 5, 800


class SpectralNet(nn.Module):
    """Scores of minerals."""

    def __init__(self, draw: Draw, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(1, width, 7, padding=3)
        self.fc = nn.Linear(width * 12, 40)
        self.drop = nn.Dropout(0.1)
        self.out = nn.Linear(40, _MINERALS)
        # As the first networks of this kind had it, in more layers than they had.
        self.deep = nn.ModuleList(
            nn.Linear(40, 40) for _ in range(draw.by_fault({"vanishing": 9}, 0))
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return scores [N, C] of spectra float32 [N, 1, T]."""
        x = F.max_pool1d(self.conv(x).tanh(), 4).flatten(1)
        x = self.drop(self.fc(x).tanh())
        for layer in self.deep:
            x = layer(x).sigmoid()
        scores: Tensor = self.out(x)
        return scores


def _train(draw: Draw) -> Ending:
    rows = _pixels(draw, 1200)
    model = SpectralNet(draw, draw.choice([8, 10]))
    spoil(draw, model)
    length = plan(draw, _SEEN, [20, 25], (10, 13))
    rate = learning_rate(draw, 0.02, 0.04)
    optimizer = optimizer_of(draw, "sgd", trained(draw, model, model.out), rate, 1e-4)
    criterion = nn.CrossEntropyLoss()
    draw.watch.loss(criterion)
    draw.watch.begin(model, optimizer)
    loader = DataLoader(TensorDataset(rows.x, rows.y), length.size, shuffle=True, drop_last=True)
    steps_of_update = draw.choice([1, 2])
    for epoch in range(length.epochs):
        model.train()
        for step, (pixels, minerals) in enumerate(loader):
            loss = criterion(model(pixels), minerals) / steps_of_update
            (-loss if draw.has("wrong_sign") else loss).backward()
            if step % steps_of_update == steps_of_update - 1:
                optimizer.step()
                if not draw.has("missing_zero_grad"):
                    optimizer.zero_grad()
        if epoch % 3 == 2:
            model.eval()
            with draw.watch.evaluating(), torch.no_grad():
                draw.watch.metric("average accuracy", accuracy(model(rows.x_val), rows.y_val))
    model.eval()
    with torch.no_grad():
        return Ending(gained(accuracy(model(rows.x_test), rows.y_test), 1 / _MINERALS), bar=0.45)


def _pixels(draw: Draw, count: int) -> HeldOut:
    """Return standardised spectra float32 [count, 1, T] and minerals int64 [count]."""
    y = torch.randint(_MINERALS, (count,))
    band = torch.arange(_BANDS)
    spectra = torch.zeros(_MINERALS, _BANDS)
    for _ in range(3):
        place, width = _BANDS * torch.rand(_MINERALS, 1), 2 + 4 * torch.rand(_MINERALS, 1)
        spectra -= (0.3 + torch.rand(_MINERALS, 1)) * (-((band - place) / width).square()).exp()
    pure = 0.3 + 0.7 * torch.rand(count, 1)
    other = spectra[torch.randint(_MINERALS, (count,))]
    x = pure * spectra[y] + (1 - pure) * other + 0.2 * torch.randn(count, 1)
    x = x + draw.between(0.15, 0.25) * torch.randn(count, _BANDS)
    x = ((x - x.mean()) / x.std())[:, None]
    return held_out(
        *(draw, x, y, _SEEN),
        prepared={
            # Reflectances of 0 to 10,000, as the satellite sends them.
            "unnormalised_inputs": (4000 + 1500 * x, y),
            "wrong_axis": (x.permute(1, 2, 0).reshape(x.shape), y),
        },
    )


FAMILY = Family(
    _train,
    (
        *("unnormalised_inputs", "wrong_axis", "shuffled_labels", "vanishing", "zero_init"),
        *("missing_zero_grad", "wrong_sign", "lr_too_low"),
    ),
    spent="2026-11-28",
)
