"""In which stage of sleep each half minute of a night is: convolutions, then an LSTM of the night.

After Supratak, Dong, Wu and Guo, "DeepSleepNet: a model for automatic sleep stage scoring based on
raw single-channel EEG", IEEE Transactions on Neural Systems and Rehabilitation Engineering 2017;
the nights are drawn.

Shape legend: N nights of E epochs with T values each.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn

from corpus.data.held_out import HeldOut, held_out
from corpus.draw import Draw
from corpus.epochs import learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.loop import accuracy, gained
from corpus.networks import spoil

_EPOCHS, _TIME, _STAGES, _SEEN = 10, 30, 4, 200


class SleepNet(nn.Module):
    """Scores of stages."""

    def __init__(self, draw: Draw, width: int) -> None:
        super().__init__()
        self.fine = nn.Conv1d(1, width, 5, 2, padding=2)
        self.wide = nn.Conv1d(1, width, 15, 3, padding=7)
        self.drop = nn.Dropout(draw.by_fault({"dropout_too_high": 0.98}, 0.2))
        self.lstm = nn.LSTM(2 * width, 24, batch_first=True, bidirectional=True)
        self.out = nn.Linear(48, _STAGES)

    def forward(self, nights: Tensor) -> Tensor:
        """Return scores [N, E, 4] of nights float32 [N, E, T]."""
        epochs = nights.reshape(-1, 1, _TIME)
        told = torch.cat([F.relu(one(epochs)).mean(2) for one in (self.fine, self.wide)], 1)
        told = self.drop(told).reshape(len(nights), _EPOCHS, -1)
        scores: Tensor = self.out(self.lstm(told)[0])
        return scores


def _train(draw: Draw) -> Ending:
    rows = _nights(draw, 300)
    model = SleepNet(draw, draw.choice([12, 16]))
    spoil(draw, model)
    length = plan(draw, _SEEN, [8, 10], (10, 13))
    rate = learning_rate(draw, 4e-3, 8e-3)
    optimizer = optimizer_of(draw, "adam", trained(draw, model, model.out), rate, 1e-4)
    count = rows.y.flatten().bincount(minlength=_STAGES).float()
    weight = count.sum() / (_STAGES * count)
    if draw.has("weights_reversed"):
        weight = (1 / weight).pow(4)
    loss_fn = nn.CrossEntropyLoss(weight=weight)
    draw.watch.loss(loss_fn)
    draw.watch.begin(model, optimizer)
    for epoch in range(length.epochs):
        model.train()
        for batch in torch.randperm(_SEEN).split(length.size):
            loss = loss_fn(model(rows.x[batch]).transpose(1, 2), rows.y[batch])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
        if epoch % 2:
            model.eval()
            with draw.watch.evaluating(), torch.no_grad():
                draw.watch.metric("macro_recall", _recalled(model(rows.x_val), rows.y_val))
    model.eval()
    with torch.no_grad():
        return Ending(gained(_recalled(model(rows.x_test), rows.y_test), 1 / _STAGES), bar=0.55)


def _recalled(scores: Tensor, stages: Tensor) -> float:
    """Return the mean over the stages of the share of their epochs that are found."""
    return accuracy(scores.flatten(0, 1), stages.flatten())


def _nights(draw: Draw, count: int) -> HeldOut:
    """Return standardised nights float32 [count, E, T] and stages int64 [count, E]."""
    stages = [torch.zeros(count).long()]
    for _ in range(_EPOCHS - 1):
        chance, now = torch.rand(count), stages[-1]
        # Deep sleep comes by way of light sleep, and dreams are rare.
        after = (now + 1) % _STAGES
        moved = torch.where(chance < 0.4, after, torch.where(chance < 0.5, 1, now))
        stages.append(moved)
    y = torch.stack(stages, 1)
    pace = torch.tensor([2.4, 1.5, 0.5, 1.0])[y][:, :, None]
    size = torch.tensor([0.7, 0.9, 1.5, 0.8])[y][:, :, None]
    time, phase = torch.arange(_TIME), 6.28 * torch.rand(count, _EPOCHS, 1)
    x = size * torch.sin(pace * (0.85 + 0.3 * torch.rand(count, _EPOCHS, 1)) * time + phase)
    x = x + draw.between(0.5, 0.7) * torch.randn(x.shape)
    x = x / x.std()
    return held_out(
        *(draw, x, y, _SEEN),
        prepared={
            # Volts, of which there are some millionths.
            "unnormalised_inputs": (3e-5 * x, y),
            # The scoring begins two epochs after the recording, and is filled up at its end.
            "wrong_shift": (x, y.roll(2, 1)),
        },
    )


FAMILY = Family(
    _train,
    (
        *("unnormalised_inputs", "weights_reversed", "shuffled_labels", "wrong_shift"),
        *("dropout_too_high", "nan_inputs", "zero_init"),
        *("not_in_optimizer", "lr_too_low", "lr_too_high"),
    ),
    spent="2026-11-28",
)
