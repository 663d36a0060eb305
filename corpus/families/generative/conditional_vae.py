"""Digits that are drawn on demand: a variational autoencoder that is told which digit it is.

After Sohn, Lee and Yan, "Learning structured output representation using deep conditional
generative models", NeurIPS 2015; the digits are those of scikit-learn.

Shape legend: N digits of 64 pixels, K numbers of a code.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from corpus import networks
from corpus.draw import Draw
from corpus.epochs import learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.loop import gained

_PIXELS, _CODE = 64, 4


class ConditionalVAE(nn.Module):
    """Logits of pixels [N, 64], and means and log-variances of codes [N, K]."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(_PIXELS + 10, width), nn.ReLU())
        self.mean, self.spread = nn.Linear(width, _CODE), nn.Linear(width, _CODE)
        self.decoder = nn.Sequential(
            *(nn.Linear(_CODE + 10, width), nn.ReLU(), nn.Linear(width, _PIXELS))
        )

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return them for pixels float32 [N, 64] and digits int64 [N]."""
        kind = F.one_hot(y, 10).float()
        inner = self.encoder(torch.cat([x, kind], 1))
        mean, spread = self.mean(inner), self.spread(inner)
        code = mean + torch.randn_like(mean) * (spread / 2).exp()
        return self.decoder(torch.cat([code, kind], 1)), mean, spread


def _train(draw: Draw) -> Ending:
    x, y = _digits(draw)
    judge = LogisticRegression(max_iter=300).fit(x.numpy(), y.numpy())
    seen, known = _spoilt(draw, x, y)
    model = ConditionalVAE(draw.choice([64, 96]))
    networks.blank(draw, model)
    length = plan(draw, len(x), [20, 25], (10, 14))
    rate = learning_rate(draw, 2e-3, 4e-3)
    optimizer = optimizer_of(draw, "adam", trained(draw, model, model.mean), rate)
    draw.watch.begin(model, optimizer)

    def elbo(logits: Tensor, pixels: Tensor, mean: Tensor, spread: Tensor) -> Tensor:
        if draw.has("wrong_output_activation"):
            logits = logits.sigmoid()
        if draw.has("wrong_loss"):
            # The mean of all pixels that are drawn, and not of how they differ.
            found = F.mse_loss(logits.mean(0), pixels.mean(0), reduction="sum")
        else:
            found = F.binary_cross_entropy_with_logits(logits, pixels, reduction="sum")
        apart = -0.5 * (1 + spread - mean.square() - spread.exp()).sum()
        apart = apart * draw.by_fault({"term_wrong_sign": -1.0, "divergence_unscaled": 200.0}, 1.0)
        return (found + apart) / len(pixels)

    loss = draw.watch.loss(elbo)
    loader = DataLoader(TensorDataset(seen, known), length.size, shuffle=True, drop_last=True)
    for _ in range(length.epochs):
        model.train()
        for pixels, kinds in loader:
            logits, mean, spread = model(pixels, kinds)
            lost = loss(logits, pixels, mean, spread)
            optimizer.zero_grad()
            lost.backward()
            optimizer.step()
    model.eval()
    with torch.no_grad():
        wanted = torch.arange(10).repeat(40)
        told = torch.cat([torch.randn(400, _CODE), F.one_hot(wanted, 10).float()], 1)
        made = model.decoder(told).sigmoid()
    if not made.isfinite().all():
        return Ending(float("nan"), bar=0.5)
    right = float((judge.predict(made.numpy()) == wanted.numpy()).mean())
    # Means of pixels differ less than digits of one kind, which have noise, too.
    differ = float(made.view(40, 10, -1).var(0).mean() / _within(x, y))
    return Ending(min(gained(right, 1 / 10), 10 * differ), bar=0.5)


def _within(x: Tensor, y: Tensor) -> float:
    """Return the mean variance of pixels among digits of one kind."""
    return float(torch.stack([x[y == one].var(0).mean() for one in range(10)]).mean())


def _spoilt(draw: Draw, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return digits with the drawn fault, if there is one."""
    return draw.by_fault(
        {
            "shuffled_labels": (x, y[torch.randperm(len(y))]),
            # Grey levels from 0 to 16, of which the loss expects probabilities.
            "unnormalised_inputs": (16 * x, y),
            "single_label": (x, torch.zeros_like(y)),
            "constant_inputs": (x.mean(0).expand_as(x), y),
        },
        (x, y),
    )


def _digits(draw: Draw) -> tuple[Tensor, Tensor]:
    """Return shuffled pixels between 0 and 1, float32 [N, 64], and digits int64 [N]."""
    x, y = load_digits(return_X_y=True)
    order = draw.numpy.permutation(len(x))[:1500]
    return torch.tensor(x[order] / 16, dtype=torch.float32), torch.tensor(y[order])


FAMILY = Family(
    _train,
    (
        *("shuffled_labels", "single_label", "unnormalised_inputs", "constant_inputs"),
        *("wrong_output_activation", "wrong_loss", "term_wrong_sign", "divergence_unscaled"),
        *("zero_init", "not_in_optimizer", "lr_too_low", "lr_too_high"),
    ),
    spent="2026-11-28",
)
