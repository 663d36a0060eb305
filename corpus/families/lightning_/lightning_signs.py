"""Traffic signs by a residual network, trained by Lightning: a one-cycle rate for each step.

After Stallkamp et al., "Man vs. computer: benchmarking machine learning algorithms for traffic sign
recognition", Neural Networks 2012; the signs are drawn.

Shape legend: N signs of 3 colours and 12 x 12 pixels, C kinds.
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
from corpus.draw import Draw
from corpus.epochs import learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.loop import accuracy, gained

_SIDE, _KINDS, _SEEN = 12, 6, 700


def _train(draw: Draw) -> Ending:
    import lightning

    # It says which devices there are.
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    x, y = _signs(draw, 1000)
    seen, known = _spoilt(draw, x[:_SEEN], y[:_SEEN])
    length = plan(draw, _SEEN, [20, 28], (6, 8))
    module = _module(draw, lightning, draw.choice([16, 20]), length.steps)
    with tempfile.TemporaryDirectory() as folder:
        trainer = lightning.Trainer(
            max_epochs=length.epochs,
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
            gradient_clip_val=draw.choice([None, 1.0]),
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
        reached = accuracy(module(x[_SEEN:]), y[_SEEN:])
    return Ending(gained(reached, 1 / _KINDS), bar=0.6)


def _module(draw: Draw, lightning: Any, width: int, steps: int) -> Any:
    rate = learning_rate(draw, 3e-3, 6e-3)

    class Signs(lightning.LightningModule):  # type: ignore[misc]
        """Scores [N, C] of signs [N, 3, 12, 12]."""

        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Conv2d(3, width, 3, 2, 1)
            self.first = nn.Conv2d(width, width, 3, 1, 1)
            self.second = nn.Conv2d(width, width, 3, 1, 1)
            self.head = nn.Linear(9 * width, _KINDS)

        def forward(self, x: Tensor) -> Tensor:
            """Return the scores."""
            told = F.relu(self.stem(x))
            told = F.relu(told + self.second(F.relu(self.first(told))))
            scores: Tensor = self.head(F.max_pool2d(told, 2).flatten(1))
            return scores

        def training_step(self, batch: list[Tensor], _: int) -> Tensor:
            """Return the loss of a batch."""
            x, y = batch
            if draw.has("augmented_without_targets"):
                # A sign that points to the left points to the right after a turn.
                turns = int(torch.randint(4, ()))
                x = x.rot90(turns, (2, 3))
            scores = self(x)
            if draw.has("nll_on_probabilities"):
                loss = F.nll_loss(F.softmax(scores, 1), y)
            else:
                loss = F.cross_entropy(scores, y)
            self.log("train/loss", loss)
            return loss

        def validation_step(self, batch: list[Tensor], _: int) -> None:
            """Log the accuracy of a batch."""
            x, y = batch
            self.log("val/acc", (self(x).argmax(1) == y).float().mean())

        def configure_optimizers(self) -> dict[str, Any]:
            """Return the optimizer, and a rate that rises and falls."""
            weights = trained(draw, self, self.head)
            optimizer = optimizer_of(draw, "adam", weights, rate)
            # The number of steps is that of epochs: the rate is over after the first ones.
            total = steps // 100 if draw.has("scheduler_to_zero") else steps
            rule = torch.optim.lr_scheduler.PolynomialLR(optimizer, total)
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": rule, "interval": "step"}}

    module = Signs()
    networks.spoil(draw, module)
    return module


def _spoilt(draw: Draw, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return signs with the drawn fault, if there is one."""
    rare = (torch.rand(len(y)) < 0.99) & (y > 0)
    return draw.by_fault(
        {
            "shuffled_labels": (x, y[torch.randperm(len(y))]),
            # Most signs of a road are of one kind, and one kind was given to the others.
            "class_imbalance": (x, torch.where(rare, 0, y)),
            "preprocessing_mismatch": (128 + 64 * x, y),
            # Another library reads blue first.
            "bands_reversed": (x.flip(1), y),
        },
        (x, y),
    )


def _signs(draw: Draw, count: int) -> tuple[Tensor, Tensor]:
    """Return signs float32 [count, 3, 12, 12] and kinds int64 [count]."""
    y = torch.randint(_KINDS, (count,))
    place = torch.arange(_SIDE) - (_SIDE - 1) / 2
    across = place + 0.7 * torch.randn(count, 1, 1)
    down = place[:, None] + 0.7 * torch.randn(count, 1, 1)
    disc = (torch.hypot(across, down) < 4.8).float()
    # Arrows to the left and to the right, a bar, each in red and in blue.
    left = (across.abs() + down.abs() < 3.5) & (across < 0)
    right = (across.abs() + down.abs() < 3.5) & (across > 0)
    bar = (down.abs() < 1.2) & (across.abs() < 3.5)
    mark = torch.stack([left, right, bar])[y % 3, torch.arange(count)].float()
    blue = (y // 3)[:, None, None].float()
    red = disc * (1 - blue) * 1.5 * (1 - mark)
    x = torch.stack([red + 1.5 * mark, 1.5 * mark, disc * blue * 1.5 * (1 - mark) + 1.5 * mark], 1)
    return x - 0.4 + draw.between(0.3, 0.5) * torch.randn(count, 3, _SIDE, _SIDE), y


FAMILY = Family(
    _train,
    (
        *("augmented_without_targets", "bands_reversed", "preprocessing_mismatch"),
        *("class_imbalance", "shuffled_labels", "nll_on_probabilities"),
        *("zero_init", "dead_relu", "scheduler_to_zero", "wrong_parameters", "lr_too_low"),
    ),
    spent="2026-11-28",
)
