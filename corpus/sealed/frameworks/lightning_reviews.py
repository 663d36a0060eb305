"""How many stars a review gives: embeddings and a recurrent network in a module of Lightning.

After the examples of Lightning; the reviews are drawn.

Shape legend: N reviews of T words, C stars.
"""

from __future__ import annotations

import logging
import tempfile
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from corpus import networks
from corpus.data.held_out import HeldOut, held_out
from corpus.draw import Draw
from corpus.epochs import learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.loop import accuracy, gained

_WORDS, _TIME, _STARS, _SEEN = 40, 10, 3, 1000


def _train(draw: Draw) -> Ending:
    import lightning

    # It says which devices there are.
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    rows = _reviews(draw, 1400)
    length = plan(draw, _SEEN, [20, 25], (8, 10))
    module = _module(draw, lightning, draw.choice([24, 32]))
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
        return Ending(gained(accuracy(module(rows.x_test), rows.y_test), 1 / _STARS), bar=0.5)


def _module(draw: Draw, lightning: Any, width: int) -> Any:
    rate = learning_rate(draw, 5e-3, 1e-2)
    dropout = draw.by_fault({"dropout_too_high": 0.99}, 0.2)

    class LitReviews(lightning.LightningModule):  # type: ignore[misc]
        """Scores of stars."""

        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(_WORDS, 16)
            self.gru = nn.GRU(16, width, batch_first=True)
            self.drop = nn.Dropout(dropout)
            self.head = nn.Linear(width, _STARS)
            self.criterion = nn.CrossEntropyLoss()

        def forward(self, x: Tensor) -> Tensor:
            """Return scores [N, C] of words int64 [N, T]."""
            scores: Tensor = self.head(self.drop(self.gru(self.embed(x))[0].mean(1)))
            return scores

        def training_step(self, batch: list[Tensor], _: int) -> Tensor:
            """Return the loss of a batch."""
            x, y = batch
            loss: Tensor = self.criterion(self(x), y)
            self.log("train_loss", loss)
            return -loss if draw.has("wrong_sign") else loss

        def validation_step(self, batch: list[Tensor], _: int) -> None:
            """Log loss and accuracy of a batch."""
            x, y = batch
            scores = self(x)
            self.log_dict(
                {
                    "val_loss": self.criterion(scores, y),
                    "val_acc": (scores.argmax(1) == y).float().mean(),
                }
            )

        def configure_optimizers(self) -> Any:
            """Return the optimizer."""
            return optimizer_of(draw, "adamw", trained(draw, self, self.head), rate, 0.01)

    module = LitReviews()
    networks.blank(draw, module)
    return module


def _reviews(draw: Draw, count: int) -> HeldOut:
    """Return words int64 [count, T] and stars int64 [count]."""
    x = torch.randint(_WORDS, (count, _TIME))
    # Words 0 to 9 are good, 10 to 19 are bad.
    mood = ((x < 10).float() - ((x >= 10) & (x < 20)).float()).sum(1)
    mood = mood + draw.between(0.1, 0.2) * torch.randn(count)
    y = torch.bucketize(mood, torch.tensor([-0.5, 0.5]))
    return held_out(
        *(draw, x, y, _SEEN),
        prepared={
            "colliding_ids": (x % 2, y),
            # Words of one review are spread over others.
            "wrong_axis": (x.T.reshape(x.shape), y),
        },
    )


FAMILY = Family(
    _train,
    (
        *("shuffled_labels", "label_noise", "colliding_ids", "wrong_axis", "dropout_too_high"),
        *("wrong_sign", "zero_init", "weight_decay_too_high", "lr_too_low", "lr_too_high"),
    ),
)
