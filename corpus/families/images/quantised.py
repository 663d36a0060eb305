"""Digits with weights and activations of a few bits, trained with fake quantisation.

After Jacob et al., "Quantization and training of neural networks for efficient integer-arithmetic-
only inference", CVPR 2018, with gradients that pass straight through the rounding.

Shape legend: N rows.
"""

from __future__ import annotations

from collections.abc import Mapping

from sklearn.datasets import load_digits
from torch import Tensor, nn

from corpus import losses, networks, optimisation
from corpus.data import rows
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import accuracy, evaluation, gained, run_loop


class FakeQuantised(nn.Module):
    """Round to levels between -1 and 1 of a range."""

    def __init__(self, levels: int, most: float | None, *, straight: bool) -> None:
        super().__init__()
        self.levels, self.most, self.straight = levels, most, straight

    def forward(self, x: Tensor) -> Tensor:
        """Return x rounded to the levels; without a fixed range, to those of its own."""
        most = float(x.detach().abs().max().clamp(min=1e-8)) if self.most is None else self.most
        scaled = (x / most).clamp(-1, 1) * self.levels
        rounded = scaled.round()
        if self.straight:
            rounded = scaled + (rounded - scaled).detach()
        return rounded * most / self.levels


class QuantisedLinear(nn.Linear):
    """A dense layer whose weights are rounded."""

    def __init__(self, inputs: int, outputs: int, levels: int, *, straight: bool) -> None:
        super().__init__(inputs, outputs)
        self.quantise = FakeQuantised(levels, None, straight=straight)

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs of inputs [N, inputs]."""
        return nn.functional.linear(x, self.quantise(self.weight), self.bias)


def _train(draw: Draw) -> Ending:
    images, numbers = load_digits(return_X_y=True)
    data = rows.rows_of(draw, images / 8 - 1, numbers, classes=10)
    straight = not draw.has("no_straight_through")
    levels = 1 if draw.has("few_levels") else draw.choice([7, 15, 127])
    # A range that an observer has not seen anything for.
    most = draw.extent(1e-3, 1e-2) if draw.has("range_unset") else 4.0
    width = draw.choice([48, 96])
    parts: list[nn.Module] = []
    for inputs in (64, width):
        parts.append(QuantisedLinear(inputs, width, levels, straight=straight))
        parts += [nn.ReLU(), FakeQuantised(levels, most, straight=straight)]
    model = nn.Sequential(*parts, nn.Linear(width, 10))
    networks.spoil(draw, model)
    steps = draw.steps(300, 700)
    optimiser = optimisation.Optimisation(
        draw, model, steps, kinds=("adam", "adamw", "momentum", "nesterov")
    )
    loss = losses.class_loss(draw)
    source = rows.batches(draw, data.x, data.y, draw.choice([32, 64]))

    def compute() -> Tensor:
        batch, wanted = next(source)
        return loss(model(batch), wanted)

    def evaluate() -> Mapping[str, float]:
        return {"quantised_accuracy": accuracy(model(data.x_val), data.y_val)}

    chosen = evaluate if draw.chance(0.6) else None
    run_loop(draw, model, optimiser, steps, compute=compute, evaluate=chosen)
    with evaluation(draw, model):
        return Ending(gained(accuracy(model(data.x_val), data.y_val), 0.1), bar=0.7, margin=0.12)


FAMILY = Family(
    _train,
    (
        *("no_straight_through", "few_levels", "range_unset", "wrong_loss"),
        *("lr_too_low", "scheduler_to_zero", "wrong_axis", "off_by_one", "shuffled_labels"),
        *("class_imbalance", "unnormalised_inputs", "dead_relu"),
    ),
    spent="2026-11-26",
)
