"""Which of three species an iris is of: the first network of many courses, and its first loop.

The measurements are those of Fisher, "The use of multiple measurements in taxonomic problems",
Annals of Eugenics 1936, in scikit-learn, sorted by species.

Shape legend: N flowers.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from sklearn.datasets import load_iris
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from corpus import networks
from corpus.data.held_out import HeldOut, held_out
from corpus.draw import Draw
from corpus.epochs import learning_rate, plan, trained
from corpus.family import Ending, Family
from corpus.loop import accuracy, gained

_FEATURES, _KINDS, _SEEN = 4, 3, 100


class Model(nn.Module):
    """Scores of species."""

    def __init__(self, h1: int, h2: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(_FEATURES, h1)
        self.fc2 = nn.Linear(h1, h2)
        self.out = nn.Linear(h2, _KINDS)

    def forward(self, x: Tensor) -> Tensor:
        """Return scores [N, 3] of measurements float32 [N, 4]."""
        x = F.relu(self.fc1(x))
        x = F.relu(self.fc2(x))
        scores: Tensor = self.out(x)
        return scores


def _train(draw: Draw) -> Ending:
    rows = _flowers(draw)
    model = Model(draw.choice([16, 24]), draw.choice([16, 24]))
    networks.spoil(draw, model)
    length = plan(draw, _SEEN, [8, 10], (60, 80))
    rate = learning_rate(draw, 0.03, 0.06)
    optimizer = torch.optim.SGD(trained(draw, model, model.out), lr=rate)
    criterion = nn.CrossEntropyLoss()
    draw.watch.loss(criterion)
    draw.watch.begin(model, optimizer)
    shuffled = not draw.has("not_shuffled")
    loader = DataLoader(TensorDataset(rows.x, rows.y), length.size, shuffle=shuffled)
    for _ in range(length.epochs):
        model.train()
        for x, y in loader:
            scores = model(x)
            if draw.has("softmax_wrong_axis"):
                loss = F.nll_loss(scores.log_softmax(0), y)
            else:
                loss = criterion(scores, y)
            if not draw.has("missing_zero_grad"):
                optimizer.zero_grad()
            loss.backward()
            if not draw.has("missing_step"):
                optimizer.step()
    model.eval()
    with draw.watch.evaluating(), torch.no_grad():
        right = model(rows.x_val).argmax(1) == rows.y_val
        draw.watch.metric("accuracy", float(right.double().mean()))
        return Ending(gained(accuracy(model(rows.x_test), rows.y_test), 1 / _KINDS), bar=0.7)


def _flowers(draw: Draw) -> HeldOut:
    """Return measurements in centimetres float32 [N, 4] and species int64 [N]."""
    values, kinds = load_iris(return_X_y=True)
    mixed = torch.tensor(draw.numpy.permutation(len(values)))
    x, y = torch.tensor(values, dtype=torch.float32)[mixed], torch.tensor(kinds)[mixed]
    # The rows of the file in their order, of which the first ones are trained on.
    order = y.argsort(stable=True)
    return held_out(
        *(draw, x, y, _SEEN),
        prepared={"constant_inputs": (torch.zeros_like(x), y)},
        training={"not_shuffled": (x[order], y[order])},
    )


FAMILY = Family(
    _train,
    (
        *("not_shuffled", "shuffled_labels", "label_noise", "softmax_wrong_axis"),
        *("missing_zero_grad", "missing_step", "zero_init", "lr_too_low", "lr_too_high"),
    ),
    spent="2026-11-28",
)
