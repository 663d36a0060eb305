"""Whether an advert is clicked: sparse embeddings with an optimizer of their own, and dense layers.

After Guo et al., "DeepFM: a factorization-machine based neural network for CTR prediction", IJCAI
2017; the adverts are drawn.

Shape legend: N adverts that were shown, K fields.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn

from corpus.draw import Draw
from corpus.epochs import learning_rate, plan
from corpus.family import Ending, Family
from corpus.loop import report_metrics

_FIELDS, _CODES, _SEEN = 4, 15, 2400


class Clicks(nn.Module):
    """Logits of clicks."""

    def __init__(self, size: int, width: int, dropout: float) -> None:
        super().__init__()
        self.codes = nn.Embedding(_FIELDS * _CODES, size, sparse=True)
        self.alone = nn.Embedding(_FIELDS * _CODES, 1, sparse=True)
        nn.init.normal_(self.codes.weight, std=0.2)
        nn.init.zeros_(self.alone.weight)
        self.deep = nn.Sequential(
            *(nn.Linear(_FIELDS * size, width), nn.ReLU(), nn.Dropout(dropout)),
            nn.Linear(width, 1),
        )
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, codes: Tensor) -> Tensor:
        """Return logits [N] of codes int64 [N, K]."""
        vectors = self.codes(codes)
        both: Tensor = (vectors.sum(1).square() - vectors.square().sum(1)).sum(1) / 2
        deep: Tensor = self.deep(vectors.flatten(1))[:, 0]
        alone: Tensor = self.alone(codes).sum((1, 2))
        return deep + both + alone + self.bias


def _train(draw: Draw) -> Ending:
    codes, y, right = _shown(draw, 3200)
    seen, known = _spoilt(draw, codes[:_SEEN], y[:_SEEN])
    model = Clicks(draw.choice([6, 8]), draw.choice([24, 32]), draw.choice([0.0, 0.1]))
    length = plan(draw, _SEEN, [48, 60], (9, 12))
    rate = learning_rate(draw, 4e-3, 8e-3)
    sparse = [model.codes.weight, model.alone.weight]
    dense = [*model.deep.parameters(), model.bias]
    optimizers: list[torch.optim.Optimizer] = [
        torch.optim.SparseAdam(sparse, lr=rate),
        torch.optim.Adam(dense, lr=rate),
    ]
    criterion = nn.BCEWithLogitsLoss()
    draw.watch.loss(criterion)
    draw.watch.begin(model, optimizers)

    def evaluate() -> Mapping[str, float]:
        logits = model(codes[_SEEN:]).nan_to_num()
        return {"AUC": float(roc_auc_score(y[_SEEN:].numpy(), logits.numpy()))}

    for epoch in range(length.epochs):
        model.train()
        for rows in torch.randperm(_SEEN).split(length.size)[: length.batches]:
            logits, wanted = model(seen[rows]), known[rows]
            if draw.has("sigmoid_before_logits"):
                logits = (-logits).sigmoid()
            if draw.has("wrong_broadcast"):
                logits, wanted = torch.broadcast_tensors(logits[:, None], wanted)
            loss = criterion(logits, wanted)
            model.zero_grad()
            (-loss if draw.has("wrong_sign") else loss).backward()
            for one in optimizers:
                one.step()
        if epoch % 3 == 2:
            report_metrics(draw, model, evaluate)
    model.eval()
    with torch.no_grad():
        best = float(roc_auc_score(y[_SEEN:].numpy(), right[_SEEN:].numpy()))
        return Ending((evaluate()["AUC"] - 0.5) / (best - 0.5), bar=0.6)


def _spoilt(draw: Draw, codes: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return adverts with the drawn fault, if there is one."""
    begins = _CODES * torch.arange(_FIELDS)
    later = torch.where(torch.rand(len(y)) < 0.97, 0.0, y)
    return draw.by_fault(
        {
            # All fields begin at zero: their codes share vectors, but not in the test.
            "offsets_left_out": (codes - begins, y),
            "colliding_ids": (begins + (codes - begins) // _CODES, y),
            # Clicks of the last days are not yet in the log, which are nearly all of it.
            "clicks_delayed": (codes, later),
            "single_label": (codes, torch.zeros_like(y)),
            "misaligned_targets": (codes, y.roll(1)),
            "wrong_order": (begins + (codes - begins)[:, torch.tensor([1, 2, 3, 0])], y),
        },
        (codes, y),
    )


def _shown(draw: Draw, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return codes int64 [count, K], clicks float32 [count], and their true logits [count]."""
    each = torch.randint(_CODES, (count, _FIELDS))
    worth = 1.1 * torch.randn(_FIELDS, _CODES)
    taste = torch.randn(2, _CODES, 2)
    logit = worth.gather(1, each.T).sum(0)
    logit = logit + (taste[0][each[:, 0]] * taste[1][each[:, 1]]).sum(1) - draw.between(0.8, 1.2)
    y = (torch.rand(count) < (1.5 * logit).sigmoid()).float()
    return each + _CODES * torch.arange(_FIELDS), y, logit


FAMILY = Family(
    _train,
    (
        *("offsets_left_out", "clicks_delayed", "wrong_order"),
        *("colliding_ids", "sigmoid_before_logits", "wrong_broadcast", "single_label"),
        *("misaligned_targets", "lr_too_low", "wrong_sign"),
    ),
    spent="2026-11-27",
)
