"""Lightning's autoencoder with a trainer, evaluations and a logged loss."""

from __future__ import annotations

import logging
import tempfile
import warnings

import lightning
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.public.recipes.journal import Journal, steps
from corpus.data.bundled import digits

PIXELS, HIDDEN = 24 * 24, 512


class AutoEncoder(lightning.LightningModule):
    def __init__(self, journal: Journal) -> None:
        super().__init__()
        self.journal = journal
        self.encoder = nn.Sequential(nn.Linear(PIXELS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 3))
        self.decoder = nn.Sequential(nn.Linear(3, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, PIXELS))

    def _loss(self, batch: tuple[Tensor]) -> Tensor:
        x = batch[0].flatten(1)
        return F.mse_loss(self.decoder(self.encoder(x)), x)

    def training_step(self, batch: tuple[Tensor], _: int) -> Tensor:
        loss = self._loss(batch)
        self.log("train_loss", loss)
        self.journal.step(loss=loss.item())
        return loss

    def validation_step(self, batch: tuple[Tensor], _: int) -> None:
        self.log("val_loss", self._loss(batch))

    def on_validation_epoch_end(self) -> None:
        self.journal.evaluated(self.trainer.callback_metrics["val_loss"].item())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def main() -> None:
    warnings.simplefilter("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    lightning.seed_everything(0, verbose=False)
    images = digits(24)[0]
    loader = DataLoader(TensorDataset(images[:1536]), batch_size=256, shuffle=True)
    held_out = DataLoader(TensorDataset(images[1536:]), batch_size=261)
    model = AutoEncoder(Journal())
    with tempfile.TemporaryDirectory() as folder:
        trainer = lightning.Trainer(
            max_steps=steps(300),
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
            default_root_dir=folder,
        )
        trainer.fit(model, loader, held_out)
    model.journal.finish(model.state_dict().values())


if __name__ == "__main__":
    main()
