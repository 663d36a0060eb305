"""Tumours, benign or not, by attention between the columns of a table, trained by Lightning.

After Gorishniy et al., "Revisiting deep learning models for tabular data", NeurIPS 2021 (the
FT-Transformer).

Shape legend: N rows, F columns, E size of a token.
"""

from __future__ import annotations

import logging
import tempfile
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from sklearn import datasets
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from corpus import networks
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import accuracy, gained

_COLUMNS, _KEPT = 10, 380


class Columns(nn.Module):
    """A token of each column, attention between them, and scores of the first token."""

    def __init__(self, size: int, dropout: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(0.3 * torch.randn(_COLUMNS, size))
        self.bias = nn.Parameter(0.3 * torch.randn(_COLUMNS + 1, size))
        self.attention = nn.TransformerEncoderLayer(
            size, 4, 2 * size, dropout, batch_first=True, norm_first=True
        )
        self.head = nn.Sequential(nn.LayerNorm(size), nn.ReLU(), nn.Linear(size, 2))

    def forward(self, x: Tensor) -> Tensor:
        """Return scores [N, 2] of rows [N, F]."""
        tokens = F.pad(x[:, :, None] * self.weight, (0, 0, 1, 0)) + self.bias
        scores: Tensor = self.head(self.attention(tokens)[:, 0])
        return scores


def _train(draw: Draw) -> Ending:
    import lightning

    # It says which devices there are.
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    x, y = _rows(draw)
    seen, known = _spoilt(draw, x[:_KEPT], y[:_KEPT])
    size, epochs = draw.choice([19, 38]), draw.whole(16, 26)
    draw.epoch = max(1, len(seen) // size)
    draw.watch.expect(epochs * draw.epoch)
    drop_last = len(seen) >= size
    loader = DataLoader(TensorDataset(seen, known), size, shuffle=True, drop_last=drop_last)
    validation = DataLoader(TensorDataset(x[_KEPT:], y[_KEPT:]), 100)
    module = _module(draw, lightning)
    with tempfile.TemporaryDirectory() as folder:
        trainer = lightning.Trainer(
            max_epochs=epochs,
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            gradient_clip_val=1e-9 if draw.has("clip_too_small") else 1.0,
            callbacks=draw.watch.lightning(module),
            default_root_dir=folder,
        )
        trainer.fit(module, loader, validation)
    module.eval()
    with torch.no_grad():
        return Ending(gained(accuracy(module(x[_KEPT:]), y[_KEPT:]), 0.5), bar=0.6)


def _module(draw: Draw, lightning: Any) -> Any:
    rate = draw.between(0.02, 0.04)
    rate *= draw.by_fault({"lr_too_low": draw.extent(1e-6, 1e-5), "lr_too_high": 1e4}, 1.0)
    dropout = 0.99 if draw.has("dropout_too_high") else draw.choice([0.0, 0.1])

    class Tumours(lightning.LightningModule):  # type: ignore[misc]
        """The network, its loss and its optimizer."""

        def __init__(self) -> None:
            super().__init__()
            self.net = Columns(draw.choice([16, 24]), dropout)
            networks.spoil(draw, self.net)

        def forward(self, x: Tensor) -> Tensor:
            """Return the scores."""
            found: Tensor = self.net(x)
            return found

        def training_step(self, batch: list[Tensor], _: int) -> Tensor:
            """Return the loss of a batch."""
            x, y = batch
            known = F.log_softmax(self.net(x), dim=1)
            loss = F.nll_loss(-known if draw.has("wrong_sign") else known, y)
            self.log("loss/train", loss)
            return loss

        def validation_step(self, batch: list[Tensor], _: int) -> None:
            """Log the accuracy of a batch."""
            x, y = batch
            self.log("accuracy/valid", (self(x).argmax(1) == y).float().mean())

        def configure_optimizers(self) -> Any:
            """Return the optimizer."""
            return torch.optim.SGD(self.net.parameters(), lr=rate, momentum=0.9)

    return Tumours()


def _spoilt(draw: Draw, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return the rows with the drawn fault, if there is one."""
    if draw.has("shuffled_labels"):
        return x, y[torch.randperm(len(y))]
    if draw.has("single_label"):
        # The table was sorted before it was split.
        return x[y == 1], y[y == 1]
    if draw.has("constant_inputs"):
        return torch.zeros_like(x), y
    return x, y


def _rows(draw: Draw) -> tuple[Tensor, Tensor]:
    """Return rows float32 [569, F] and classes int64 [569], in a random order."""
    x, y = datasets.load_breast_cancer(return_X_y=True)
    order = draw.numpy.permutation(len(y))
    x = ((x - x.mean(0)) / x.std(0))[order, :_COLUMNS]
    if draw.has("unnormalised_inputs"):
        x = 1e5 * x + 1e6
    return torch.tensor(x, dtype=torch.float32), torch.tensor(y[order])


FAMILY = Family(
    _train,
    (
        *("shuffled_labels", "single_label", "constant_inputs", "unnormalised_inputs"),
        *("lr_too_low", "lr_too_high", "dropout_too_high", "clip_too_small", "wrong_sign"),
    ),
    spent="2026-11-27",
)
