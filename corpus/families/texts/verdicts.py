"""How a case at court ends, from its sentences: attention to words, then attention to sentences.

After Yang et al., "Hierarchical attention networks for document classification", NAACL 2016; the
documents are drawn.

Shape legend: N documents of S sentences of T words, H numbers.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from corpus.data.held_out import HeldOut, held_out
from corpus.draw import Draw
from corpus.epochs import learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.loop import accuracy, gained
from corpus.networks import blank

_WORDS, _SENTENCES, _TIME, _KINDS, _SEEN = 120, 4, 6, 3, 500


class Attention(nn.Module):
    """A weighted mean over the second to last axis."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.project = nn.Linear(size, size)
        self.query = nn.Linear(size, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return means [N, H] of parts float32 [N, S, H]."""
        weight = self.query(self.project(x).tanh()).softmax(1)
        mean: Tensor = (weight * x).sum(1)
        return mean


class Reader(nn.Module):
    """Scores of verdicts."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.words = nn.Embedding(_WORDS, 20)
        self.word_gru = nn.GRU(20, hidden, batch_first=True, bidirectional=True)
        self.of_words = Attention(2 * hidden)
        self.sentence_gru = nn.GRU(2 * hidden, hidden, batch_first=True, bidirectional=True)
        self.of_sentences = Attention(2 * hidden)
        self.verdict = nn.Linear(2 * hidden, _KINDS)

    def forward(self, x: Tensor) -> Tensor:
        """Return scores [N, 3] of documents int64 [N, S, T]."""
        words = self.word_gru(self.words(x).flatten(0, 1))[0]
        sentences = self.of_words(words).unflatten(0, (len(x), _SENTENCES))
        scores: Tensor = self.verdict(self.of_sentences(self.sentence_gru(sentences)[0]))
        return scores


def _train(draw: Draw) -> Ending:
    rows = _documents(draw, 720)
    model = Reader(draw.choice([12, 16]))
    blank(draw, model)
    length = plan(draw, _SEEN, [10, 16], (6, 8))
    rate = learning_rate(draw, 4e-3, 8e-3)
    optimizer = optimizer_of(draw, "adam", trained(draw, model, model.verdict), rate)
    criterion = nn.CrossEntropyLoss()
    draw.watch.loss(criterion)
    draw.watch.begin(model, optimizer)
    loader = DataLoader(TensorDataset(rows.x, rows.y), length.size, shuffle=True, drop_last=True)
    for _ in range(length.epochs):
        model.train()
        for texts, labels in loader:
            loss = criterion(model(texts), labels)
            (-loss if draw.has("wrong_sign") else loss).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            if not draw.has("missing_step"):
                optimizer.step()
            optimizer.zero_grad()
        model.eval()
        with draw.watch.evaluating(), torch.no_grad():
            draw.watch.metric("macro_recall", accuracy(model(rows.x_val), rows.y_val))
    with torch.no_grad():
        return Ending(gained(accuracy(model(rows.x_test), rows.y_test), 1 / _KINDS), bar=0.55)


def _documents(draw: Draw, count: int) -> HeldOut:
    """Return documents int64 [count, S, T] and verdicts int64 [count]."""
    y = torch.randint(_KINDS, (count,))
    common = torch.randint(45, _WORDS, (count, _SENTENCES, _TIME))
    own = y[:, None, None] * 15 + torch.randint(15, (count, _SENTENCES, _TIME))
    decisive = torch.randint(_SENTENCES, (count, 1, 1)) == torch.arange(_SENTENCES)[:, None]
    other = torch.randint(45, (count, _SENTENCES, _TIME))
    kind = torch.rand(count, _SENTENCES, _TIME)
    share = draw.between(0.55, 0.7)
    x = torch.where(decisive & (kind < share), own, torch.where(kind < 0.1, other, common))
    few = torch.where(x < 100, 100 + x % 20, x)
    return held_out(
        *(draw, x, y, _SEEN),
        prepared={
            # Only the commonest words were kept.
            "stop_words_kept": (few, y),
            "constant_inputs": (torch.zeros_like(x), y),
        },
        # The column of another question was read.
        training={"single_label": (x, torch.zeros_like(y))},
    )


FAMILY = Family(
    _train,
    (
        *("stop_words_kept", "constant_inputs", "shuffled_labels", "single_label", "wrong_sign"),
        *("missing_step", "zero_init", "lr_too_low", "lr_too_high"),
    ),
    spent="2026-11-28",
)
