"""A module that Lightning's command line trains."""

from __future__ import annotations

import torch
from lightning.pytorch import LightningDataModule, LightningModule
from lightning.pytorch.cli import LightningCLI
from torch import Tensor, nn
from torch.utils.data import DataLoader

from tests.libraries.scripts.printed import printed
from tests.libraries.scripts.tokens import Sequences


class Classifier(LightningModule):
    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Embedding(40, 16),
            nn.Flatten(),
            nn.Linear(128, width),
            nn.ReLU(),
            nn.Linear(width, 3),
        )
        self.losses: list[float] = []

    def forward(self, tokens: Tensor) -> Tensor:
        out: Tensor = self.net(tokens)
        return out

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> Tensor:
        loss = nn.functional.cross_entropy(self(batch["input_ids"]), batch["labels"])
        self.losses.append(loss.item())
        return loss

    def validation_step(self, batch: dict[str, Tensor], batch_idx: int) -> None:
        self.log("val_loss", nn.functional.cross_entropy(self(batch["input_ids"]), batch["labels"]))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=3e-3)


class Data(LightningDataModule):
    def train_dataloader(self) -> DataLoader[dict[str, Tensor]]:
        return DataLoader(Sequences(512, 1), batch_size=16, shuffle=True)

    def val_dataloader(self) -> DataLoader[dict[str, Tensor]]:
        return DataLoader(Sequences(64, 2), batch_size=64)


def main() -> None:
    cli = LightningCLI(
        Classifier,
        Data,
        seed_everything_default=0,
        trainer_defaults={
            "max_epochs": 3,
            "accelerator": "cpu",
            "logger": False,
            "enable_progress_bar": False,
        },
    )
    cli.trainer.save_checkpoint("saved.ckpt", weights_only=True)
    printed(cli.model, cli.model.losses)


if __name__ == "__main__":
    main()
