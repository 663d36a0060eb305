"""Numbers from rows of features, at any scale that the script leaves them at."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from sklearn import datasets
from torch import Tensor

from corpus import losses, networks, optimisation
from corpus.data import rows
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import evaluation, explained, run_loop


def _train(draw: Draw) -> Ending:
    x, y = _drawn_rows(draw)
    data = rows.rows_of(draw, x, y)
    if draw.has("overfitting"):
        data = rows.Rows(data.x[:12], data.y[:12], data.x_val, data.y_val)
    model = networks.mlp(draw, x.shape[1], y.shape[1], most=128)
    steps = draw.steps(300, 1500)
    optimiser = optimisation.Optimisation(draw, model, steps, scale=0.5 + 0.5 * (steps < 800))
    loss = losses.value_loss(draw)
    source = rows.batches(draw, data.x, data.y, draw.choice([16, 32, 64, 128]))
    name = draw.choice(["r2", "rmse", "mae"])

    def compute() -> Tensor:
        batch, wanted = next(source)
        return loss(model(batch), wanted)

    def evaluate() -> Mapping[str, float]:
        output = model(data.x_val)
        loss(output, data.y_val)
        error = output - data.y_val
        rmse, mae = float(error.square().mean().sqrt()), float(error.abs().mean())
        return {name: {"rmse": rmse, "mae": mae}.get(name, explained(output, data.y_val))}

    chosen = evaluate if draw.chance(0.7) else None
    run_loop(draw, model, optimiser, steps, compute=compute, evaluate=chosen)
    with evaluation(draw, model):
        # Predictions of targets in other units are worthless.
        return Ending(explained(model(data.x_val), data.y_val), bar=0.5)


def _drawn_rows(draw: Draw) -> tuple[np.ndarray, np.ndarray]:
    """Return normalised inputs [N, F] and targets [N, K]."""
    kind = draw.choice(["friedman", "waves", "linear", "peaks"])
    count, state = draw.whole(200, 20_000), draw.random.getrandbits(31)
    noise = draw.between(0.02, 0.4)
    if kind == "friedman":
        x, y = datasets.make_friedman1(count, 10, noise=3 * noise, random_state=state)
    elif kind == "linear":
        features = draw.whole(3, 300)
        x = draw.numpy.normal(size=(count + 3 * features, features))
        y = x @ draw.numpy.normal(size=(features, draw.choice([1, 1, 4])))
    else:
        x = draw.numpy.uniform(-1, 1, size=(count, draw.choice([1, 2, 3])))
        y = np.sin(draw.between(2, 6) * x).sum(1) if kind == "waves" else np.exp(-4 * x**2).sum(1)
    y = y[:, None] if y.ndim == 1 else y
    y = (y - y.mean(0)) / y.std(0) + noise * draw.numpy.normal(size=y.shape)
    # Some scripts leave the targets in their own, not unusual, units.
    scale = 1.0 if draw.chance(0.6) else draw.between(0.1, 10)
    return (x - x.mean(0)) / x.std(0), scale * (y + draw.choice([0.0, 0.0, 0.5]))


FAMILY = Family(
    _train,
    (
        *optimisation.FAULTS,
        *networks.MLP_FAULTS,
        *losses.VALUE_FAULTS,
        *rows.INPUT_FAULTS,
        *rows.TARGET_FAULTS,
        "overfitting",
    ),
    spent="2026-11-23",
)
