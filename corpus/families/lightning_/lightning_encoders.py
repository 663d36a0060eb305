"""Clothes in a few numbers, and drawn again: the autoencoder that introduces Lightning.

After the first page of the documentation of Lightning, with the pictures of Xiao, Rasul and
Vollgraf, "Fashion-MNIST", 2017.

Shape legend: N pictures of 196 pixels.
"""

from __future__ import annotations

import logging
import tempfile
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from corpus import networks
from corpus.data.fashion import clothes
from corpus.data.held_out import HeldOut, held_out
from corpus.draw import Draw
from corpus.epochs import learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.loop import explained

_PIXELS, _SEEN = 196, 1200


def _train(draw: Draw) -> Ending:
    import lightning

    # It says which devices there are.
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    rows = _pictures(draw)
    length = plan(draw, _SEEN, [24, 30], (8, 10))
    module = _module(draw, lightning, draw.choice([48, 64]))
    with tempfile.TemporaryDirectory() as folder:
        trainer = lightning.Trainer(
            max_epochs=length.epochs,
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
            callbacks=draw.watch.lightning(module),
            default_root_dir=folder,
        )
        trainer.fit(
            module,
            DataLoader(TensorDataset(rows.x), length.size, shuffle=True, drop_last=True),
            DataLoader(TensorDataset(rows.x_val), 100),
        )
    module.eval()
    with torch.no_grad():
        found = module.decoder(module.encoder(rows.x_test))
    return Ending(explained(found, rows.y_test), bar=0.5)


def _module(draw: Draw, lightning: Any, width: int) -> Any:
    rate = learning_rate(draw, 1e-3, 2e-3)
    code = draw.by_fault({"too_small_model": 1}, 12)
    # Pixels are standardised, and not between 0 and 1.
    last: nn.Module = nn.Sigmoid() if draw.has("wrong_output_activation") else nn.Identity()

    class LitAutoEncoder(lightning.LightningModule):  # type: ignore[misc]
        """An encoder and a decoder of pictures float32 [N, 196]."""

        def __init__(self) -> None:
            super().__init__()
            self.encoder = nn.Sequential(
                nn.Linear(_PIXELS, width), nn.ReLU(), nn.Linear(width, code)
            )
            self.head = nn.Linear(width, _PIXELS)
            self.decoder = nn.Sequential(nn.Linear(code, width), nn.ReLU(), self.head, last)

        def training_step(self, batch: list[Tensor], _: int) -> Tensor:
            """Return the loss of a batch."""
            loss = self._loss(batch[0])
            self.log("train_loss", loss)
            return -loss if draw.has("wrong_sign") else loss

        def validation_step(self, batch: list[Tensor], _: int) -> None:
            """Log the loss of a batch."""
            self.log("val_loss", self._loss(batch[0]))

        def _loss(self, x: Tensor) -> Tensor:
            return F.mse_loss(self.decoder(self.encoder(x)), x)

        def configure_optimizers(self) -> Any:
            """Return the optimizer."""
            return optimizer_of(draw, "adam", trained(draw, self, self.head), rate)

    module = LitAutoEncoder()
    networks.spoil(draw, module)
    return module


def _pictures(draw: Draw) -> HeldOut:
    """Return standardised pictures float32 [1700, 196], as inputs and as answers."""
    order = torch.tensor(draw.numpy.permutation(5000)[:1700])
    x = clothes(5000)[0][order].flatten(1)
    return held_out(
        *(draw, x, x, _SEEN),
        prepared={
            # The number of the picture is the last axis of the file.
            "wrong_axis": (x.T.reshape(x.shape), x),
        },
    )


FAMILY = Family(
    _train,
    (
        *("wrong_axis", "nan_inputs", "constant_inputs", "too_small_model"),
        *("wrong_output_activation", "wrong_sign", "dead_relu", "zero_init", "wrong_parameters"),
        *("lr_too_low", "lr_too_high"),
    ),
    spent="2026-11-28",
)
