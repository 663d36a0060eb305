"""Who speaks: embeddings of synthetic voices, trained with an additive angular margin.

After Deng et al., "ArcFace: additive angular margin loss for deep face recognition", CVPR 2019, and
Snyder et al., "X-vectors: robust DNN embeddings for speaker recognition", ICASSP 2018.

Shape legend: N recordings, T frames, F bands of a spectrum, S speakers, E size of an embedding.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn

from corpus import networks
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import evaluation
from corpus.optimisation import Optimisation

_BANDS, _FRAMES, _UNSEEN = 24, 20, 20


class XVector(nn.Module):
    """Convolutions over time, pooled to their mean and deviation; the loss is a part of it."""

    def __init__(self, speakers: int, width: int, margin: float, scale: float) -> None:
        super().__init__()
        self.frames = nn.Sequential(
            nn.Conv1d(_BANDS, width, 5, padding=2),
            nn.BatchNorm1d(width),
            nn.ReLU(),
            nn.Conv1d(width, width, 3, padding=2, dilation=2),
            nn.ReLU(),
        )
        self.embed = nn.Linear(2 * width, 32)
        self.prototypes = nn.Parameter(0.1 * torch.randn(speakers, 32))
        self.margin, self.scale = margin, scale

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        """Return the embeddings [N, E] of x [N, F, T], or with speakers y [N] the loss."""
        inner = self.frames(x)
        pooled = torch.cat([inner.mean(2), inner.var(2, unbiased=False).add(1e-5).sqrt()], 1)
        embedded = F.normalize(self.embed(pooled), dim=1)
        if y is None:
            return embedded
        cosine = (embedded @ F.normalize(self.prototypes, dim=1).T).clamp(-1 + 1e-6, 1 - 1e-6)
        own = F.one_hot(y, cosine.shape[1]).bool()
        logits = torch.where(own, (cosine.arccos() + self.margin).cos(), cosine)
        return F.cross_entropy(self.scale * logits, y)


def _train(draw: Draw) -> Ending:
    speakers, each = draw.choice([30, 50]), draw.choice([20, 30])
    known = speakers + _UNSEEN
    x, y = _recordings(draw, known, each)
    if draw.has("wrong_axis"):
        # Bands and frames are exchanged by `reshape` in place of `transpose`.
        x = x.transpose(1, 2).reshape(x.shape)
    if draw.has("constant_inputs"):
        # The normalisation takes each recording's own mean and spread of a band: the voice is gone.
        x = x - x.mean(2, keepdim=True)
        x = x / x.std(2, keepdim=True)
    seen = y < speakers
    x_train, y_train = x[seen], y[seen]
    if draw.has("shuffled_labels"):
        y_train = y_train[torch.randperm(len(y_train))]
    if draw.has("single_label"):
        y_train = torch.zeros_like(y_train)
    scale = draw.choice([15.0, 25.0])
    model = XVector(speakers, draw.choice([32, 48]), draw.choice([0.1, 0.2]), scale)
    networks.spoil(draw, model)
    size, epochs = draw.choice([32, 64]), draw.whole(12, 25)
    draw.epoch = len(x_train) // size
    steps = epochs * draw.epoch
    draw.watch.expect(steps)
    kinds = ("adam", "adamw", "nesterov")
    optimiser = Optimisation(draw, model, steps, kinds=kinds, accumulates=False)
    draw.watch.begin(model, optimiser.optimizer)
    reports = draw.chance(0.6)
    for _ in range(epochs):
        model.train()
        for rows in torch.randperm(len(x_train)).split(size)[: draw.epoch]:
            optimiser.step(lambda rows=rows: model(x_train[rows], y_train[rows]))  # type: ignore[misc]
        if reports:
            with draw.watch.evaluating(), evaluation(draw, model):
                draw.watch.metric("eer", _equal_error(model, x[~seen], y[~seen]))
    with evaluation(draw, model):
        return Ending(1 - 2 * _equal_error(model, x[~seen], y[~seen]), bar=0.5)


def _recordings(draw: Draw, speakers: int, each: int) -> tuple[Tensor, Tensor]:
    """Return spectra float32 [N, F, T] and who speaks, int64 [N]."""
    y = torch.arange(speakers).repeat_interleave(each)
    smooth = torch.exp(-((torch.arange(_BANDS)[:, None] - torch.arange(_BANDS)) ** 2) / 8.0)
    voices = torch.randn(speakers, _BANDS) @ smooth
    sounds = torch.randn(8, _BANDS) @ smooth
    said = sounds[torch.randint(8, (len(y), _FRAMES))]
    noise = draw.between(1.0, 1.8) * torch.randn(len(y), _BANDS, _FRAMES)
    # The microphone of each recording, which changes its bands in a few ways.
    through = 2.0 * torch.randn(len(y), 6) @ (torch.randn(6, _BANDS) @ smooth) / 6**0.5
    x = (voices[y] + through)[:, :, None] + said.transpose(1, 2) + noise
    return (x - x.mean()) / x.std(), y


def _equal_error(model: nn.Module, x: Tensor, y: Tensor) -> float:
    """Return the rate at which as many pairs are wrongly accepted as wrongly rejected."""
    embedded = model(x).nan_to_num(0.0).double()
    alike = embedded @ embedded.T
    upper = torch.ones_like(alike).triu(1).bool()
    same = (y[:, None] == y[None, :])[upper]
    # Equal scores are in no order.
    scores = alike[upper] + 1e-9 * torch.rand(len(same), dtype=torch.float64)
    ranked = same[scores.argsort(descending=True)]
    missed = 1 - ranked.cumsum(0) / ranked.sum()
    accepted = (~ranked).cumsum(0) / (~ranked).sum()
    place = int((missed - accepted).abs().argmin())
    return float(missed[place] + accepted[place]) / 2


FAMILY = Family(
    _train,
    (
        *("wrong_axis", "constant_inputs", "shuffled_labels", "single_label"),
        *("lr_too_low", "wrong_sign", "scheduler_to_zero", "wrong_parameters"),
        "detached_graph",
    ),
    spent="2026-11-26",
)
