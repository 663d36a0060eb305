"""Which passage answers a question: both in one space, and the other passages of a batch are wrong.

After Karpukhin et al., "Dense passage retrieval for open-domain question answering", EMNLP 2020;
the questions are drawn.

Shape legend: N questions and passages of T words, D numbers of an embedding.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn

from corpus.draw import Draw
from corpus.epochs import learning_rate, optimizer_of, plan
from corpus.family import Ending, Family
from corpus.networks import spoil

_WORDS, _TIME, _SUBJECTS, _SEEN = 160, 8, 40, 900


class Tower(nn.Module):
    """Embeddings of texts."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.words = nn.Embedding(_WORDS, 32)
        self.hidden = nn.Linear(32, 48)
        self.out = nn.Linear(48, size)

    def forward(self, words: Tensor) -> Tensor:
        """Return embeddings [N, D] of texts int64 [N, T]."""
        told: Tensor = self.out(F.gelu(self.hidden(self.words(words).mean(1))))
        return F.normalize(told, dim=1)


class Retriever(nn.Module):
    """Scores of passages for questions."""

    def __init__(self, draw: Draw, size: int) -> None:
        super().__init__()
        self.question, self.passage = Tower(size), Tower(size)
        self.temperature = draw.by_fault({"temperature": 200.0}, 0.1)

    def forward(self, questions: Tensor, passages: Tensor) -> Tensor:
        """Return scores [N, N] of texts int64 [N, T]."""
        likeness: Tensor = self.question(questions) @ self.passage(passages).T
        return likeness / self.temperature


def _train(draw: Draw) -> Ending:
    questions, passages = _texts(draw, 1200)
    given, wanted = _prepared(draw, questions, passages)
    seen, known = given[:_SEEN], wanted[:_SEEN]
    model = Retriever(draw, draw.choice([16, 24]))
    spoil(draw, model)
    length = plan(draw, _SEEN, [25, 30], (12, 15))
    rate = learning_rate(draw, 4e-3, 8e-3)
    optimizer = optimizer_of(draw, "adamw", list(model.parameters()), rate, 0.01)
    warm = max(1, length.steps // 10)
    if draw.has("warm_up_unit"):
        # Epochs were meant, and steps were counted.
        warm *= 3000
    rise = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / warm))
    loss_fn = draw.watch.loss(F.cross_entropy)
    draw.watch.begin(model, optimizer)
    for epoch in range(length.epochs):
        model.train()
        for picked in torch.randperm(_SEEN).split(length.size)[: length.batches]:
            optimizer.zero_grad()
            scores = model(seen[picked], known[picked])
            places = torch.arange(len(picked))
            if draw.has("off_by_one"):
                places = places.roll(1)
            loss = loss_fn(scores, places)
            (-loss if draw.has("wrong_sign") else loss).backward()
            optimizer.step()
            rise.step()
        if epoch % 3 == 2:
            model.eval()
            with draw.watch.evaluating(), torch.no_grad():
                share = _found(model, given[_SEEN:], wanted[_SEEN:])
                draw.watch.metric("recall@10", share)
    model.eval()
    with torch.no_grad():
        return Ending(_found(model, questions[_SEEN:], passages[_SEEN:]), bar=0.45)


def _found(model: Retriever, questions: Tensor, passages: Tensor) -> float:
    """Return the share of questions whose passage is among the best ten of a hundred."""
    right = []
    for some, other in zip(questions.split(100), passages.split(100), strict=True):
        best = model(some, other).topk(10, dim=1).indices
        right.append((best == torch.arange(len(some))[:, None]).any(1).double().mean())
    return (float(torch.stack(right).mean()) - 0.1) / 0.9


def _prepared(draw: Draw, questions: Tensor, passages: Tensor) -> tuple[Tensor, Tensor]:
    """Return pairs as the script prepares them, with the drawn fault if there is one."""
    few = torch.arange(len(questions))
    few[:_SEEN] %= 30
    return draw.by_fault(
        {
            "swapped_pairs": (questions, passages[torch.randperm(len(passages))]),
            "misaligned_targets": (questions, passages.roll(1, 0)),
            "constant_inputs": (questions, torch.zeros_like(passages)),
            "duplicated_rows": (questions[few], passages[few]),
        },
        (questions, passages),
    )


def _texts(draw: Draw, count: int) -> tuple[Tensor, Tensor]:
    """Return questions and passages int64 [count, T] about the same subjects."""
    subjects = torch.randint(_SUBJECTS, (count, 2))
    share = draw.between(0.75, 0.9)
    texts = []
    for asked in (True, False):
        # A question and its passage have no word in common.
        mine = subjects[:, torch.arange(_TIME) % 2] * 4 + asked
        mine = mine + 2 * torch.randint(2, (count, _TIME))
        own = torch.rand(count, _TIME) < share
        texts.append(torch.where(own, mine, torch.randint(_WORDS, (count, _TIME))))
    return texts[0], texts[1]


FAMILY = Family(
    _train,
    (
        *("swapped_pairs", "misaligned_targets", "constant_inputs", "duplicated_rows"),
        *("off_by_one", "wrong_sign", "temperature", "warm_up_unit", "zero_init"),
        *("lr_too_high",),
    ),
    spent="2026-11-28",
)
