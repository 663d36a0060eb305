"""Which books readers lend: a variational autoencoder of all that they have lent.

After Liang et al., "Variational autoencoders for collaborative filtering", WWW 2018, whose loss has
a weight of the divergence that rises; the readers are drawn.

Shape legend: N readers, B books, D numbers of a code.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn

from corpus.draw import Draw
from corpus.epochs import learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family

_BOOKS, _GENRES, _CODE, _SEEN = 60, 6, 10, 900


class MultVAE(nn.Module):
    """Scores of books, and the distribution of a reader's code."""

    def __init__(self, draw: Draw, width: int) -> None:
        super().__init__()
        self.dropout = nn.Dropout(draw.by_fault({"dropout_too_high": 0.99}, 0.3))
        self.encoder = nn.Sequential(nn.Linear(_BOOKS, width), nn.Tanh())
        self.code = nn.Linear(width, 2 * _CODE)
        self.decoder = nn.Sequential(nn.Linear(_CODE, width), nn.Tanh(), nn.Linear(width, _BOOKS))

    def forward(self, lent: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return scores [N, B], means and logarithms of variances [N, D] of books [N, B]."""
        mean, log = self.code(self.encoder(self.dropout(F.normalize(lent)))).chunk(2, 1)
        code = mean
        if self.training:
            code = mean + torch.randn_like(mean) * (log / 2).exp()
        return self.decoder(code), mean, log


def _train(draw: Draw) -> Ending:
    lent, hidden, chance = _readers(draw, 1300)
    seen = _spoilt(draw, lent)[:_SEEN]
    model = MultVAE(draw, draw.choice([48, 64]))
    length = plan(draw, _SEEN, [25, 30], (12, 15))
    rate = learning_rate(draw, 3e-3, 5e-3)
    optimizer = optimizer_of(draw, "adam", trained(draw, model, model.decoder[-1]), rate)
    top = draw.by_fault({"divergence_unscaled": 200.0, "term_wrong_sign": -0.5}, 0.2)

    def likelihood(scores: Tensor, books: Tensor) -> Tensor:
        return -(F.log_softmax(scores, 1) * books).sum(1).mean()

    loss_function = draw.watch.loss(likelihood)
    draw.watch.begin(model, optimizer)
    step = 0
    for epoch in range(length.epochs):
        model.train()
        order = torch.randperm(_SEEN)[: length.batches * length.size]
        for batch in order.split(length.size):
            step += 1
            scores, mean, log = model(seen[batch])
            divergence = (mean.square() + log.exp() - 1 - log).sum(1).mean() / 2
            weight = top * min(1.0, step / (length.steps / 2))
            loss = loss_function(scores, seen[batch]) + weight * divergence
            if not draw.has("missing_zero_grad"):
                optimizer.zero_grad()
            (-loss if draw.has("wrong_sign") else loss).backward()
            optimizer.step()
        if epoch % 3 == 2:
            model.eval()
            with draw.watch.evaluating(), torch.no_grad():
                found = _recalled(model(lent[_SEEN:])[0], lent[_SEEN:], hidden[_SEEN:])
                draw.watch.metric("recall@5", found)
    model.eval()
    with torch.no_grad():
        found = _recalled(model(lent[_SEEN:])[0], lent[_SEEN:], hidden[_SEEN:])
        # By how often each book was lent.
        usual = _recalled(lent[:_SEEN].sum(0).expand(400, -1), lent[_SEEN:], hidden[_SEEN:])
        best = _recalled(chance[_SEEN:], lent[_SEEN:], hidden[_SEEN:])
    return Ending((found - usual) / (best - usual), bar=0.55)


def _recalled(scores: Tensor, lent: Tensor, hidden: Tensor) -> float:
    """Return how many of the hidden books are among the five best of those that were not lent."""
    best = scores.nan_to_num(0.0).masked_fill(lent > 0, -1e9).topk(5, 1).indices
    return float((hidden.gather(1, best).sum(1) / hidden.sum(1).clamp(min=1, max=5)).mean())


def _spoilt(draw: Draw, lent: Tensor) -> Tensor:
    """Return what was lent, with the drawn fault if there is one."""
    return draw.by_fault(
        {
            # Readers and books come from two lists, and one of them was sorted.
            "shuffled_labels": lent.gather(1, torch.rand(lent.shape).argsort(1)),
            # Numbers of books of another catalogue, for the training readers.
            "swapped_ids": lent[:, torch.randperm(_BOOKS)],
            "duplicated_rows": lent[torch.arange(len(lent)) % 12],
        },
        lent,
    )


def _readers(draw: Draw, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return what was lent, what else will be, and how likely it is, float32 [count, B] each."""
    genre = torch.arange(_BOOKS) % _GENRES
    taste = torch.rand(count, _GENRES).argsort(1)[:, :2]
    liked = (genre == taste[:, :1]) | (genre == taste[:, 1:])
    popular = torch.tensor(draw.numpy.uniform(0.7, 1.3, _BOOKS), dtype=torch.float32)
    chance = torch.where(liked, 0.55 * popular, 0.02)
    every = torch.rand(count, _BOOKS) < chance
    later = torch.rand(count, _BOOKS) < 0.35
    return (every & ~later).float(), (every & later).float(), chance


FAMILY = Family(
    _train,
    (
        *("shuffled_labels", "swapped_ids", "duplicated_rows", "divergence_unscaled"),
        *("term_wrong_sign", "dropout_too_high", "missing_zero_grad", "wrong_sign"),
        *("wrong_parameters", "lr_too_low", "lr_too_high"),
    ),
    spent="2026-11-28",
)
