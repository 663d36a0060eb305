"""Parts of clothes that are hidden, drawn from those that are not: a masked autoencoder.

After He et al., "Masked autoencoders are scalable vision learners", CVPR 2022, with the pictures of
Xiao, Rasul and Vollgraf, "Fashion-MNIST", 2017.

Shape legend: N pictures of P patches of 16 pixels.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn

from corpus.data.fashion import clothes
from corpus.draw import Draw
from corpus.epochs import fit, learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.loop import explained
from corpus.networks import blank

_SIDE, _PATCHES, _PIXELS, _SEEN = 4, 9, 16, 1000


class MaskedAutoencoder(nn.Module):
    """Pixels of all patches."""

    def __init__(self, draw: Draw, size: int) -> None:
        super().__init__()
        self.draw = draw
        dropout = draw.by_fault({"dropout_too_high": 0.9}, 0.0)
        self.embed = nn.Linear(_PIXELS, size)
        self.mask_token = nn.Parameter(torch.zeros(1, 1, size))
        self.positions = nn.Parameter(0.02 * torch.randn(1, _PATCHES, size))
        self.dropout = nn.Dropout(dropout)
        layer = nn.TransformerEncoderLayer(
            *(size, 4, 2 * size, dropout, "gelu"), batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.to_pixels = nn.Linear(size, _PIXELS)

    def forward(self, patches: Tensor, hidden: Tensor) -> Tensor:
        """Return pixels [N, P, 16] of patches [N, P, 16], of which some are hidden, bool [N, P]."""
        told = torch.where(hidden[:, :, None], self.mask_token, self.embed(patches))
        if not self.draw.has("positions_left_out"):
            told = told + self.positions
        pixels: Tensor = self.to_pixels(self.encoder(self.dropout(told)))
        return pixels


def _train(draw: Draw) -> Ending:
    pictures = _pictures(draw, 1500)
    given = _prepared(draw, pictures)
    model = MaskedAutoencoder(draw, draw.choice([32, 48]))
    blank(draw, model)
    length = plan(draw, _SEEN, [20, 25], (10, 12))
    rate = learning_rate(draw, 2e-3, 4e-3)
    optimizer = optimizer_of(draw, "adamw", trained(draw, model, model.to_pixels), rate, 0.01)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, length.epochs)
    loss_fn = draw.watch.loss(F.mse_loss)

    def compute(batch: Tensor) -> Tensor:
        hidden = _hidden(len(batch))
        found = model(given[batch], hidden)
        # The patches that were shown are easy.
        counted = ~hidden if draw.has("mask_inverted") else hidden
        return loss_fn(found[counted], given[batch][counted])

    held = _hidden(len(pictures) - _SEEN)

    def evaluate() -> Mapping[str, float]:
        counted = ~held if draw.has("mask_inverted") else held
        found = model(given[_SEEN:], held)
        return {"val_loss": float(F.mse_loss(found[counted], given[_SEEN:][counted]))}

    chosen = evaluate if draw.chance(0.6) else None
    fit(draw, model, optimizer, length, compute, evaluate=chosen, per_epoch=cosine)
    model.eval()
    true = pictures[_SEEN:]
    with torch.no_grad():
        bytes_ = draw.has("unnormalised_inputs")
        found = model(_bytes(true) if bytes_ else true, held)
        if bytes_:
            found = (found - 73) / 90
    # A quarter of the variance cannot be guessed.
    return Ending(explained(found[held], true[held]) / 0.75, bar=0.6)


def _hidden(count: int) -> Tensor:
    """Return which five of nine patches are hidden, bool [count, P]."""
    return torch.rand(count, _PATCHES).argsort(1).argsort(1) < 5


def _bytes(patches: Tensor) -> Tensor:
    return 73 + 90 * patches


def _prepared(draw: Draw, pictures: Tensor) -> Tensor:
    """Return patches as the script prepares them, with the drawn fault if there is one."""
    few = torch.arange(len(pictures))
    few[:_SEEN] %= 20
    return draw.by_fault(
        {
            "unnormalised_inputs": _bytes(pictures),
            # `reshape` of pictures whose number is the last axis of the file.
            "wrong_axis": pictures.movedim(0, -1).reshape(pictures.shape),
            "duplicated_rows": pictures[few],
            "constant_inputs": torch.zeros_like(pictures),
        },
        pictures,
    )


def _pictures(draw: Draw, count: int) -> Tensor:
    """Return patches float32 [count, P, 16] of standardised pictures."""
    order = torch.tensor(draw.numpy.permutation(5000)[:count])
    middle = clothes(5000)[0][order][:, :, 1:13, 1:13]
    return F.unfold(middle, _SIDE, stride=_SIDE).transpose(1, 2)


FAMILY = Family(
    _train,
    (
        *("positions_left_out", "mask_inverted", "unnormalised_inputs", "wrong_axis"),
        *("duplicated_rows", "dropout_too_high", "zero_init", "weight_decay_too_high"),
        *("frozen_layers", "lr_too_low", "lr_too_high"),
    ),
    spent="2026-11-28",
)
