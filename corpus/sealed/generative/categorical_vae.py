"""Digits as a few choices among ten: a variational autoencoder with a softened choice.

After Jang, Gu and Poole, "Categorical reparameterization with Gumbel-softmax", ICLR 2017, with the
digits of Alpaydin and Kaynak in scikit-learn.

Shape legend: N pictures of 64 bits, K choices of C.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from corpus.draw import Draw
from corpus.epochs import learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.networks import spoil

_PIXELS, _CHOICES, _CLASSES, _SEEN = 64, 8, 10, 1200


class CategoricalVAE(nn.Module):
    """Logits of pixels, and of choices."""

    def __init__(self, draw: Draw, width: int) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            *(nn.Linear(_PIXELS, width), nn.ReLU(), nn.Linear(width, _CHOICES * _CLASSES))
        )
        self.decoder = nn.Sequential(
            *(nn.Linear(_CHOICES * _CLASSES, width), nn.ReLU(), nn.Linear(width, _PIXELS))
        )
        self.cut = draw.has("symbols_detached")

    def forward(self, x: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
        """Return logits [N, 64] of pixels and [N, K, C] of choices, of bits float32 [N, 64]."""
        logits = self.encoder(x).unflatten(1, (_CHOICES, _CLASSES))
        z = F.gumbel_softmax(logits, temperature, hard=self.cut, dim=2)
        if self.cut:
            # A hard choice has no gradient.
            z = z.detach()
        return self.decoder(z.flatten(1)), logits


def _bound(pixels: Tensor, logits: Tensor, x: Tensor, weight: float) -> Tensor:
    rebuilt = F.binary_cross_entropy_with_logits(pixels, x, reduction="none").sum(1)
    q = logits.softmax(2)
    divergence = (q * (logits.log_softmax(2) + math.log(_CLASSES))).sum((1, 2))
    return (rebuilt + weight * divergence).mean()


def _train(draw: Draw) -> Ending:
    x = _digits(draw)
    seen = _prepared(draw, x[:_SEEN])
    model = CategoricalVAE(draw, draw.choice([64, 96]))
    spoil(draw, model)
    length = plan(draw, _SEEN, [25, 40], (12, 16))
    rate = learning_rate(draw, 2e-3, 4e-3)
    optimizer = optimizer_of(draw, "adam", trained(draw, model, model.decoder), rate)
    # The divergence is of all choices and the error of all pixels; it was multiplied by the rows.
    weight = draw.by_fault({"divergence_unscaled": 100.0, "term_wrong_sign": -1.0}, 0.3)
    loss_fn = draw.watch.loss(_bound)
    draw.watch.begin(model, optimizer)
    loader = DataLoader(TensorDataset(seen), length.size, shuffle=True, drop_last=True)
    for epoch in range(length.epochs):
        model.train()
        temperature = max(0.5, 0.9**epoch)
        total = 0.0
        for (bits,) in loader:
            pixels, logits = model(bits, temperature)
            if draw.has("wrong_output_activation"):
                pixels = pixels.sigmoid()
            loss = loss_fn(pixels, logits, bits, weight)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        draw.watch.metric("epoch_loss", total / length.batches)
    model.eval()
    with draw.watch.evaluating(), torch.no_grad():
        pixels, _ = model(x[_SEEN:], 0.5)
        if draw.has("wrong_output_activation"):
            pixels = pixels.sigmoid()
        wrong = F.binary_cross_entropy_with_logits(pixels, x[_SEEN:])
    # The entropy of each pixel, for one who knows nothing of the picture.
    share = x[:_SEEN].mean(0).clamp(0.01, 0.99)
    guess = F.binary_cross_entropy(share.expand_as(x[_SEEN:]), x[_SEEN:])
    return Ending(float(1 - wrong / guess), bar=0.25, margin=0.15)


def _prepared(draw: Draw, x: Tensor) -> Tensor:
    """Return bits as the script prepares them, with the drawn fault if there is one."""
    return draw.by_fault(
        {
            # Bytes, and not shares.
            "unnormalised_inputs": 255 * x,
            "constant_inputs": torch.zeros_like(x),
            "wrong_axis": x.T.reshape(x.shape),
        },
        x,
    )


def _digits(draw: Draw) -> Tensor:
    """Return bits float32 [1600, 64]."""
    values = load_digits().data
    order = draw.numpy.permutation(len(values))[:1600]
    return torch.tensor(values[order] > 7).float()


FAMILY = Family(
    _train,
    (
        *("unnormalised_inputs", "constant_inputs", "wrong_axis", "divergence_unscaled"),
        *("term_wrong_sign", "wrong_output_activation", "symbols_detached", "dead_relu"),
        *("lr_too_low", "lr_too_high"),
    ),
)
