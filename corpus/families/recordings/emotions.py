"""How a speaker feels, from a few bands of the voice: a recurrent network, and attention over time.

After Mirsamadi, Barsoum and Zhang, "Automatic speech emotion recognition using recurrent neural
networks with local attention", ICASSP 2017; the voices are drawn.

Shape legend: N voices of T frames and F bands.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from corpus.data.held_out import HeldOut, held_out
from corpus.draw import Draw
from corpus.epochs import learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.loop import accuracy, gained
from corpus.networks import blank

_TIME, _BANDS, _KINDS, _SEEN = 24, 8, 4, 480


class Listener(nn.Module):
    """Scores of emotions."""

    def __init__(self, draw: Draw, hidden: int) -> None:
        super().__init__()
        self.gru = nn.GRU(_BANDS, hidden, batch_first=True, bidirectional=True)
        self.attend = nn.Linear(2 * hidden, 1)
        self.drop = nn.Dropout(draw.by_fault({"dropout_too_high": 0.98}, 0.2))
        self.classify = nn.Linear(2 * hidden, _KINDS)

    def forward(self, voices: Tensor) -> Tensor:
        """Return scores [N, 4] of voices float32 [N, T, F]."""
        told = self.gru(voices)[0]
        weight = self.attend(told.tanh()).softmax(1)
        scores: Tensor = self.classify(self.drop((weight * told).sum(1)))
        return scores


def _train(draw: Draw) -> Ending:
    rows = _voices(draw, 720)
    model = Listener(draw, draw.choice([16, 20]))
    blank(draw, model)
    length = plan(draw, _SEEN, [16, 20], (7, 9))
    rate = learning_rate(draw, 3e-3, 6e-3)
    optimizer = optimizer_of(draw, "adam", trained(draw, model, model.classify), rate, 1e-5)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.05)
    draw.watch.loss(criterion)
    draw.watch.begin(model, optimizer)
    limit = draw.by_fault({"clip_too_small": draw.extent(1e-6, 1e-5)}, 1.0)
    loader = DataLoader(TensorDataset(rows.x, rows.y), length.size, shuffle=True, drop_last=True)
    for epoch in range(length.epochs):
        model.train()
        for voices, labels in loader:
            optimizer.zero_grad()
            loss = criterion(model(voices), labels)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), limit)
            optimizer.step()
        if epoch % 2:
            model.eval()
            with draw.watch.evaluating(), torch.no_grad():
                draw.watch.metric("uar", accuracy(model(rows.x_val), rows.y_val))
    model.eval()
    with torch.no_grad():
        return Ending(gained(accuracy(model(rows.x_test), rows.y_test), 1 / _KINDS), bar=0.55)


def _voices(draw: Draw, count: int) -> HeldOut:
    """Return standardised bands float32 [count, T, F] and emotions int64 [count]."""
    y = torch.randint(_KINDS, (count,))
    time = torch.arange(_TIME)[None, :, None]
    rate = torch.tensor([0.3, 0.6, 0.9, 1.3])[y] + 0.06 * torch.randn(count)
    wave = torch.sin(rate[:, None, None] * time + 6 * torch.rand(count, 1, 1))
    begin = torch.randint(0, 10, (count, 1, 1))
    speaks = ((time >= begin) & (time < begin + 14)).float()
    band = torch.rand(_KINDS, 1, _BANDS)[y] + 0.3
    x = speaks * wave * band + 0.5 * torch.randn(count, 1, _BANDS)
    x = x + draw.between(0.35, 0.5) * torch.randn(count, _TIME, _BANDS)
    x = (x - x.mean()) / x.std()
    return held_out(
        *(draw, x, y, _SEEN),
        prepared={"unnormalised_inputs": (20000 * x, y)},
    )


FAMILY = Family(
    _train,
    (
        *("unnormalised_inputs", "shuffled_labels", "duplicated_rows", "dropout_too_high"),
        *("weight_decay_too_high", "clip_too_small", "zero_init", "lr_too_low", "lr_too_high"),
    ),
    spent="2026-11-28",
)
