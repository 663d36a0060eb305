"""The language of a name, by a recurrent network of its letters.

Settings: PyTorch's tutorial "NLP from scratch: classifying names with a character-level RNN": one
layer of 128 with tanh, letters as one-hot vectors, SGD with a rate of 0.15, a batch of 64,
gradients clipped at 3, log-softmax and the negative log-likelihood. The languages are synthetic.

Shape legend: N names, T letters, V letters of the alphabet.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn

from corpus.data.rows import batches
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import accuracy, evaluation, gained, report_metrics

_STEPS, _LETTERS, _LANGUAGES, _LONG = 500, 20, 6, 8


class CharRNN(nn.Module):
    """Log-probabilities of languages [N, 6] of names [N, T, V]."""

    def __init__(self, *, batch_first: bool) -> None:
        super().__init__()
        self.rnn = nn.RNN(_LETTERS, 128, batch_first=batch_first)
        self.h2o = nn.Linear(128, _LANGUAGES)

    def forward(self, names: Tensor) -> Tensor:
        """Read, then classify."""
        read, _ = self.rnn(names)
        return F.log_softmax(self.h2o(read[:, -1]), dim=1)


def _train(draw: Draw) -> Ending:
    draw.watch.expect(_STEPS)
    x, y = _names(1800)
    x_train, y_train, x_val, y_val = x[:1400], y[:1400], x[1400:], y[1400:]
    if draw.has("shuffled_labels"):
        # The names come from a folder by language, and are shuffled once more without them.
        x_train = x_train[torch.randperm(1400)]
    # Time and batch are exchanged for the recurrent layer.
    model = CharRNN(batch_first=not draw.has("wrong_axis"))
    rate = 1.5e-4 if draw.has("lr_too_low") else 0.15
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    criterion = nn.NLLLoss()
    draw.watch.loss(criterion)
    draw.watch.begin(model, optimizer)

    def measure() -> Mapping[str, float]:
        return {"accuracy": float((model(x_val).argmax(1) == y_val).float().mean())}

    source = batches(draw, x_train, y_train, 64)
    for step in range(_STEPS):
        model.train()
        names, wanted = next(source)
        optimizer.zero_grad()
        loss: Tensor = criterion(model(names), wanted)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 3)
        optimizer.step()
        if step % 100 == 99:
            report_metrics(draw, model, measure)
    with evaluation(draw, model):
        return Ending(gained(accuracy(model(x_val), y_val), 1 / _LANGUAGES), bar=0.4)


def _names(count: int) -> tuple[Tensor, Tensor]:
    """Return names float32 [N, T, V] and their languages int64 [N]; a letter follows by chance."""
    following = (4 * torch.randn(_LANGUAGES, _LETTERS, _LETTERS)).softmax(2)
    y = torch.randint(_LANGUAGES, (count,))
    letters = [torch.randint(_LETTERS, (count,))]
    for _ in range(_LONG - 1):
        letters.append(torch.multinomial(following[y, letters[-1]], 1)[:, 0])
    return F.one_hot(torch.stack(letters, 1), _LETTERS).float(), y


FAMILY = Family(_train, ("wrong_axis", "shuffled_labels", "lr_too_low"), spent="2026-11-25")
