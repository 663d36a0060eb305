"""Digits and sentences about them, in one space: both are found by the other.

After Radford et al., "Learning transferable visual models from natural language supervision",
ICML 2021.

Shape legend: N pairs, L words of a sentence, E size of an embedding.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from sklearn.datasets import load_digits
from torch import Tensor, nn

from corpus import networks
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import accuracy, evaluation, gained, run_loop
from corpus.optimisation import Optimisation

_WORDS, _LENGTH = 50, 8


class TwoTowers(nn.Module):
    """Encoders of images and of sentences, and the temperature of their likeness."""

    def __init__(self, width: int, size: int, temperature: float) -> None:
        super().__init__()
        self.image = nn.Sequential(
            *(nn.Conv2d(1, width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Flatten(), nn.Linear(16 * width, size)),
        )
        self.words = nn.Embedding(_WORDS, width)
        layer = nn.TransformerEncoderLayer(width, 2, 2 * width, 0.0, batch_first=True)
        self.text = nn.TransformerEncoder(layer, 1)
        self.project = nn.Linear(width, size)
        self.log_scale = nn.Parameter(torch.tensor(math.log(1 / temperature)))

    def encode_text(self, words: Tensor) -> Tensor:
        """Return embeddings [N, E] of words [N, L]."""
        return F.normalize(self.project(self.text(self.words(words)).mean(1)), dim=1)

    def encode_image(self, image: Tensor) -> Tensor:
        """Return embeddings [N, E] of images [N, 1, 8, 8]."""
        return F.normalize(self.image(image), dim=1)

    def forward(self, image: Tensor, words: Tensor) -> Tensor:
        """Return how alike each image and each sentence are, [N, N]."""
        alike: Tensor = self.encode_image(image) @ self.encode_text(words).T
        return self.log_scale.exp().clamp(max=100) * alike


def _train(draw: Draw) -> Ending:
    images, numbers = load_digits(return_X_y=True)
    order = torch.randperm(len(images))
    x = torch.tensor(images / 8 - 1, dtype=torch.float32).reshape(-1, 1, 8, 8)[order]
    y = torch.tensor(numbers)[order]
    kept = draw.choice([800, 1300])
    captions = _captions(y)
    if draw.has("misaligned_targets"):
        # One of the two files was sorted.
        captions = captions[y.argsort()]
    model = TwoTowers(draw.choice([16, 24]), draw.choice([16, 32]), draw.choice([0.07, 0.2]))
    networks.spoil(draw, model)
    steps, size = draw.steps(250, 500), draw.choice([32, 48])
    optimiser = Optimisation(draw, model, steps, kinds=("adam", "adamw"), accumulates=False)

    def compute() -> Tensor:
        rows = torch.randint(kept, (size,))
        logits: Tensor = model(x[rows], captions[rows])
        if draw.has("collapse"):
            # Pairs only, and nothing that is to be apart.
            return -logits.diagonal().mean()
        if draw.has("term_wrong_sign"):
            logits = -logits
        own = torch.arange(size)
        return (F.cross_entropy(logits, own) + F.cross_entropy(logits.T, own)) / 2

    prompts = _captions(torch.arange(10).repeat_interleave(5))

    def found() -> float:
        towards = model.encode_text(prompts).reshape(10, 5, -1).mean(1)
        return accuracy(model.encode_image(x[1300:]) @ towards.T, y[1300:])

    def evaluate() -> Mapping[str, float]:
        return {"zero_shot": found()}

    chosen = evaluate if draw.chance(0.6) else None
    run_loop(draw, model, optimiser, steps, compute=compute, evaluate=chosen)
    with evaluation(draw, model):
        return Ending(gained(found(), 0.1), bar=0.65)


def _captions(y: Tensor) -> Tensor:
    """Return sentences int64 [N, L]: one or two of the words of the digit, among others."""
    words = torch.randint(30, _WORDS, (len(y), _LENGTH))
    places = torch.rand(words.shape).argsort(1)[:, :2]
    named = y[:, None] * 3 + torch.randint(3, (len(y), 2))
    return words.scatter(1, places, named)


FAMILY = Family(
    _train,
    (
        *("misaligned_targets", "collapse", "term_wrong_sign", "adam_epsilon", "adam_betas"),
        *("lr_too_low", "lr_too_high", "not_in_optimizer", "half_underflow", "late_jump"),
    ),
    spent="2026-11-26",
)
