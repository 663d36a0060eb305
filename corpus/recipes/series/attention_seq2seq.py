"""Sequence to sequence with attention: spelling backwards in another alphabet.

Settings: PyTorch's tutorial "Translation with a sequence to sequence network and attention" (after
Bahdanau et al., ICLR 2015): GRUs of 128, here 64, additive attention, dropout of 0.1, an Adam for
the encoder and one for the decoder, both with a rate of 1e-3, a batch of 32.

Shape legend: N sequences, T letters, D width, V letters of the alphabet.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn

from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import evaluation, gained, report_metrics

_STEPS, _LETTERS, _LONG, _WIDTH = 600, 10, 6, 64
_BEGIN = _LETTERS


class Encoder(nn.Module):
    """Reads letters [N, T]."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.dropout = nn.Embedding(_LETTERS, _WIDTH), nn.Dropout(0.1)
        self.gru = nn.GRU(_WIDTH, _WIDTH, batch_first=True)

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Return what was read at each place [N, T, D], and in the end [1, N, D]."""
        read, last = self.gru(self.dropout(self.embedding(ids)))
        return read, last


class Decoder(nn.Module):
    """Writes letters, each after a look at what was read."""

    def __init__(self, axis: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(_LETTERS + 1, _WIDTH)
        self.query, self.key = nn.Linear(_WIDTH, _WIDTH), nn.Linear(_WIDTH, _WIDTH)
        self.score = nn.Linear(_WIDTH, 1)
        self.gru, self.out = nn.GRUCell(2 * _WIDTH, _WIDTH), nn.Linear(_WIDTH, _LETTERS)
        self.axis = axis

    def forward(self, read: Tensor, last: Tensor, told: Tensor | None) -> Tensor:
        """Return scores [N, T, V]; each letter follows the told one, or the best one."""
        state, before = last[0], torch.full((len(read),), _BEGIN)
        keys, scores = self.key(read), []
        for place in range(read.shape[1]):
            rated = self.score(torch.tanh(keys + self.query(state)[:, None]))
            seen = (rated.softmax(self.axis) * read).sum(1)
            state = self.gru(torch.cat([self.embedding(before), seen], 1), state)
            scores.append(self.out(state))
            before = scores[-1].argmax(1) if told is None else told[:, place]
        return torch.stack(scores, 1)


def _train(draw: Draw) -> Ending:
    draw.watch.expect(_STEPS)
    rule = torch.randperm(_LETTERS)
    model = nn.ModuleDict(
        {
            "encoder": Encoder(),
            # Over the rows of the batch instead of the places.
            "decoder": Decoder(axis=0 if draw.has("softmax_wrong_axis") else 1),
        }
    )
    optimizers = [torch.optim.Adam(model[one].parameters(), lr=1e-3) for one in model]
    criterion = nn.NLLLoss()
    draw.watch.loss(criterion)
    draw.watch.begin(model["encoder"], optimizers[0], name="encoder")
    draw.watch.begin(model["decoder"], optimizers[1], name="decoder")

    def examples(count: int) -> tuple[Tensor, Tensor]:
        ids = torch.randint(_LETTERS, (count, _LONG))
        return ids, rule[ids.flip(1)]

    def written(ids: Tensor) -> Tensor:
        found: Tensor = model["decoder"](*model["encoder"](ids), None)
        return found.argmax(2)

    def measure() -> Mapping[str, float]:
        ids, wanted = examples(200)
        return {"token_accuracy": float((written(ids) == wanted).float().mean())}

    for step in range(_STEPS):
        model.train()
        ids, wanted = examples(32)
        # The decoder is told each letter before it writes it.
        told = wanted.roll(-1, 1) if draw.has("unshifted_targets") else wanted
        # The gradients of the encoder only.
        for optimizer in optimizers[:1] if draw.has("missing_zero_grad") else optimizers:
            optimizer.zero_grad()
        scores = model["decoder"](*model["encoder"](ids), told)
        loss: Tensor = criterion(F.log_softmax(scores, 2).flatten(0, 1), wanted.flatten())
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        if step % 100 == 99:
            report_metrics(draw, model, measure)
    with evaluation(draw, model):
        ids, wanted = examples(1000)
        reached = float((written(ids) == wanted).float().mean())
    return Ending(gained(reached, 1 / _LETTERS), bar=0.7)


FAMILY = Family(
    _train, ("unshifted_targets", "softmax_wrong_axis", "missing_zero_grad"), spent="2026-11-25"
)
