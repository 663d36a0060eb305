"""How many bicycles are hired in an hour: dense layers of the hour and the weather, by Lightning.

After Fanaee-T and Gama, "Event labeling combining ensemble detectors and background knowledge",
Progress in Artificial Intelligence 2014; the city is drawn.

Shape legend: N hours, F features.
"""

from __future__ import annotations

import logging
import math
import tempfile
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from corpus.draw import Draw
from corpus.epochs import learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.loop import explained

_FEATURES, _SEEN = 6, 1200


def _train(draw: Draw) -> Ending:
    import lightning

    # It says which devices there are.
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    x, y = _hours(draw, 1700)
    seen, known = _spoilt(draw, x[:_SEEN], y[:_SEEN])
    length = plan(draw, _SEEN, [24, 40], (11, 14))
    module = _module(draw, lightning, draw.choice([32, 48]))
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
            DataLoader(TensorDataset(seen, known), length.size, shuffle=True, drop_last=True),
            DataLoader(TensorDataset(x[_SEEN:], y[_SEEN:]), 100),
        )
    module.eval()
    with torch.no_grad():
        return Ending(explained(module(x[_SEEN:]), y[_SEEN:]), bar=0.6)


def _module(draw: Draw, lightning: Any, width: int) -> Any:
    rate = learning_rate(draw, 4e-3, 8e-3)
    dropout = draw.by_fault({"dropout_too_high": 0.98}, 0.0)
    criterion = nn.SmoothL1Loss()

    class Bicycles(lightning.LightningModule):  # type: ignore[misc]
        """Standardised logarithms [N, 1] of hires, of hours [N, F]."""

        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(
                *(nn.Linear(_FEATURES, width), nn.SiLU(), nn.Dropout(dropout)),
                *(nn.Linear(width, width), nn.SiLU()),
            )
            self.head = nn.Linear(width, 1)

        def forward(self, x: Tensor) -> Tensor:
            """Return the logarithms."""
            found: Tensor = self.head(self.body(x))
            return found.sigmoid() if draw.has("wrong_output_activation") else found

        def training_step(self, batch: list[Tensor], _: int) -> Tensor:
            """Return the loss of a batch."""
            x, y = batch
            found = self(x)
            if draw.has("detached_graph"):
                found = self.head(self.body(x).detach() * 0)
            loss: Tensor = criterion(found[:, 0] if draw.has("wrong_broadcast") else found, y)
            self.log("train_loss", loss)
            return -loss if draw.has("wrong_sign") else loss

        def validation_step(self, batch: list[Tensor], _: int) -> None:
            """Log the loss of a batch."""
            x, y = batch
            self.log("val_loss", criterion(self(x), y))

        def configure_optimizers(self) -> dict[str, Any]:
            """Return the optimizer, and a rate that falls after each epoch."""
            weights = trained(draw, self, self.head)
            optimizer = optimizer_of(draw, "adamw", weights, rate, 1e-2)
            rule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.8)
            unit = "step" if draw.has("scheduler_per_batch") else "epoch"
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": rule, "interval": unit}}

    return Bicycles()


def _spoilt(draw: Draw, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return hours with the drawn fault, if there is one."""
    # The hires of the hour, counted by the same docks under another name.
    leak = torch.cat([x[:, :-1], y + 0.02 * torch.randn_like(y)], 1)
    few = torch.arange(len(x)) % 14
    return draw.by_fault(
        {
            "target_leak": (leak, y),
            # Summer time: all hours are those of half a day later.
            "clock_shifted": (torch.cat([-x[:, :2], x[:, 2:]], 1), y),
            "duplicated_rows": (x[few], y[few]),
            # Hires, and not their logarithms.
            "unnormalised_targets": (x, (4 + 2 * y).exp() * 30),
            "nan_inputs": (torch.where(torch.rand_like(x) < 0.002, torch.nan, x), y),
            "misaligned_targets": (x, y.roll(6, 0)),
        },
        (x, y),
    )


def _hours(draw: Draw, count: int) -> tuple[Tensor, Tensor]:
    """Return features float32 [count, F] and standardised logarithms of hires [count, 1]."""
    hour = 2 * math.pi * torch.rand(count)
    warm, rain, idle, other = torch.randn(4, count)
    free = (idle > 0).float()
    rush = 1.4 * torch.cos(hour - 1) + (1 - free) * torch.cos(2 * hour) - free * torch.sin(hour)
    y = rush + 0.6 * warm - 0.4 * warm.square() - 0.5 * rain.clamp(min=0)
    y = y + draw.between(0.15, 0.3) * torch.randn(count)
    x = torch.stack([hour.sin(), hour.cos(), warm, rain, free * 2 - 1, other], 1)
    return x, ((y - y.mean()) / y.std())[:, None]


FAMILY = Family(
    _train,
    (
        *("clock_shifted", "target_leak", "wrong_output_activation", "duplicated_rows"),
        *("wrong_broadcast", "unnormalised_targets", "nan_inputs", "misaligned_targets"),
        *("scheduler_per_batch", "batch_too_large", "detached_graph"),
    ),
    spent="2026-11-27",
)
