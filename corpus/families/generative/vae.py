"""A variational autoencoder of digits."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from sklearn.datasets import load_digits
from torch import Tensor, nn

from corpus import networks, optimisation
from corpus.data.rows import batches
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import evaluation, run_loop


class Vae(nn.Module):
    """Logits of the pixels, means and logarithms of the variances of the code."""

    def __init__(self, width: int, code: int) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, width), nn.ReLU())
        self.mean, self.log_variance = nn.Linear(width, code), nn.Linear(width, code)
        self.decoder = nn.Sequential(nn.Linear(code, width), nn.ReLU(), nn.Linear(width, 64))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Encode, draw a code, and decode it."""
        inner = self.encoder(x)
        mean, log_variance = self.mean(inner), self.log_variance(inner)
        code = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
        return self.decoder(code), mean, log_variance


def _bound(output: tuple[Tensor, Tensor, Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
    """Return reconstruction error and divergence, per row."""
    logits, mean, log_variance = output
    error = F.binary_cross_entropy_with_logits(logits, x, reduction="sum") / len(x)
    divergence = 0.5 * (mean**2 + log_variance.exp() - 1 - log_variance).sum() / len(x)
    return error, divergence


def _train(draw: Draw) -> Ending:
    x = torch.tensor((load_digits().data > 7).astype("float32"))
    x = x[torch.randperm(len(x))]
    x_train, x_val = x[:1400], x[1400:]
    model = Vae(draw.choice([64, 128]), draw.choice([4, 8, 16]))
    networks.spoil(draw, model)
    steps = draw.steps(300, 1000)
    kinds = ("adam", "adamw")
    optimiser = optimisation.Optimisation(draw, model, steps, scale=1.5, kinds=kinds)
    source = batches(draw, x_train, x_train, draw.choice([32, 64, 128]))
    weight = draw.by_fault({"term_left_out": 0.0, "term_wrong_sign": -1.0}, 1.0)
    warms, taken = draw.chance(0.3), [0]

    def compute() -> Tensor:
        taken[0] += 1
        batch, wanted = next(source)
        error, divergence = _bound(model(batch), wanted)
        ramp = min(1.0, taken[0] / (0.2 * steps)) if warms else 1.0
        return error + weight * ramp * divergence

    def evaluate() -> Mapping[str, float]:
        return {"elbo": -float(sum(_bound(model(x_val), x_val)))}

    chosen = evaluate if draw.chance(0.6) else None
    run_loop(draw, model, optimiser, steps, compute=compute, evaluate=chosen)
    share = x_train.mean(0).clamp(0.001, 0.999)
    trivial = F.binary_cross_entropy(share.expand_as(x_val), x_val, reduction="sum") / len(x_val)
    with evaluation(draw, model):
        bound = sum(_bound(model(x_val), x_val))
    return Ending(float(1 - bound / trivial), bar=0.08, margin=0.05)


FAMILY = Family(
    _train,
    (
        *(one for one in optimisation.FAULTS if one not in ("momentum_too_high", "half_underflow")),
        *networks.FAULTS,
        *("term_left_out", "term_wrong_sign", "ruinous_augmentation", "same_batch"),
    ),
    spent="2026-11-23",
)
