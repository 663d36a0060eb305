"""Roads in pictures from above, pixel by pixel: a network and its loss in a module of Lightning.

After Mnih and Hinton, "Learning to detect roads in high-resolution aerial images", ECCV 2010, with
the loss of Milletari, Navab and Ahmadi, 3DV 2016; the pictures are drawn.

Shape legend: N pictures of 12 x 12 pixels.
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
from corpus.data.held_out import HeldOut, held_out
from corpus.draw import Draw
from corpus.epochs import learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family

_SIDE, _SEEN = 12, 450


def _train(draw: Draw) -> Ending:
    import lightning

    # It says which devices there are.
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    rows = _pictures(draw, 700)
    length = plan(draw, _SEEN, [15, 18], (6, 8))
    module = _module(draw, lightning, draw.choice([10, 14]))
    with tempfile.TemporaryDirectory() as folder:
        trainer = lightning.Trainer(
            max_epochs=length.epochs,
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
            accumulate_grad_batches=draw.choice([1, 2]),
            callbacks=draw.watch.lightning(module),
            default_root_dir=folder,
        )
        draw.accumulated = trainer.accumulate_grad_batches
        trainer.fit(
            module,
            DataLoader(TensorDataset(rows.x, rows.y), length.size, shuffle=True, drop_last=True),
            DataLoader(TensorDataset(rows.x_val, rows.y_val), 50),
        )
    module.eval()
    with torch.no_grad():
        return Ending(_overlap(module(rows.x_test), rows.y_test), bar=0.55)


def _module(draw: Draw, lightning: Any, width: int) -> Any:
    rate = learning_rate(draw, 4e-3, 8e-3)

    class Roads(lightning.LightningModule):  # type: ignore[misc]
        """Logits [N, 1, 12, 12] of pictures [N, 3, 12, 12]."""

        def __init__(self) -> None:
            super().__init__()
            self.down = nn.Conv2d(3, width, 3, padding=1)
            self.deep = nn.Conv2d(width, 2 * width, 3, padding=1)
            self.up = nn.Conv2d(3 * width, width, 3, padding=1)
            self.head = nn.Conv2d(width, 1, 1)

        def forward(self, x: Tensor) -> Tensor:
            """Return the logits."""
            fine = F.relu(self.down(x))
            coarse = F.relu(self.deep(F.max_pool2d(fine, 2)))
            coarse = F.interpolate(coarse, scale_factor=2.0)
            logits: Tensor = self.head(F.relu(self.up(torch.cat([fine, coarse], 1))))
            if draw.has("relu_before_loss"):
                logits = logits.relu()
            return logits

        def training_step(self, batch: list[Tensor], _: int) -> Tensor:
            """Return the loss of a batch."""
            loss = self._loss(*batch)
            self.log("train_loss", loss)
            return -loss if draw.has("wrong_sign") else loss

        def validation_step(self, batch: list[Tensor], _: int) -> None:
            """Log the loss and the overlap of a batch."""
            self.log("val_loss", self._loss(*batch))
            self.log("val_iou", _overlap(self(batch[0]), batch[1]))

        def _loss(self, x: Tensor, roads: Tensor) -> Tensor:
            logits: Tensor = self(x)
            share = logits.sigmoid()
            overlap = (2 * (share * roads).sum() + 1) / (share.sum() + roads.sum() + 1)
            return F.binary_cross_entropy_with_logits(logits, roads) + 1 - overlap

        def configure_optimizers(self) -> Any:
            """Return the optimizer."""
            return optimizer_of(draw, "adam", trained(draw, self, self.head), rate)

    module = Roads()
    networks.spoil(draw, module)
    return module


def _overlap(logits: Tensor, roads: Tensor) -> float:
    """Return the intersection over the union of all roads."""
    found, true = logits > 0, roads > 0.5
    return float((found & true).sum() / (found | true).sum().clamp(min=1))


def _pictures(draw: Draw, count: int) -> HeldOut:
    """Return pictures float32 [count, 3, 12, 12] and roads float32 [count, 1, 12, 12]."""
    place = torch.arange(_SIDE) - (_SIDE - 1) / 2

    def lines(wide: float) -> Tensor:
        turn = 3.14 * torch.rand(count, 1, 1)
        away = 5 * (torch.rand(count, 1, 1) - 0.5)
        return (place * turn.cos() + place[:, None] * turn.sin() - away).abs() < wide

    road, river = lines(1.1), lines(1.1)
    green = F.avg_pool2d(torch.randn(count, 1, _SIDE + 2, _SIDE + 2), 3, 1)[:, 0]
    grey, blue = road.float(), (river & ~road).float()
    x = torch.stack([grey, green + grey + 0.3 * blue, grey + 1.2 * blue], 1)
    x = x + draw.between(0.25, 0.4) * torch.randn(x.shape)
    y = grey[:, None]
    return held_out(
        *(draw, x, y, _SEEN),
        prepared={
            # Masks of other tiles: files without leading zeros are sorted as text.
            "swapped_pairs": (x, y[torch.randperm(count)]),
            # Masks are stored with their columns first.
            "swapped_coordinates": (x, y.transpose(2, 3)),
            "unnormalised_inputs": (900 + 400 * x, y),
        },
    )


FAMILY = Family(
    _train,
    (
        *("swapped_pairs", "swapped_coordinates", "unnormalised_inputs", "nan_inputs"),
        *("relu_before_loss", "wrong_sign", "dead_relu", "zero_init", "not_in_optimizer"),
        *("lr_too_low", "lr_too_high"),
    ),
    spent="2026-11-28",
)
