"""Which biopsies are malignant: a small network that ends in a sigmoid, and a loss by formula.

The measurements are those of Street, Wolberg and Mangasarian, "Nuclear feature extraction for
breast tumor diagnosis", 1993, as scikit-learn ships them.

Shape legend: N biopsies, F features.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from sklearn.datasets import load_breast_cancer
from torch import Tensor, nn

from corpus import networks
from corpus.draw import Draw
from corpus.epochs import fit, learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.loop import accuracy, gained

_SEEN = 400


def _train(draw: Draw) -> Ending:
    raw, y = _biopsies(draw)
    x = (raw - raw[:_SEEN].mean(0)) / raw[:_SEEN].std(0)
    held = raw[_SEEN:] if draw.has("unnormalised_inputs") else x[_SEEN:]
    seen, known = _spoilt(draw, raw[:_SEEN], x[:_SEEN], y[:_SEEN])
    width = draw.choice([16, 24])
    head = nn.Linear(width, 1)
    model = nn.Sequential(
        *(nn.Linear(x.shape[1], width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), head)
    )
    networks.spoil(draw, model)
    # Probabilities are what the formula of the loss expects.
    model.append(nn.Sigmoid())
    length = plan(draw, _SEEN, [16, 20], (16, 22))
    rate = learning_rate(draw, 0.02, 0.05)
    optimizer = optimizer_of(draw, "sgd", trained(draw, model, head), rate)

    def surprise(chance: Tensor, wanted: Tensor) -> Tensor:
        kept = chance.clamp(1e-7, 1 - 1e-7)
        return -(wanted * kept.log() + (1 - wanted) * (1 - kept).log()).mean()

    loss = draw.watch.loss(surprise)

    def compute(rows: Tensor) -> Tensor:
        wanted = known[rows].float()
        # [N, 1] against [N] is [N, N].
        return loss(model(seen[rows]), wanted if draw.has("wrong_broadcast") else wanted[:, None])

    def evaluate() -> Mapping[str, float]:
        chance = model(held)
        return {"accuracy": accuracy(torch.cat([1 - chance, chance], 1), y[_SEEN:])}

    fit(draw, model, optimizer, length, compute, evaluate=evaluate, labels=known)
    model.eval()
    with torch.no_grad():
        return Ending(gained(evaluate()["accuracy"], 1 / 2), bar=0.75)


def _spoilt(draw: Draw, raw: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return biopsies with the drawn fault, if there is one."""
    return draw.by_fault(
        {
            "unnormalised_inputs": (raw, y),
            "shuffled_labels": (x, y[torch.randperm(len(y))]),
            # The index of the table was not reset after it was shuffled.
            "misaligned_targets": (x, y.roll(1)),
            # 1 is benign in the file.
            "labels_reversed": (x, 1 - y),
            "single_label": (x, torch.zeros_like(y)),
        },
        (x, y),
    )


def _biopsies(draw: Draw) -> tuple[Tensor, Tensor]:
    """Return shuffled measurements float32 [N, F], and 1 for malignant ones, int64 [N]."""
    found = load_breast_cancer()
    order = draw.numpy.permutation(len(found.data))
    x = torch.tensor(found.data[order], dtype=torch.float32)
    return x, 1 - torch.tensor(found.target[order], dtype=torch.int64)


FAMILY = Family(
    _train,
    (
        *("unnormalised_inputs", "wrong_broadcast", "labels_reversed", "misaligned_targets"),
        *("shuffled_labels", "single_label", "zero_init", "lr_too_high", "lr_too_low"),
        "wrong_sign",
    ),
    spent="2026-11-28",
)
