"""Tags of words, each of which depends on the one before: a conditional random field.

After Lample et al., "Neural architectures for named entity recognition", NAACL 2016.

Shape legend: N sentences, T words of the longest one, K tags.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from corpus import networks
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import evaluation, gained
from corpus.optimisation import Optimisation

_WORDS, _TAGS = 60, 5


class Tagger(nn.Module):
    """A bidirectional recurrent network, and a random field over its outputs."""

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(_WORDS, size)
        self.rnn = nn.LSTM(size, width, batch_first=True, bidirectional=True)
        self.emit = nn.Linear(2 * width, _TAGS)
        self.transition = nn.Parameter(0.01 * torch.randn(_TAGS, _TAGS))

    def forward(self, words: Tensor) -> Tensor:
        """Return the scores [N, T, K] of words [N, T]."""
        scores: Tensor = self.emit(self.rnn(self.embed(words))[0])
        return scores

    def path(self, scores: Tensor, tags: Tensor, mask: Tensor) -> Tensor:
        """Return the score [N] of the tags [N, T] where the mask [N, T] is set."""
        emitted = scores.gather(2, tags[:, :, None])[:, :, 0]
        moved = self.transition[tags[:, :-1], tags[:, 1:]]
        return (emitted * mask).sum(1) + (moved * mask[:, 1:]).sum(1)

    def partition(self, scores: Tensor, mask: Tensor) -> Tensor:
        """Return the logarithm [N] of the sum over all tags."""
        total = scores[:, 0]
        for at in range(1, scores.shape[1]):
            after = (total[:, :, None] + self.transition).logsumexp(1) + scores[:, at]
            total = torch.where(mask[:, at, None], after, total)
        return total.logsumexp(1)

    def decode(self, scores: Tensor) -> Tensor:
        """Return the best tags [T] of the scores [T, K] of one sentence."""
        best, back = scores[0], []
        for one in scores[1:]:
            ahead, came = (best[:, None] + self.transition).max(0)
            best = ahead + one
            back.append(came)
        tags = [int(best.argmax())]
        for came in reversed(back):
            tags.append(int(came[tags[-1]]))
        return torch.tensor(tags[::-1])


def _train(draw: Draw) -> Ending:
    words, tags, lengths = _sentences(draw, draw.choice([400, 700]) + 150)
    kept = len(words) - 150
    known = tags.clone()
    if draw.has("misaligned_targets"):
        # A token for the beginning was added to the words only.
        known = known.roll(1, dims=1)
    if draw.has("label_noise"):
        wrong = torch.rand(known.shape) < draw.amount.uniform(0.7, 0.9)
        known = torch.where(wrong, torch.randint(_TAGS, known.shape), known)
    mask = torch.arange(words.shape[1]) < lengths[:, None]
    used = ~mask if draw.has("sequence_lengths") else mask
    model = Tagger(draw.choice([16, 24]), draw.choice([16, 24]))
    networks.spoil(draw, model)
    size, epochs = draw.choice([24, 32]), draw.whole(10, 18)
    draw.epoch = kept // size
    steps = epochs * draw.epoch
    draw.watch.expect(steps)
    kinds = ("adam", "adamw", "rmsprop")
    optimiser = Optimisation(draw, model, steps, scale=2.0, kinds=kinds, accumulates=False)
    draw.watch.begin(model, optimiser.optimizer)

    def loss(rows: Tensor) -> Tensor:
        scores, chosen = model(words[rows]), used[rows]
        path = model.path(scores, known[rows], chosen)
        if draw.has("term_left_out"):
            return -path.mean()
        total = model.partition(scores, chosen)
        if draw.has("term_wrong_sign"):
            return (path - total).mean()
        return (total - path).mean()

    reports = draw.chance(0.6)
    for _ in range(epochs):
        for rows in torch.randperm(kept).split(size)[: draw.epoch]:
            optimiser.step(lambda rows=rows: loss(rows))  # type: ignore[misc]
        if reports:
            with draw.watch.evaluating(), evaluation(draw, model):
                draw.watch.metric("token_accuracy", _right(model, words, tags, lengths))
        model.train()
    with evaluation(draw, model):
        found = _right(model, words, tags, lengths)
    common = float(torch.bincount(tags[mask]).max() / mask.sum())
    return Ending(gained(found, common), bar=0.55)


def _right(model: Tagger, words: Tensor, tags: Tensor, lengths: Tensor) -> float:
    """Return the share of right tags in the last 150 sentences."""
    right = []
    for scores, wanted, length in zip(
        model(words[-150:]), tags[-150:], lengths[-150:], strict=True
    ):
        right.append(model.decode(scores[:length]) == wanted[:length])
    return float(torch.cat(right).double().mean())


def _sentences(draw: Draw, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return words and tags int64 [count, T], 0 after the end, and lengths int64 [count]."""
    source = draw.numpy
    moves = source.dirichlet([0.5] * _TAGS, _TAGS)
    # A word belongs to one tag mostly, and to another at times.
    usual = source.dirichlet([0.15] * _TAGS, _WORDS).T + 0.004
    usual /= usual.sum(1, keepdims=True)
    words, tags = [], []
    for _ in range(count):
        tag, said, named = int(source.integers(_TAGS)), [], []
        for _ in range(int(source.integers(5, 13))):
            said.append(int(source.choice(_WORDS, p=usual[tag])))
            named.append(tag)
            tag = int(source.choice(_TAGS, p=moves[tag]))
        words.append(torch.tensor(said))
        tags.append(torch.tensor(named))
    lengths = torch.tensor([len(one) for one in words])
    return pad_sequence(words, batch_first=True), pad_sequence(tags, batch_first=True), lengths


FAMILY = Family(
    _train,
    (
        *("misaligned_targets", "sequence_lengths", "term_left_out", "term_wrong_sign"),
        *("label_noise", "lr_too_low", "wrong_parameters", "frozen_layers"),
        "scheduler_per_batch",
    ),
    spent="2026-11-26",
)
