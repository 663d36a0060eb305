"""Small Lightning modules and a quiet trainer, with a hook or without."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (as everybody calls it)
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics import MeanMetric

__all__ = ["Adversaries", "Classifier", "loader", "trainer"]

BATCHES = 4


def loader(seed: int = 0) -> DataLoader[Any]:
    """Return a loader of 4 batches of 8."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(8 * BATCHES, 6, generator=generator)
    return DataLoader(
        TensorDataset(x, torch.randint(0, 3, (8 * BATCHES,), generator=generator)), batch_size=8
    )


def trainer(folder: Path, *callbacks: Any, **arguments: Any) -> Trainer:
    """Return a quiet trainer that writes only to a folder."""
    quiet: dict[str, Any] = dict.fromkeys(
        ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False
    )
    defaults = {"max_epochs": 1, "accelerator": "cpu", "devices": 1, "default_root_dir": folder}
    return Trainer(**{**quiet, **defaults, **arguments}, callbacks=list(callbacks))


class Classifier(LightningModule):
    """Calls a submodule in its steps instead of its own forward, as is common."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(7)
        self.net = nn.Sequential(
            nn.Linear(6, 8),
            nn.BatchNorm1d(8),
            nn.ReLU(inplace=True),
            nn.Dropout(0.2),
            nn.Linear(8, 3),
        )
        self.mean = MeanMetric()
        # Values seen in the steps, for the tests.
        self.losses: list[float] = []
        self.gradients: list[dict[str, Tensor]] = []

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.net(x)
        return out

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> dict[str, Tensor]:
        x, y = batch
        logits = self.net(x)
        loss = F.cross_entropy(logits, y)
        self.losses.append(loss.item())
        self.log("accuracy", (logits.argmax(1) == y).float().mean(), on_step=True)
        self.log_dict({"batch": float(batch_idx), "twice": 2 * loss})
        return {"loss": loss, "logits": logits.detach()}

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        x, y = batch
        loss = F.cross_entropy(self.net(x), y)
        self.log("val_loss", loss)
        self.mean.update(float(batch_idx))
        self.log("val_mean", self.mean)
        return loss

    test_step = validation_step

    def predict_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        return self(batch[0]).argmax(1)  # type: ignore[no-any-return]

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.01)

    def optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        super().optimizer_step(*args, **kwargs)
        # Adam does not modify the gradients it consumes.
        named = self.named_parameters()
        self.gradients.append({k: p.grad.clone() for k, p in named if p.grad is not None})


class Adversaries(LightningModule):
    """A GAN with two manually called optimizers."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(7)
        self.automatic_optimization = False
        self.makes = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 6))
        self.judges = nn.Sequential(nn.Linear(6, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))
        self.seen: list[dict[str, Tensor]] = []
        self.losses: list[list[float]] = []

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        real = batch[0]
        makes, judges = self.optimizers()  # type: ignore[attr-defined]
        made = self.makes(torch.randn(8, 2))
        first = self._loss(self.judges(real), 1.0) + self._loss(self.judges(made.detach()), 0.0)
        judges.zero_grad()
        self.manual_backward(first)
        seen = self._gradients("judges")
        judges.step()
        second = self._loss(self.judges(made), 1.0)
        makes.zero_grad()
        self.manual_backward(second)
        self.seen.append(seen | self._gradients("makes"))
        makes.step()
        self.losses.append([first.item(), second.item()])
        self.log("late", float(batch_idx))

    def _loss(self, logits: Tensor, label: float) -> Tensor:
        return F.binary_cross_entropy_with_logits(logits, torch.full_like(logits, label))

    def _gradients(self, part: str) -> dict[str, Tensor]:
        named = self.named_parameters()
        return {
            name: parameter.grad.clone()
            for name, parameter in named
            if name.startswith(part) and parameter.grad is not None
        }

    def configure_optimizers(self) -> list[torch.optim.Optimizer]:
        return [torch.optim.Adam(one.parameters(), lr=0.01) for one in (self.makes, self.judges)]
