"""Classification of sequences by a recurrent network."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

from corpus import losses, networks, optimisation
from corpus.data import rows
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import accuracy, evaluation, gained, run_loop


class Classifier(nn.Module):
    """Scores [N, C] of sequences [N, T, F]."""

    def __init__(self, kind: str, features: int, width: int, classes: int) -> None:
        super().__init__()
        cell = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}[kind]
        self.cell = cell(features, width, batch_first=True)
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores after the last step."""
        states, _ = self.cell(x)
        scores: Tensor = self.head(states[:, -1])
        return scores


def _train(draw: Draw) -> Ending:
    classes, length = draw.choice([2, 3, 5]), draw.choice([10, 14, 20])
    count, features = draw.whole(300, 2000), draw.choice([1, 2, 4])
    y = draw.numpy.integers(0, classes, count)
    pace = 0.3 + 1.2 * y / classes
    phase = draw.numpy.uniform(0, 6.28, (count, 1, features))
    times = np.arange(length)[None, :, None]
    x = np.sin(pace[:, None, None] * times + phase)
    x += draw.between(0.05, 0.25) * draw.numpy.normal(size=x.shape)
    data = rows.rows_of(draw, x, y, classes=classes)
    kind = "rnn" if draw.concerns("exploding_rnn") else draw.choice(["rnn", "gru", "lstm"])
    model = Classifier(kind, features, draw.choice([16, 32, 48]), classes)
    networks.spoil(draw, model)
    if draw.has("exploding_rnn"):
        model.cell = nn.RNN(features, model.head.in_features, batch_first=True, nonlinearity="relu")
        with torch.no_grad():
            model.cell.weight_hh_l0.mul_(draw.extent(4, 20))
    steps = draw.steps(300, 900)
    slow = {"rnn": 0.8, "gru": 1.5, "lstm": 2.0}[kind]
    kinds = ("adam", "adamw", "rmsprop")
    optimiser = optimisation.Optimisation(draw, model, steps, scale=slow, kinds=kinds)
    loss = losses.class_loss(draw)
    source = rows.batches(draw, data.x, data.y, draw.choice([16, 32, 64]))

    def compute() -> Tensor:
        batch, wanted = next(source)
        return loss(model(batch), wanted)

    def evaluate() -> Mapping[str, float]:
        output = model(data.x_val)
        loss(output, data.y_val)
        return {"acc": accuracy(output, data.y_val)}

    chosen = evaluate if draw.chance(0.7) else None
    run_loop(draw, model, optimiser, steps, compute=compute, evaluate=chosen)
    with evaluation(draw, model):
        return Ending(gained(accuracy(model(data.x_val), data.y_val), 1 / classes), bar=0.6)


FAMILY = Family(
    _train,
    (
        *optimisation.FAULTS,
        *networks.FAULTS,
        *losses.CLASS_FAULTS,
        *rows.INPUT_FAULTS,
        *rows.LABEL_FAULTS,
        "exploding_rnn",
    ),
    spent="2026-11-23",
)
