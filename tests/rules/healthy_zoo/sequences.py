"""Healthy trainings on sequences and text: recurrent networks, a transformer, embeddings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.paths import ROOT
from tests.rules.healthy_zoo.data import batches
from tests.rules.healthy_zoo.loop import accuracy, seeded, watched
from vinedresser.capture import Hook

__all__ = ["SEQUENCES"]

_TEXT = ROOT / "LICENSE"


def _adding(rows: int, length: int = 12) -> tuple[Tensor, Tensor]:
    """Return sequences of numbers, two of them marked, and the sum of these two.

    The adding problem of Hochreiter and Schmidhuber (1997): [rows, length, 2] and [rows, 1].
    """
    numbers, marks = torch.rand(rows, length), torch.zeros(rows, length)
    half = length // 2
    marks[torch.arange(rows), torch.randint(0, half, (rows,))] = 1
    marks[torch.arange(rows), torch.randint(half, length, (rows,))] = 1
    return torch.stack([numbers, marks], 2), (numbers * marks).sum(1, keepdim=True)


class _Adder(nn.Module):
    """An LSTM that predicts a number from its last state."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(2, 32, batch_first=True)
        self.head = nn.Linear(32, 1)

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.lstm(x)
        out: Tensor = self.head(states[:, -1])
        return out


def _lstm(store: Path, seed: int) -> None:
    """The loss stays for some hundred steps at that of always predicting 1, then falls."""
    seeded(seed)
    model, loss_fn = _Adder(), nn.MSELoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    x_held, y_held = _adding(500)
    with watched(store, steps=1000, lr=5e-3) as hook:
        hook.watch(model, loss=loss_fn, optimizer=optimizer)
        for step in range(1000):
            if step % 100 == 0:
                model.eval()
                with torch.no_grad():
                    loss_fn(model(x_held), y_held)
                model.train()
            x, y = _adding(64)
            optimizer.zero_grad()
            loss_fn(model(x), y).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    with torch.no_grad():
        error = functional.mse_loss(model(x_held), y_held).item()
    # The variance of the sum is 1/6.
    assert error <= 0.03, f"squared error {error:.3f}"


class _LanguageModel(nn.Module):
    """A causal transformer of two layers over characters; input and output share the embedding."""

    def __init__(self, symbols: int, context: int, width: int = 32) -> None:
        super().__init__()
        self.embed = nn.Embedding(symbols, width)
        self.place = nn.Parameter(0.02 * torch.randn(context, width))
        layer = nn.TransformerEncoderLayer(
            width, 4, 4 * width, dropout=0.1, activation="gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, symbols, bias=False)
        nn.init.normal_(self.embed.weight, std=0.1)
        self.head.weight = self.embed.weight
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(context))

    def forward(self, tokens: Tensor) -> Tensor:
        states = self.embed(tokens) + self.place
        out: Tensor = self.head(self.norm(self.layers(states, mask=self.mask, is_causal=True)))
        return out


def _transformer(store: Path, seed: int) -> None:
    """Learns the text of a licence by characters; warm-up, then cosine decay."""
    seeded(seed)
    text = _TEXT.read_text()
    symbols = {one: number for number, one in enumerate(sorted(set(text)))}
    tokens = torch.tensor([symbols[one] for one in text])
    context, steps = 32, 500
    windows = tokens.unfold(0, context + 1, 1)
    train, held = windows[: int(0.9 * len(windows))], windows[int(0.9 * len(windows)) :: 8]
    model, loss_fn = _LanguageModel(len(symbols), context), nn.CrossEntropyLoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda t: min((t + 1) / 50, 0.5 * (1 + np.cos(np.pi * t / steps)))
    )
    rows = batches(len(train), 16, seed)
    with watched(store, steps=steps, lr=3e-3) as hook:
        hook.watch(model, loss=loss_fn, optimizer=optimizer)
        for step in range(steps):
            if step % 100 == 0:
                model.eval()
                with torch.no_grad():
                    loss_fn(model(held[:, :-1]).flatten(0, 1), held[:, 1:].flatten())
                model.train()
            chosen = train[next(rows)]
            optimizer.zero_grad()
            loss_fn(model(chosen[:, :-1]).flatten(0, 1), chosen[:, 1:].flatten()).backward()
            optimizer.step()
            schedule.step()
    model.eval()
    with torch.no_grad():
        loss = functional.cross_entropy(model(held[:, :-1]).flatten(0, 1), held[:, 1:].flatten())
    # The frequencies of the characters alone give 3.2.
    assert loss <= 2.6, f"cross-entropy {loss:.2f}"


def _documents(rows: int, generator: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Return texts of 20 words out of 2,000, [rows, 20], and their topics, one of four.

    How often words occur falls with their rank, as in a language; one in three is of the topic.
    """
    topics = generator.integers(0, 4, rows)
    common = np.minimum(generator.zipf(1.3, (rows, 20)), 1600) - 1
    special = 1600 + 100 * topics[:, None] + generator.integers(0, 100, (rows, 20))
    words = np.where(generator.random((rows, 20)) < 1 / 3, special, common)
    return torch.tensor(words), torch.tensor(topics)


def _embedding_bag(store: Path, seed: int) -> None:
    """The gradient of the embedding is sparse: words that do not occur are not updated."""
    seeded(seed)
    words, topics = _documents(3000, np.random.default_rng(0))
    model = nn.Sequential(nn.EmbeddingBag(2000, 16, sparse=True), nn.Linear(16, 4))
    loss_fn = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=2.0)
    rows = batches(2400, 32, seed)
    with watched(store, steps=800, lr=2.0) as hook:
        hook.watch(model, loss=loss_fn, optimizer=optimizer)
        for step in range(800):
            if step % 100 == 0:
                _evaluate(hook, model, loss_fn, words[2400:], topics[2400:])
            chosen = next(rows)
            optimizer.zero_grad()
            loss_fn(model(words[chosen]), topics[chosen]).backward()
            optimizer.step()
    with torch.no_grad():
        assert accuracy(model(words[2400:]), topics[2400:]) >= 0.9


def _evaluate(hook: Hook, model: nn.Module, loss_fn: nn.Module, x: Tensor, y: Tensor) -> None:
    model.eval()
    with torch.no_grad():
        outputs = model(x)
        loss_fn(outputs, y)
        hook.metric("accuracy", accuracy(outputs, y))
    model.train()


class _SkipGram(nn.Module):
    """Two embeddings that score pairs of a word and its context."""

    def __init__(self, words: int, width: int = 16) -> None:
        super().__init__()
        self.word = nn.Embedding(words, width)
        self.context = nn.Embedding(words, width)
        nn.init.uniform_(self.word.weight, -0.5 / width, 0.5 / width)
        nn.init.zeros_(self.context.weight)

    def forward(self, words: Tensor, contexts: Tensor) -> Tensor:
        scores: Tensor = (self.word(words)[:, None] * self.context(contexts)).sum(2)
        return scores


def _word_vectors(store: Path, seed: int) -> None:
    """Skip-grams with negative samples; one embedding starts at zero (Mikolov et al., 2013).

    The loss hardly changes at first, since each embedding depends on the other.
    """
    seeded(seed)
    # Words 0 to 199 in 20 groups; four in five neighbours are of the same group.
    model, loss_fn = _SkipGram(200), nn.BCEWithLogitsLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    target = torch.zeros(128, 4)
    target[:, 0] = 1.0
    with watched(store, lr=1e-2) as hook:
        hook.watch(model, loss=loss_fn, optimizer=optimizer)
        for _ in range(600):
            words = torch.randint(0, 200, (128,))
            near = words // 10 * 10 + torch.randint(0, 10, (128,))
            near = torch.where(torch.rand(128) < 0.8, near, torch.randint(0, 200, (128,)))
            contexts = torch.cat([near[:, None], torch.randint(0, 200, (128, 3))], 1)
            optimizer.zero_grad()
            loss_fn(model(words, contexts), target).backward()
            optimizer.step()
    vectors = functional.normalize(model.word.weight.detach(), dim=1)
    nearest = (vectors @ vectors.T - 2 * torch.eye(200)).argmax(1)
    assert (nearest // 10 == torch.arange(200) // 10).float().mean() >= 0.9


SEQUENCES = {
    "lstm": _lstm,
    "transformer": _transformer,
    "embedding_bag": _embedding_bag,
    "word_vectors": _word_vectors,
}
