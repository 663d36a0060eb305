"""Answers to questions about pictures: convolutions, words, and a product of both.

After Antol et al., "VQA: visual question answering", ICCV 2015; the pictures and the questions are
drawn.

Shape legend: N pictures of 8 x 16 pixels, Q words of a question, C answers.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from corpus import networks
from corpus.draw import Draw
from corpus.epochs import learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.loop import accuracy, gained

_SIDE, _SEEN, _WORDS, _ANSWERS = 8, 1000, 6, 5


class VQANet(nn.Module):
    """Scores of answers."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.image_encoder = nn.Sequential(
            *(nn.Conv2d(1, 12, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(12, 24, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
            *(nn.Linear(24 * 8, size), nn.ReLU()),
        )
        self.question_encoder = nn.Embedding(_WORDS, size)
        self.classifier = nn.Sequential(nn.Linear(size, size), nn.ReLU())
        self.answer = nn.Linear(size, _ANSWERS)

    def forward(self, image: Tensor, question: Tensor) -> Tensor:
        """Return scores [N, C] of pictures float32 [N, 1, 8, 16] and words int64 [N, Q]."""
        seen = self.image_encoder(image)
        asked = self.question_encoder(question).sum(1)
        scores: Tensor = self.answer(self.classifier(seen * asked))
        return scores


def _train(draw: Draw) -> Ending:
    image, question, y = _questions(draw, 1400)
    given, asked, known = _prepared(draw, image, question, y)
    model = VQANet(draw.choice([40, 56]))
    networks.blank(draw, model)
    length = plan(draw, _SEEN, [20, 25], (11, 14))
    rate = learning_rate(draw, 3e-3, 5e-3)
    optimizer = optimizer_of(draw, "adam", trained(draw, model, model.answer), rate)
    criterion = nn.NLLLoss()
    draw.watch.loss(criterion)
    draw.watch.begin(model, optimizer)
    data = TensorDataset(given[:_SEEN], asked[:_SEEN], known[:_SEEN])
    loader = DataLoader(data, length.size, shuffle=True, drop_last=True)
    for epoch in range(length.epochs):
        model.train()
        for pictures, words, answers in loader:
            scores = model(pictures, words)
            loss = criterion(scores.log_softmax(1), answers)
            optimizer.zero_grad()
            (-loss if draw.has("wrong_sign") else loss).backward()
            if not draw.has("missing_step"):
                optimizer.step()
        if epoch % 3 == 2:
            model.eval()
            with draw.watch.evaluating(), torch.no_grad():
                scores = model(given[_SEEN:], asked[_SEEN:])
                draw.watch.metric("eval/answer_acc", accuracy(scores, known[_SEEN:]))
    model.eval()
    with torch.no_grad():
        reached = accuracy(model(given[_SEEN:], asked[_SEEN:]), y[_SEEN:])
    return Ending(gained(reached, 1 / _ANSWERS), bar=0.5)


def _prepared(
    draw: Draw, image: Tensor, question: Tensor, y: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return questions with the drawn fault, if there is one."""
    order = torch.randperm(len(y))
    return draw.by_fault(
        {
            # The tokenizer returns what it does not know for all words.
            "question_left_out": (image, torch.ones_like(question), y),
            "swapped_pairs": (image[order], question, y),
            "shuffled_labels": (image, question, y[order]),
            "constant_inputs": (torch.zeros_like(image), question, y),
        },
        (image, question, y),
    )


def _questions(draw: Draw, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return pictures float32 [count, 1, 8, 16], words int64 [count, 3] and answers int64."""
    shape, bright = torch.randint(3, (2, count)), torch.randint(2, (2, count))
    place = torch.arange(_SIDE) - (_SIDE - 1) / 2
    across, down = place.expand(_SIDE, _SIDE), place[:, None].expand(_SIDE, _SIDE)
    disc = torch.hypot(across, down) < 3
    square = (torch.maximum(across.abs(), down.abs()) < 3) & ~(disc & (across.abs() < 2))
    cross = torch.minimum(across.abs(), down.abs()) < 1
    shapes = torch.stack([disc, square, cross]).float()
    half = [shapes[shape[one]] * (2 * bright[one] - 1)[:, None, None] for one in range(2)]
    image = torch.cat(half, 2)[:, None]
    image = image + draw.between(0.15, 0.3) * torch.randn(count, 1, _SIDE, 2 * _SIDE)
    side, kind = torch.randint(2, (2, count))
    rows = torch.arange(count)
    y = torch.where(kind == 0, shape[side, rows], 3 + bright[side, rows])
    # "Which", the thing that is asked for, and the side.
    return image, torch.stack([torch.zeros_like(side), 2 + kind, 4 + side], 1), y


FAMILY = Family(
    _train,
    (
        *("question_left_out", "swapped_pairs", "shuffled_labels", "constant_inputs"),
        *("zero_init", "wrong_sign", "missing_step", "frozen_layers", "lr_too_low"),
        *("lr_too_high",),
    ),
    spent="2026-11-28",
)
