"""Topics of short documents: what each is about, and which words each topic prefers.

After Srivastava and Sutton, "Autoencoding variational inference for topic models", ICLR 2017.

Shape legend: N documents, V words, K topics.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn
from torch.utils.data import DataLoader

from corpus import networks
from corpus.draw import Draw
from corpus.family import Ending, Family

_WORDS, _SEEN, _LENGTH = 100, 1500, 60


class Topics(nn.Module):
    """Shares of topics, inferred from counts of words, and the words of each topic."""

    def __init__(self, topics: int, width: int, dropout: float) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *(nn.Linear(_WORDS, width), nn.Softplus(), nn.Dropout(dropout)),
            *(nn.Linear(width, width), nn.Softplus()),
        )
        self.mean, self.log_variance = nn.Linear(width, topics), nn.Linear(width, topics)
        self.words = nn.Linear(topics, _WORDS)

    def forward(self, counts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return log-shares of words [N, V], and means and log-variances [N, K] of the topics."""
        inner = self.body(counts)
        mean, log_variance = self.mean(inner), self.log_variance(inner)
        place = mean
        if self.training:
            place = mean + torch.randn_like(mean) * (log_variance / 2).exp()
        return F.log_softmax(self.words(place.softmax(1)), 1), mean, log_variance


def _train(draw: Draw) -> Ending:
    counts, truth = _documents(draw, 2000)
    scale = 1e5 if draw.has("unnormalised_inputs") else 0.2
    seen = counts[:_SEEN]
    if draw.has("duplicated_rows"):
        # A crawler that fetched the same pages again and again.
        seen = seen[torch.randint(6, (_SEEN,))]
    dropout = draw.by_fault({"dropout_too_high": 0.99}, draw.choice([0.0, 0.1]))
    model = Topics(draw.choice([8, 12]), draw.choice([48, 64]), dropout)
    networks.spoil(draw, model)
    size, epochs = draw.choice([30, 50]), draw.whole(14, 20)
    draw.epoch = _SEEN // size
    draw.watch.expect(epochs * draw.epoch)
    rate = draw.between(4e-3, 8e-3)
    rate *= draw.by_fault({"lr_too_low": draw.extent(1e-5, 1e-4), "lr_too_high": 2000.0}, 1.0)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate, betas=(0.95, 0.999))
    draw.watch.begin(model, optimizer)
    price = draw.by_fault({"divergence_unscaled": 300.0, "term_wrong_sign": -3.0}, 1.0)
    # `DataLoader` makes the batches of a data set that is a tensor, too.
    loader: DataLoader[Tensor] = DataLoader(seen, size, shuffle=True)  # type: ignore[arg-type]
    for epoch in range(epochs):
        model.train()
        for batch in loader:
            told = torch.zeros_like(batch) if draw.has("constant_inputs") else batch
            wanted = batch.roll(1, 0) if draw.has("misaligned_targets") else batch
            words, mean, log_variance = model(scale * told)
            lost = -(wanted * words).sum(1)
            divergence = (mean.square() + log_variance.exp() - 1 - log_variance).sum(1) / 2
            loss = (lost + price * divergence).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        if epoch % 3 == 2:
            with draw.watch.evaluating(), torch.no_grad():
                lost = _surprise(model(scale * counts[_SEEN:])[0], counts[_SEEN:])
                draw.watch.metric("perplexity", float(lost.exp()))
    with torch.no_grad():
        reached = _surprise(model(scale * counts[_SEEN:])[0], counts[_SEEN:])
    alone = _surprise(counts[:_SEEN].mean(0).div(_LENGTH).log(), counts[_SEEN:])
    best = _surprise(truth[_SEEN:].log(), counts[_SEEN:])
    return Ending(max(-1.0, float((alone - reached) / (alone - best))), bar=0.45)


def _surprise(words: Tensor, counts: Tensor) -> Tensor:
    """Return the nats of a word, on average, of log-shares [N, V] or [V]."""
    return -(counts * words).sum(1).mean() / _LENGTH


def _documents(draw: Draw, count: int) -> tuple[Tensor, Tensor]:
    """Return counts float32 [count, V] of words, and the shares [count, V] they are drawn from."""
    topics = draw.numpy.dirichlet([0.08] * _WORDS, 6)
    shares = draw.numpy.dirichlet([draw.between(0.1, 0.2)] * 6, count) @ topics
    shares = 0.95 * shares + 0.05 / _WORDS
    counts = draw.numpy.multinomial(_LENGTH, shares)
    told, truth = (torch.tensor(one, dtype=torch.float32) for one in (counts, shares))
    return told, truth


FAMILY = Family(
    _train,
    (
        *("divergence_unscaled", "term_wrong_sign", "duplicated_rows", "misaligned_targets"),
        *("constant_inputs", "unnormalised_inputs", "dropout_too_high", "lr_too_low"),
        *("lr_too_high", "zero_init", "detached_graph"),
    ),
    spent="2026-11-27",
)
