"""Digits by a small network of convolutions in a module of Lightning, with a rate that falls.

After the examples of Lightning, with the digits of Alpaydin and Kaynak in scikit-learn.

Shape legend: N pictures of 8 x 8 pixels.
"""

from __future__ import annotations

import logging
import tempfile
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from corpus import networks
from corpus.data.held_out import HeldOut, held_out
from corpus.draw import Draw
from corpus.epochs import learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.loop import accuracy, gained

_DIGITS, _SEEN = 10, 900


def _train(draw: Draw) -> Ending:
    import lightning

    # It says which devices there are.
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    rows = _digits(draw)
    length = plan(draw, _SEEN, [24, 30], (7, 9))
    module = _module(draw, lightning, draw.choice([8, 12]))
    with tempfile.TemporaryDirectory() as folder:
        trainer = lightning.Trainer(
            max_epochs=length.epochs,
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
            gradient_clip_val=1.0,
            callbacks=draw.watch.lightning(module),
            default_root_dir=folder,
        )
        trainer.fit(
            module,
            DataLoader(TensorDataset(rows.x, rows.y), length.size, shuffle=True, drop_last=True),
            DataLoader(TensorDataset(rows.x_val, rows.y_val), 100),
        )
    module.eval()
    with torch.no_grad():
        return Ending(gained(accuracy(module(rows.x_test), rows.y_test), 1 / _DIGITS), bar=0.7)


def _module(draw: Draw, lightning: Any, width: int) -> Any:
    rate = learning_rate(draw, 3e-3, 6e-3)
    dropout = draw.by_fault({"dropout_too_high": 0.98}, 0.1)
    fall = draw.by_fault({"scheduler_to_zero": 1e-3}, 0.8)

    class LitDigits(lightning.LightningModule):  # type: ignore[misc]
        """Log-probabilities of digits."""

        def __init__(self) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(1, width, 3, padding=1)
            self.conv2 = nn.Conv2d(width, 2 * width, 3, padding=1)
            self.drop = nn.Dropout(dropout)
            self.head = nn.Linear(2 * width * 4, _DIGITS)

        def forward(self, x: Tensor) -> Tensor:
            """Return log-probabilities [N, 10] of pictures float32 [N, 1, 8, 8]."""
            x = F.max_pool2d(F.relu(self.conv1(x)), 2)
            x = F.max_pool2d(F.relu(self.conv2(x)), 2)
            scores: Tensor = self.head(self.drop(x.flatten(1)))
            return scores.log_softmax(1)

        def training_step(self, batch: list[Tensor], _: int) -> Tensor:
            """Return the loss of a batch."""
            loss = F.nll_loss(self(batch[0]), batch[1])
            self.log("train_loss", loss)
            return -loss if draw.has("wrong_sign") else loss

        def validation_step(self, batch: list[Tensor], _: int) -> None:
            """Log loss and accuracy of a batch."""
            found = self(batch[0])
            self.log("val_loss", F.nll_loss(found, batch[1]))
            self.log("val_acc", (found.argmax(1) == batch[1]).float().mean())

        def configure_optimizers(self) -> Any:
            """Return the optimizer, and what lowers its rate after each epoch."""
            optimizer = optimizer_of(draw, "adam", trained(draw, self, self.head), rate)
            return [optimizer], [torch.optim.lr_scheduler.ExponentialLR(optimizer, fall)]

    module = LitDigits()
    networks.spoil(draw, module)
    return module


def _digits(draw: Draw) -> HeldOut:
    """Return pictures float32 [1300, 1, 8, 8] of values of 0 to 1, and digits int64 [1300]."""
    values, digits = load_digits(return_X_y=True)
    order = draw.numpy.permutation(len(values))[:1300]
    x = torch.tensor(values[order] / 16).float().reshape(-1, 1, 8, 8)
    return held_out(*(draw, x, torch.tensor(digits[order]), _SEEN))


FAMILY = Family(
    _train,
    (
        *("shuffled_labels", "label_noise", "constant_inputs", "misaligned_targets"),
        *("dropout_too_high", "scheduler_to_zero", "wrong_sign", "zero_init", "lr_too_low"),
        *("lr_too_high",),
    ),
    spent="2026-11-28",
)
