"""Kinds that were never seen, from five examples of each: distances to their means, by Lightning.

After Snell, Swersky and Zemel, "Prototypical networks for few-shot learning", NeurIPS 2017.

Shape legend: K kinds, S examples and Q questions of each, F features.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset

from corpus import networks
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import gained

_FEATURES, _KINDS, _EXAMPLES, _QUESTIONS = 30, 5, 5, 8


class World:
    """Kinds that differ in six hidden numbers, and examples that differ in 24 others.

    Args:
        count: number of kinds.
        noise: standard deviation of the examples' hidden numbers.
    """

    def __init__(self, count: int, noise: float) -> None:
        self.means, self.noise = torch.randn(count, 6), noise
        self.turn = torch.linalg.qr(torch.randn(_FEATURES, _FEATURES))[0]

    def episode(self, first: int, last: int) -> Tensor:
        """Return rows float32 [K, S + Q, F] of kinds from ``first`` to before ``last``."""
        kinds = first + torch.randperm(last - first)[:_KINDS]
        count = _EXAMPLES + _QUESTIONS
        mean = self.means[kinds][:, None]
        inner = mean + self.noise * torch.randn(_KINDS, count, 6)
        other = 3 * torch.randn(_KINDS, count, _FEATURES - 6)
        rows: Tensor = torch.cat([inner, other], 2) @ self.turn
        return rows


class Episodes(IterableDataset[Tensor]):
    """Episodes of an epoch, with the drawn fault if there is one."""

    def __init__(self, draw: Draw, world: World, count: int) -> None:
        super().__init__()
        self.draw, self.world, self.count = draw, world, count

    def __iter__(self) -> Iterator[Tensor]:
        """Yield rows [K, S + Q, F]."""
        for _ in range(self.count):
            rows = self.world.episode(0, 60)
            if self.draw.has("shuffled_labels"):
                rows = rows.flatten(0, 1)[torch.randperm(rows[..., 0].numel())].view_as(rows)
            if self.draw.has("constant_inputs"):
                rows = torch.zeros_like(rows)
            if self.draw.has("support_misaligned"):
                # The examples were put in another order of kinds than the questions.
                rows[:, :_EXAMPLES] = rows[:, :_EXAMPLES].roll(1, 0)
            yield rows


def _train(draw: Draw) -> Ending:
    import lightning

    # It says which devices there are.
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    world = World(100, draw.between(0.2, 0.4))
    count, epochs = draw.choice([40, 50]), draw.whole(10, 14)
    draw.epoch = count
    draw.watch.expect(epochs * count)
    module = _module(draw, lightning, world)
    with tempfile.TemporaryDirectory() as folder:
        trainer = lightning.Trainer(
            max_epochs=epochs,
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            callbacks=draw.watch.lightning(module),
            default_root_dir=folder,
        )
        trainer.fit(module, DataLoader(Episodes(draw, world, count), None))
    with torch.no_grad():
        rows = [world.episode(60, 100) for _ in range(60)]
        right = torch.stack([module.right(one) for one in rows]).mean()
    return Ending(gained(float(right), 1 / _KINDS), bar=0.5)


def _module(draw: Draw, lightning: Any, world: World) -> Any:
    rate = draw.between(2e-3, 4e-3)
    rate *= draw.by_fault({"lr_too_low": draw.extent(1e-6, 1e-5), "lr_too_high": 5000.0}, 1.0)
    width = draw.choice([48, 64])

    class Prototypes(lightning.LightningModule):  # type: ignore[misc]
        """Embeddings, and the distances of questions to the means of the examples."""

        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Linear(_FEATURES, width), nn.ReLU(), nn.Linear(width, 12))
            networks.spoil(draw, self.body)

        def forward(self, rows: Tensor) -> Tensor:
            """Return scores [K * Q, K] of the questions of an episode."""
            inner = self.body(rows)
            means = inner[:, :_EXAMPLES].mean(1)
            return -torch.cdist(inner[:, _EXAMPLES:].flatten(0, 1), means).square()

        def right(self, rows: Tensor) -> Tensor:
            """Return the share of the questions that are answered."""
            right: Tensor = (self(rows).argmax(1) == self.kinds()).float().mean()
            return right

        def kinds(self) -> Tensor:
            """Return the kind int64 [K * Q] of each question."""
            return torch.arange(_KINDS).repeat_interleave(_QUESTIONS)

        def training_step(self, rows: Tensor, _: int) -> Tensor:
            """Return the loss of an episode."""
            scores = self(rows)
            if draw.has("distance_sign"):
                scores = -scores
            loss = F.cross_entropy(scores, self.kinds())
            self.log("train_loss", loss, prog_bar=True)
            return loss

        def on_train_epoch_end(self) -> None:
            """Log how often new kinds are told apart."""
            with torch.no_grad():
                self.log("new_kinds", self.right(world.episode(60, 100)))

        def configure_optimizers(self) -> dict[str, Any]:
            """Return the optimizer, and a rate that falls in every epoch."""
            optimizer = torch.optim.Adam(self.parameters(), lr=rate)
            rule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
            interval = "step" if draw.has("scheduler_per_batch") else "epoch"
            return {
                "optimizer": optimizer,
                "lr_scheduler": {"scheduler": rule, "interval": interval},
            }

    return Prototypes()


FAMILY = Family(
    _train,
    (
        *("distance_sign", "support_misaligned", "scheduler_per_batch", "shuffled_labels"),
        *("constant_inputs", "lr_too_low", "lr_too_high"),
        *("zero_init", "detached_graph"),
    ),
    spent="2026-11-27",
)
