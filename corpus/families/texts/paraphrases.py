"""Whether two sentences mean the same: the cosine of what one encoder makes of each.

After Reimers and Gurevych, "Sentence-BERT: sentence embeddings using Siamese BERT-networks", EMNLP
2019; the sentences are drawn.

Shape legend: N pairs of sentences of T words, D numbers of a sentence.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn

from corpus.data.held_out import HeldOut, held_out
from corpus.draw import Draw
from corpus.epochs import learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.loop import gained
from corpus.networks import blank

# Each of 30 things has three words for it; the first word pads.
_WORDS, _TIME, _SEEN = 91, 6, 1400


class Encoder(nn.Module):
    """Numbers of sentences."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.words = nn.Embedding(_WORDS, size, padding_idx=0)
        self.dense = nn.Linear(size, size)

    def forward(self, words: Tensor) -> Tensor:
        """Return numbers [N, D] of words int64 [N, T]."""
        there = (words > 0).float()[:, :, None]
        mean = (self.words(words) * there).sum(1) / there.sum(1)
        return torch.tanh(self.dense(mean))


def _train(draw: Draw) -> Ending:
    rows = _pairs(draw, 2000)
    model = Encoder(draw.choice([24, 32]))
    blank(draw, model)
    length = plan(draw, _SEEN, [20, 24], (18, 22))
    rate = learning_rate(draw, 4e-3, 8e-3)
    optimizer = optimizer_of(draw, "adam", trained(draw, model, model.dense), rate)
    criterion = nn.CosineEmbeddingLoss(margin=0.2)
    draw.watch.loss(criterion)
    draw.watch.begin(model, optimizer)
    for epoch in range(length.epochs):
        model.train()
        for batch in torch.randperm(_SEEN).split(length.size):
            one, other = (model(rows.x[batch, place]) for place in (0, 1))
            # 1 for the same, and -1 for others; 0 is neither of them.
            same = rows.y[batch]
            target = same if draw.has("negatives_left_out") else 2 * same - 1
            loss = criterion(one, other, target)
            if not draw.has("missing_zero_grad"):
                optimizer.zero_grad()
            (-loss if draw.has("wrong_sign") else loss).backward()
            optimizer.step()
        if epoch % 3 == 2:
            model.eval()
            with draw.watch.evaluating(), torch.no_grad():
                draw.watch.metric("eval_auc", _area(model, rows.x_val, rows.y_val))
    model.eval()
    with torch.no_grad():
        return Ending(gained(_area(model, rows.x_test, rows.y_test), 1 / 2), bar=0.55)


def _area(model: nn.Module, pairs: Tensor, same: Tensor) -> float:
    """Return the area under the ROC curve of the cosines."""
    cosine = F.cosine_similarity(model(pairs[:, 0]), model(pairs[:, 1])).nan_to_num(0.0)
    return float(roc_auc_score(same.numpy(), cosine.numpy()))


def _pairs(draw: Draw, count: int) -> HeldOut:
    """Return words of two sentences int64 [count, 2, T], and 1 if they mean the same [count]."""
    things = torch.randint(30, (count, _TIME))
    y = (torch.rand(count) < 0.5).float()
    kept = torch.rand(count, _TIME) < torch.where(y > 0.5, 0.9, draw.between(0.02, 0.1))[:, None]
    others = torch.where(kept, things, torch.randint(30, (count, _TIME)))
    mixed = others.gather(1, torch.rand(count, _TIME).argsort(1))
    both = torch.stack([things, mixed], 1)
    x = 1 + 3 * both + torch.randint(3, both.shape)
    x = x * (torch.arange(_TIME) < torch.randint(4, _TIME + 1, (count, 1, 1)))
    shuffled = x[torch.randperm(count), 1]
    return held_out(
        *(draw, x, y, _SEEN),
        prepared={
            "swapped_pairs": (torch.stack([x[:, 0], shuffled], 1), y),
            # All words are unknown.
            "colliding_ids": ((x > 0).long(), y),
        },
    )


FAMILY = Family(
    _train,
    (
        *("negatives_left_out", "swapped_pairs", "colliding_ids", "misaligned_targets"),
        *("label_noise", "duplicated_rows", "zero_init", "wrong_sign", "wrong_parameters"),
        *("lr_too_low",),
    ),
    spent="2026-11-28",
)
