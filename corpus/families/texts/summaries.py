"""Which sentences of an article belong in its summary: each is scored beside the whole article.

After Nallapati, Zhai and Zhou, "SummaRuNNer: a recurrent neural network based sequence model for
extractive summarization of documents", AAAI 2017; the articles are drawn.

Shape legend: N articles of S sentences, each of which is described by F numbers.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from corpus.data.held_out import HeldOut, held_out
from corpus.draw import Draw
from corpus.epochs import fit, learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.loop import gained
from corpus.networks import spoil

_SENTENCES, _FEATURES, _SEEN = 10, 12, 450


class Extractor(nn.Module):
    """Logits of sentences."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.gru = nn.GRU(_FEATURES, hidden, batch_first=True, bidirectional=True)
        self.article = nn.Linear(2 * hidden, 2 * hidden)
        self.content = nn.Linear(2 * hidden, 1)
        self.salience = nn.Linear(2 * hidden, 2 * hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits [N, S] of sentences float32 [N, S, F]."""
        told = self.gru(x)[0]
        whole = self.article(told.mean(1)).tanh()
        together = (self.salience(told) * whole[:, None]).sum(2)
        logits: Tensor = self.content(told)[:, :, 0] + together
        return logits


def _train(draw: Draw) -> Ending:
    rows = _articles(draw, 650)
    model = Extractor(draw.choice([16, 20]))
    spoil(draw, model)
    length = plan(draw, _SEEN, [10, 15], (8, 11))
    rate = learning_rate(draw, 3e-3, 6e-3)
    optimizer = optimizer_of(draw, "adam", trained(draw, model, model.content), rate)
    weight = torch.tensor(draw.by_fault({"weights_reversed": 0.005}, 3.0))
    criterion = nn.BCEWithLogitsLoss(pos_weight=weight)
    draw.watch.loss(criterion)

    def compute(picked: Tensor) -> Tensor:
        loss: Tensor = criterion(model(rows.x[picked]), rows.y[picked])
        return loss

    def evaluate() -> Mapping[str, float]:
        return {"precision@3": _precision(model(rows.x_val), rows.y_val)}

    fit(draw, model, optimizer, length, compute, evaluate=evaluate)
    model.eval()
    with torch.no_grad():
        logits = model(rows.x_test)
    taken, true = logits > 0, rows.y_test > 0.5
    right = (taken[true].double().mean() + (~taken[~true]).double().mean()) / 2
    return Ending(gained(float(right), 1 / 2), bar=0.4)


def _precision(logits: Tensor, y: Tensor) -> float:
    return float(y.gather(1, logits.topk(3, dim=1).indices).mean())


def _articles(draw: Draw, count: int) -> HeldOut:
    """Return sentences float32 [count, S, F], and 1 for those of the summary [count, S]."""
    subject = torch.randn(count, 1, 6)
    near = torch.rand(count, _SENTENCES, 1)
    words = near * subject + 0.3 * torch.randn(count, _SENTENCES, 6)
    place = torch.linspace(1, -1, _SENTENCES)[None, :, None].expand(count, -1, 1)
    others = torch.randn(count, _SENTENCES, 5)
    x = torch.cat([words, place, others], 2)
    worth = 3 * near[:, :, 0] + 0.3 * place[:, :, 0] + 0.7 * others[:, :, 0]
    worth = worth + draw.between(0.15, 0.3) * torch.randn(count, _SENTENCES)
    y = (worth >= worth.topk(3, dim=1).values[:, -1:]).float()
    turned = x.transpose(1, 2).reshape(x.shape)
    return held_out(
        *(draw, x, y, _SEEN),
        prepared={"wrong_axis": (turned, y), "unnormalised_inputs": (2000 + 900 * x, y)},
    )


FAMILY = Family(
    _train,
    (
        *("wrong_axis", "shuffled_labels", "misaligned_targets", "unnormalised_inputs"),
        *("weights_reversed", "wrong_sign", "missing_step", "lr_too_low", "lr_too_high"),
    ),
    spent="2026-11-28",
)
