"""An autoencoder of digits or of rows on a curved surface."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from sklearn.datasets import load_digits
from torch import Tensor, nn

from corpus import losses, networks, optimisation
from corpus.data import rows
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import evaluation, explained, run_loop


def _train(draw: Draw) -> Ending:
    x = _drawn_rows(draw)
    data = rows.rows_of(draw, x, x)
    code = 1 if draw.has("too_small_model") else draw.choice([8, 12, 16])
    width = draw.choice([48, 64, 128])
    active = draw.choice([nn.ReLU, nn.ReLU, nn.Tanh, nn.GELU])
    model = nn.Sequential(
        *(nn.Linear(x.shape[1], width), active(), nn.Linear(width, code)),
        *(nn.Linear(code, width), active(), nn.Linear(width, x.shape[1])),
    )
    networks.spoil(draw, model)
    steps = draw.steps(200, 1000)
    kinds = ("adam", "adamw", "rmsprop", "nesterov")
    optimiser = optimisation.Optimisation(draw, model, steps, scale=1.5, kinds=kinds)
    loss = losses.value_loss(draw)
    source = rows.batches(draw, data.x, data.y, draw.choice([32, 64, 128]))
    noise = draw.choice([0.0, 0.0, 0.1])

    def compute() -> Tensor:
        batch, wanted = next(source)
        return loss(model(batch + noise * batch.new_empty(batch.shape).normal_()), wanted)

    def evaluate() -> Mapping[str, float]:
        output = model(data.x_val)
        return {"val_loss": float(loss(output, data.y_val))}

    chosen = evaluate if draw.chance(0.6) else None
    run_loop(draw, model, optimiser, steps, compute=compute, evaluate=chosen)
    with evaluation(draw, model):
        return Ending(explained(model(data.x_val), data.y_val), bar=0.5)


def _drawn_rows(draw: Draw) -> np.ndarray:
    """Return rows [N, F]."""
    if draw.chance(0.5):
        x: np.ndarray = load_digits().data / 16
        return (x - x.mean()) / x.std() if draw.chance(0.5) else 2 * x - 1
    inner = draw.numpy.normal(size=(draw.whole(300, 8000), draw.choice([3, 5, 8])))
    features = draw.whole(20, 150)
    x = np.tanh(inner @ draw.numpy.normal(size=(inner.shape[1], features)))
    x += 0.05 * draw.numpy.normal(size=x.shape)
    return x


FAMILY = Family(
    _train,
    (
        *optimisation.FAULTS,
        *networks.FAULTS,
        *("relu_before_loss", "wrong_loss", "loss_reduction", "shuffled_labels"),
        *("ruinous_augmentation", "same_batch", "duplicated_rows", "nan_inputs"),
        *("unnormalised_targets", "too_small_model"),
    ),
    spent="2026-11-23",
)
