"""What the activations of a network are made of: many sparse features, and a penalty of their sum.

After Bricken et al., "Towards monosemanticity: decomposing language models with dictionary
learning", 2023; the activations are drawn.

Shape legend: N activations of D numbers, K features.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn

from corpus.data.held_out import HeldOut, held_out
from corpus.draw import Draw
from corpus.epochs import learning_rate, optimizer_of, plan
from corpus.family import Ending, Family
from corpus.loop import explained
from corpus.networks import spoil

_SIZE, _TRUE, _SEEN = 24, 48, 2000


class SparseAutoencoder(nn.Module):
    """Features of activations, and activations of features."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.encoder = nn.Linear(_SIZE, features)
        self.decoder = nn.Linear(features, _SIZE)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return activations [N, D] and features [N, K] of activations float32 [N, D]."""
        features = F.relu(self.encoder(x - self.decoder.bias))
        return self.decoder(features), features


def _train(draw: Draw) -> Ending:
    rows = _activations(draw, 2600)
    model = SparseAutoencoder(draw.by_fault({"too_small_model": 2}, draw.choice([64, 80])))
    spoil(draw, model)
    length = plan(draw, _SEEN, [40, 50], (9, 12))
    rate = learning_rate(draw, 2e-3, 4e-3)
    optimizer = optimizer_of(draw, "adam", list(model.parameters()), rate)
    penalty = draw.by_fault({"over_regularization": 30.0, "term_wrong_sign": -0.1}, 0.005)
    loss_fn = draw.watch.loss(F.mse_loss)
    draw.watch.begin(model, optimizer)
    for epoch in range(length.epochs):
        for picked in torch.randperm(_SEEN).split(length.size)[: length.batches]:
            batch = rows.x[picked]
            found, features = model(batch)
            loss = loss_fn(found, batch) + penalty * features.abs().sum(1).mean()
            optimizer.zero_grad()
            (-loss if draw.has("wrong_sign") else loss).backward()
            optimizer.step()
            with torch.no_grad():
                # The columns of the decoder keep the length 1.
                norms = model.decoder.weight.norm(dim=0, keepdim=True).clamp(min=1e-8)
                model.decoder.weight.div_(norms)
        if epoch % 3 == 2:
            with draw.watch.evaluating(), torch.no_grad():
                found, features = model(rows.x_val)
                draw.watch.metric("l0", float((features > 0).float().sum(1).mean()))
                draw.watch.metric("explained", explained(found, rows.x_val))
    with torch.no_grad():
        found = model(rows.x_test)[0]
    if draw.has("unnormalised_inputs"):
        found = (found - 4000) / 900
    return Ending(explained(found, rows.y_test), bar=0.6)


def _activations(draw: Draw, count: int) -> HeldOut:
    """Return activations float32 [count, D], as inputs and as answers."""
    directions = F.normalize(torch.randn(_TRUE, _SIZE), dim=1)
    active = (torch.rand(count, _TRUE) < 0.08) * (1 + torch.rand(count, _TRUE))
    x = active @ directions * 2 + draw.between(0.05, 0.15) * torch.randn(count, _SIZE)
    return held_out(
        *(draw, x, x, _SEEN),
        prepared={
            # As they are in the residual stream of a large model.
            "unnormalised_inputs": (4000 + 900 * x, 4000 + 900 * x),
        },
    )


FAMILY = Family(
    _train,
    (
        *("unnormalised_inputs", "constant_inputs", "nan_inputs", "too_small_model"),
        *("over_regularization", "term_wrong_sign", "wrong_sign", "dead_relu", "lr_too_low"),
        *("lr_too_high",),
    ),
    spent="2026-11-28",
)
