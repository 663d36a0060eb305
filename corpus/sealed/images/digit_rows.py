"""Digits read row by row: an LSTM, its last state, and a linear layer.

After the examples of Keras and PyTorch that read MNIST with recurrent networks, with the digits of
Alpaydin and Kaynak in scikit-learn.

Shape legend: N pictures of 8 rows of 8 pixels.
"""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from corpus.data.held_out import HeldOut, held_out
from corpus.draw import Draw
from corpus.epochs import learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.loop import accuracy, gained
from corpus.networks import blank

_DIGITS, _SEEN = 10, 900


class RNN(nn.Module):
    """Scores of digits."""

    def __init__(self, draw: Draw, hidden: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(8, hidden, draw.choice([1, 2]), batch_first=True)
        self.fc = nn.Linear(hidden, _DIGITS)
        self.first_row = draw.has("pool_wrong_axis")

    def forward(self, x: Tensor) -> Tensor:
        """Return scores [N, 10] of pictures float32 [N, 8, 8]."""
        out = self.lstm(x)[0]
        # The state after the first row knows one row.
        scores: Tensor = self.fc(out[:, 0] if self.first_row else out[:, -1])
        return scores


def _train(draw: Draw) -> Ending:
    rows = _digits(draw)
    model = RNN(draw, draw.choice([32, 40]))
    blank(draw, model)
    if draw.has("large_init"):
        for one in model.parameters():
            nn.init.normal_(one, 0, 10)
    length = plan(draw, _SEEN, [25, 30], (10, 13))
    rate = learning_rate(draw, 5e-3, 1e-2)
    weights = trained(draw, model, model.fc)
    optimizer = optimizer_of(draw, "adam", weights, rate)
    if draw.has("wrong_optimizer"):
        # With the rate of Adam.
        optimizer = torch.optim.SGD(weights, lr=rate / 20)
    criterion = nn.CrossEntropyLoss()
    draw.watch.loss(criterion)
    draw.watch.begin(model, optimizer)
    loader = DataLoader(TensorDataset(rows.x, rows.y), length.size, shuffle=True, drop_last=True)
    for _ in range(length.epochs):
        model.train()
        for images, labels in loader:
            outputs = model(images)
            loss = criterion(outputs, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with draw.watch.evaluating(), torch.no_grad():
            draw.watch.metric("test_accuracy", accuracy(model(rows.x_val), rows.y_val))
    with torch.no_grad():
        return Ending(gained(accuracy(model(rows.x_test), rows.y_test), 1 / _DIGITS), bar=0.65)


def _digits(draw: Draw) -> HeldOut:
    """Return pictures float32 [1300, 8, 8] of values of 0 to 1, and digits int64 [1300]."""
    values, digits = load_digits(return_X_y=True)
    order = draw.numpy.permutation(len(values))[:1300]
    x = torch.tensor(values[order] / 16).float().reshape(-1, 8, 8)
    y = torch.tensor(digits[order])
    return held_out(*(draw, x, y, _SEEN))


FAMILY = Family(
    _train,
    (
        *("shuffled_labels", "label_noise", "pool_wrong_axis"),
        *("weight_decay_too_high", "wrong_optimizer", "zero_init", "large_init"),
        *("lr_too_low", "lr_too_high"),
    ),
)
