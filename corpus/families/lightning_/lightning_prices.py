"""Prices from categories and measures: embeddings of the categories, trained by Lightning.

After Guo and Berkhahn, "Entity embeddings of categorical variables", 2016.

Shape legend: N rows, K categorical columns, F numerical columns.
"""

from __future__ import annotations

import logging
import tempfile
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from corpus import networks
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import explained

Array = NDArray[Any]

_SIZES, _MEASURES = (12, 40, 7), 5
_OPTIMIZERS = {"Adam": (2e-3, 6e-3), "AdamW": (2e-3, 6e-3), "RMSprop": (1e-3, 3e-3)}


class Prices(nn.Module):
    """Embeddings of the categories beside the measures."""

    def __init__(self, width: int, *, normalised: bool) -> None:
        super().__init__()
        self.embed = nn.ModuleList(nn.Embedding(size, min(8, size // 2)) for size in _SIZES)
        inputs = sum(min(8, size // 2) for size in _SIZES) + _MEASURES
        norm = nn.BatchNorm1d(width) if normalised else nn.Identity()
        self.layers = nn.Sequential(
            *(nn.Linear(inputs, width), norm, nn.ReLU()),
            *(nn.Linear(width, width // 2), nn.ReLU(), nn.Linear(width // 2, 1)),
        )

    def forward(self, kinds: Tensor, measures: Tensor) -> Tensor:
        """Return prices [N, 1] of categories int64 [N, K] and measures [N, F]."""
        embedded = [embed(kinds[:, at]) for at, embed in enumerate(self.embed)]
        prices: Tensor = self.layers(torch.cat([*embedded, measures], 1))
        return prices


def _train(draw: Draw) -> Ending:
    import lightning

    # It says which devices there are.
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    kinds, measures, price = _rows(draw, 2400)
    held_out = [torch.tensor(one[1600:]) for one in (kinds, measures, price)]
    seen = [torch.tensor(one[:1600]) for one in _spoilt(draw, kinds, measures, price)]
    size, epochs = draw.choice([32, 64]), draw.whole(10, 20)
    draw.epoch = 1600 // size
    steps = epochs * draw.epoch
    draw.watch.expect(steps)
    loader = DataLoader(TensorDataset(*seen), size, shuffle=True, drop_last=True)
    validation = DataLoader(TensorDataset(*held_out), 400)
    module = _module(draw, lightning, steps)
    with tempfile.TemporaryDirectory() as folder:
        trainer = lightning.Trainer(
            max_epochs=epochs,
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            gradient_clip_val=draw.choice([None, 5.0]),
            callbacks=draw.watch.lightning(module),
            default_root_dir=folder,
        )
        trainer.fit(module, loader, validation if draw.chance(0.7) else None)
    module.eval()
    with torch.no_grad():
        return Ending(explained(module(*held_out[:2]), held_out[2]), bar=0.6)


def _module(draw: Draw, lightning: Any, steps: int) -> Any:
    name = draw.choice(sorted(_OPTIMIZERS))
    rate = draw.between(*_OPTIMIZERS[name])
    rate *= draw.by_fault({"lr_too_low": draw.extent(1e-5, 1e-3), "lr_too_high": 1e3}, 1.0)
    decay = draw.by_fault({"weight_decay_too_high": 3.0 / rate}, 0.0)
    if draw.concerns("weight_decay_too_high"):
        name = "AdamW"
    warmed, huber = draw.chance(0.5), draw.chance(0.4)

    sign = draw.by_fault({"wrong_sign": -1.0}, 1.0)

    class PriceModule(lightning.LightningModule):  # type: ignore[misc]
        """A network of prices, its loss and its optimizer."""

        def __init__(self) -> None:
            super().__init__()
            self.net = Prices(draw.choice([48, 96]), normalised=draw.chance(0.5))
            networks.spoil(draw, self.net)
            if draw.has("frozen_layers"):
                # The last layer was to be trained first, and it remained so.
                self.net.requires_grad_(requires_grad=False)
                self.net.layers[-1].requires_grad_()

        def forward(self, kinds: Tensor, measures: Tensor) -> Tensor:
            """Return the prices."""
            found: Tensor = self.net(kinds, measures)
            return found

        def training_step(self, batch: list[Tensor], _: int) -> Tensor:
            """Return the loss of a batch."""
            kinds, measures, wanted = batch
            found = self(kinds, measures)
            wanted = wanted[:, 0] if draw.has("wrong_broadcast") else wanted
            loss = sign * (F.smooth_l1_loss(found, wanted) if huber else F.mse_loss(found, wanted))
            self.log("train_loss", loss)
            return loss

        def validation_step(self, batch: list[Tensor], _: int) -> None:
            """Log the error of a batch."""
            kinds, measures, wanted = batch
            self.log("val_mae", F.l1_loss(self(kinds, measures), wanted))

        def configure_optimizers(self) -> Any:
            """Return an optimizer, with a schedule or without."""
            optimizer = getattr(torch.optim, name)(self.parameters(), lr=rate, weight_decay=decay)
            if not warmed:
                return optimizer
            schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps + 1)
            return [optimizer], [{"scheduler": schedule, "interval": "step"}]

    return PriceModule()


def _spoilt(draw: Draw, kinds: Array, measures: Array, price: Array) -> tuple[Array, Array, Array]:
    """Return the rows with the drawn fault of the data, if there is one."""
    if draw.has("colliding_ids"):
        # The categories of the training were numbered by their order of appearance in each batch.
        kinds = np.stack([draw.numpy.permutation(one) for one in kinds])
        kinds = kinds % np.array(_SIZES)
    if draw.has("misaligned_targets"):
        # A row was dropped from one of the tables.
        price = np.roll(price, 1, axis=0)
    if draw.has("unnormalised_targets"):
        price = 250000 + 80000 * price
    if draw.has("constant_inputs"):
        kinds, measures = np.zeros_like(kinds), np.zeros_like(measures)
    return kinds, measures, price


def _rows(draw: Draw, count: int) -> tuple[Array, Array, Array]:
    """Return categories int64 [N, K], measures float32 [N, F] and prices float32 [N, 1]."""
    source = draw.numpy
    kinds = np.stack([source.integers(0, size, count) for size in _SIZES], 1)
    measures = source.normal(size=(count, _MEASURES))
    levels = [source.normal(size=size) for size in _SIZES]
    price = sum(level[kinds[:, at]] for at, level in enumerate(levels))
    slopes = source.normal(size=(_SIZES[2], _MEASURES))[kinds[:, 2]]
    price = price + 0.6 * (slopes * measures).sum(1) + np.abs(measures[:, 0])
    price = (price - price.mean()) / price.std()
    price = price + draw.between(0.1, 0.3) * source.normal(size=count)
    return kinds, measures.astype(np.float32), price[:, None].astype(np.float32)


FAMILY = Family(
    _train,
    (
        *("colliding_ids", "misaligned_targets", "unnormalised_targets", "constant_inputs"),
        *("wrong_broadcast", "frozen_layers", "lr_too_low", "lr_too_high", "wrong_sign"),
        *("weight_decay_too_high", "zero_init"),
    ),
    spent="2026-11-26",
)
