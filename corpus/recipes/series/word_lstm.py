"""A recurrent language model of words.

Settings: pytorch/examples, `word_language_model` (after Zaremba et al., "Recurrent neural network
regularization", 2014), scaled down from 650 units: two LSTM layers, dropout, 35 words through time,
plain SGD with a rate of 20, gradients clipped at 0.25, the rate divided by 4 when the validation
loss does not fall.

Shape legend: T words through time, N columns of the text, V words.
"""

from __future__ import annotations

import re
from collections import Counter
from pydoc_data.topics import topics

import torch
from torch import Tensor, nn

from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import evaluation

_WORDS, _COLUMNS, _THROUGH, _EPOCHS = 500, 20, 35, 20

State = tuple[Tensor, Tensor]


class WordModel(nn.Module):
    """Log-probabilities [T * N, V] of the next words."""

    def __init__(self, width: int = 100, dropout: float = 0.2) -> None:
        super().__init__()
        self.drop, self.encoder = nn.Dropout(dropout), nn.Embedding(_WORDS, width)
        self.rnn = nn.LSTM(width, width, 2, dropout=dropout)
        self.decoder = nn.Linear(width, _WORDS)
        nn.init.uniform_(self.encoder.weight, -0.1, 0.1)
        nn.init.uniform_(self.decoder.weight, -0.1, 0.1)
        nn.init.zeros_(self.decoder.bias)

    def forward(self, words: Tensor, state: State | None) -> tuple[Tensor, State]:
        """Read words [T, N], after a state."""
        output, state = self.rnn(self.drop(self.encoder(words)), state)
        logits = self.decoder(self.drop(output))
        return logits.flatten(0, 1).log_softmax(1), state


def _train(draw: Draw) -> Ending:
    ids = _text()
    train, val = _columns(draw, ids[:28_000]), _columns(draw, ids[28_000:34_000])
    places = range(0, len(train) - 1 - _THROUGH, _THROUGH)
    draw.watch.expect(_EPOCHS * len(places))
    draw.epoch = len(places)
    model = WordModel()
    rate = 0.02 if draw.has("lr_too_low") else 20.0
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    criterion = nn.NLLLoss()
    draw.watch.loss(criterion)
    draw.watch.begin(model, optimizer)
    best = float("inf")
    for _ in range(_EPOCHS):
        model.train()
        state: State | None = None
        for start in places:
            words, wanted = train[start : start + _THROUGH], train[start + 1 :][:_THROUGH]
            if not draw.has("missing_zero_grad"):
                model.zero_grad()
            if state is not None:
                state = (state[0].detach(), state[1].detach())
            output, state = model(words, state)
            loss: Tensor = criterion(output, wanted.flatten())
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.25)
            optimizer.step()
        with draw.watch.evaluating(), evaluation(draw, model):
            reached = _surprise(model, val)
            draw.watch.metric("val_loss", reached)
        if reached < best:
            best = reached
        else:
            optimizer.param_groups[0]["lr"] /= 4.0
    # As the text is read, whatever the training took for it.
    text = ids[28_000:34_000].view(_COLUMNS, -1).t()
    counts = torch.bincount(ids[:28_000], minlength=_WORDS).float() + 1
    trivial = float(-(counts / counts.sum()).log()[text[1:]].mean())
    with evaluation(draw, model):
        return Ending(1 - _surprise(model, text) / trivial, bar=0.1, margin=0.06)


def _surprise(model: nn.Module, text: Tensor) -> float:
    """Return the mean negative log-probability of the words of a text [T, N] after the first."""
    output, _ = model(text[:-1], None)
    return float(nn.functional.nll_loss(output, text[1:].flatten()))


def _columns(draw: Draw, ids: Tensor) -> Tensor:
    """Return a text as columns [T, N] to be read in parallel."""
    if draw.has("wrong_axis"):
        # Neighbours in the text are now neighbours across the columns.
        return ids.view(-1, _COLUMNS)
    return ids.view(_COLUMNS, -1).t().contiguous()


def _text() -> Tensor:
    """Return the words of Python's language reference; rare ones are the word 0."""
    words = re.findall(r"[a-z]+|[.,:;()]", "".join(topics.values()).lower())[:34_000]
    common = {one: place + 1 for place, (one, _) in enumerate(Counter(words).most_common(499))}
    return torch.tensor([common.get(one, 0) for one in words])


FAMILY = Family(_train, ("missing_zero_grad", "lr_too_low", "wrong_axis"), spent="2026-11-25")
