"""What a person does, from the sensors of a phone: a dilated network, trained by Lightning.

After Bai, Kolter and Koltun, "An empirical evaluation of generic convolutional and recurrent
networks for sequence modeling", 2018.

Shape legend: N recordings, 3 sensors, T times, 5 activities.
"""

from __future__ import annotations

import logging
import math
import tempfile
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from corpus import networks
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import accuracy, gained

_TIME, _KINDS, _SEEN = 40, 5, 700


def _train(draw: Draw) -> Ending:
    import lightning

    # It says which devices there are.
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    x, y = _recordings(draw, 1000)
    seen, known = _spoilt(draw, x[:_SEEN], y[:_SEEN])
    size, epochs = draw.choice([25, 35]), draw.whole(7, 10)
    draw.epoch = len(seen) // size
    draw.watch.expect(epochs * draw.epoch)
    module = _module(draw, lightning, epochs * draw.epoch)
    with tempfile.TemporaryDirectory() as folder:
        trainer = lightning.Trainer(
            max_epochs=epochs,
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
            DataLoader(TensorDataset(seen, known), size, shuffle=True, drop_last=True),
            DataLoader(TensorDataset(x[_SEEN:], y[_SEEN:]), 100),
        )
    module.eval()
    with torch.no_grad():
        return Ending(gained(accuracy(module(x[_SEEN:]), y[_SEEN:]), 1 / _KINDS), bar=0.6)


def _module(draw: Draw, lightning: Any, steps: int) -> Any:
    rate = draw.between(4e-3, 8e-3)
    rate *= draw.by_fault({"lr_too_low": draw.extent(1e-5, 1e-4)}, 1.0)
    width = draw.choice([16, 24])
    dropout = draw.by_fault({"dropout_too_high": 0.98}, draw.choice([0.0, 0.1]))
    if draw.has("scheduler_to_zero"):
        # The steps of an epoch, and not of all.
        steps = max(4, draw.epoch // 4)

    class Activities(lightning.LightningModule):  # type: ignore[misc]
        """Scores [N, 5] of recordings [N, 3, T]."""

        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(
                *(nn.Conv1d(3, width, 3, padding=1), nn.ReLU()),
                *(nn.Conv1d(width, width, 3, padding=2, dilation=2), nn.ReLU()),
                *(nn.Conv1d(width, width, 3, padding=4, dilation=4), nn.ReLU()),
            )
            self.head = nn.Sequential(nn.Dropout(dropout), nn.Linear(2 * width, _KINDS))
            networks.spoil(draw, self)

        def forward(self, x: Tensor) -> Tensor:
            """Return the scores."""
            inner = self.body(x)
            # The mean of the recordings, and not of the times, is the same for all.
            mean = inner.mean(0, keepdim=True) if draw.has("pool_wrong_axis") else inner
            pooled = torch.cat([mean.mean(2), mean.amax(2)], 1)
            scores: Tensor = self.head(pooled.expand(len(x), -1))
            return scores

        def training_step(self, batch: list[Tensor], _: int) -> Tensor:
            """Return the loss of a batch."""
            x, y = batch
            scores = self(x)
            loss = F.cross_entropy(scores, y)
            self.log("train_loss", loss)
            return -loss if draw.has("wrong_sign") else loss

        def validation_step(self, batch: list[Tensor], _: int) -> None:
            """Log the loss and the accuracy of a batch."""
            x, y = batch
            scores = self(x)
            self.log("val_loss", F.cross_entropy(scores, y))
            self.log("val_acc", accuracy(scores, y))

        def configure_optimizers(self) -> dict[str, Any]:
            """Return the optimizer, and a rate that rises and falls in all steps."""
            optimizer = torch.optim.AdamW(self.parameters(), lr=rate)
            rule = torch.optim.lr_scheduler.LambdaLR(
                optimizer, lambda step: math.sin(math.pi * min((step + 1) / (steps + 1), 1.0))
            )
            return {
                "optimizer": optimizer,
                "lr_scheduler": {"scheduler": rule, "interval": "step"},
            }

    return Activities()


def _spoilt(draw: Draw, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return recordings with the drawn fault, if there is one."""
    if draw.has("shuffled_labels"):
        return x, y[torch.randperm(len(y))]
    if draw.has("off_by_one"):
        return x, (y + 1) % _KINDS
    if draw.has("time_shuffled"):
        return x[:, :, torch.randperm(_TIME)], y
    if draw.has("wrong_axis"):
        # The file has times before sensors.
        return x.transpose(1, 2).reshape(x.shape), y
    if draw.has("constant_inputs"):
        return torch.zeros_like(x), y
    return x, y


def _recordings(draw: Draw, count: int) -> tuple[Tensor, Tensor]:
    """Return recordings float32 [count, 3, T] and activities int64 [count]."""
    y = torch.randint(_KINDS, (count,))
    pace = torch.linspace(0.25, 1.3, _KINDS)[y] * (1 + 0.05 * torch.randn(count))
    phase = 2 * math.pi * torch.rand(count, 3, 1)
    swing = torch.sin(pace[:, None, None] * torch.arange(_TIME) + phase)
    swing = swing * (0.5 + torch.rand(count, 3, 1))
    return swing + draw.between(0.2, 0.4) * torch.randn(count, 3, _TIME), y


FAMILY = Family(
    _train,
    (
        *("pool_wrong_axis", "time_shuffled", "wrong_axis"),
        *("scheduler_to_zero", "shuffled_labels", "off_by_one", "constant_inputs"),
        *("dropout_too_high", "lr_too_low", "wrong_sign", "zero_init"),
    ),
    spent="2026-11-27",
)
