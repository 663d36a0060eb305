"""Symbols in noisy frames, without alignment: connectionist temporal classification.

After Graves et al., "Connectionist temporal classification", ICML 2006.

Shape legend: N sequences, T frames, F features, S symbols of a sequence, C symbols and the blank.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import groupby

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn

from corpus import networks
from corpus.data.rows import batches
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import evaluation, run_loop
from corpus.losses import Loss
from corpus.optimisation import Optimisation

_FRAMES, _SYMBOLS = 16, 3


class Reader(nn.Module):
    """Convolutions along the frames."""

    def __init__(self, features: int, width: int, outputs: int) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv1d(features, width, 3, padding=1),
            nn.ReLU(),
            nn.Conv1d(width, width, 3, padding=1),
            nn.ReLU(),
            nn.Conv1d(width, outputs, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return scores [T, N, C] of sequences [N, T, F]."""
        scores: Tensor = self.net(x.transpose(1, 2))
        return scores.permute(2, 0, 1)


def _train(draw: Draw) -> Ending:
    kinds, features = draw.choice([4, 6, 8]), draw.choice([8, 12])
    x, y = _sequences(draw, kinds, features, 1800)
    x_train, y_train, x_val, y_val = x[:1500], y[:1500], x[1500:], y[1500:]
    if draw.has("shuffled_labels"):
        y_train = y_train[torch.randperm(len(y_train))]
    if draw.has("wrong_axis"):
        # `reshape` in place of a transposition: a frame has features of several.
        x_train, x_val = (part.mT.reshape(part.shape) for part in (x_train, x_val))
    model = Reader(features, draw.choice([32, 48]), kinds + 1)
    networks.spoil(draw, model)
    steps = draw.steps(250, 500)
    optimiser = Optimisation(
        draw, model, steps, scale=2.0, kinds=("adam", "adamw", "rmsprop"), accumulates=False
    )
    loss = _loss(draw, kinds)
    source = batches(draw, x_train, y_train, draw.choice([32, 64]))

    def compute() -> Tensor:
        batch, symbols = next(source)
        return loss(model(batch), symbols)

    def evaluate() -> Mapping[str, float]:
        return {"error_rate": 1 - _read(model(x_val), y_val)}

    chosen = evaluate if draw.chance(0.7) else None
    run_loop(draw, model, optimiser, steps, compute=compute, evaluate=chosen)
    with evaluation(draw, model):
        return Ending(_read(model(x_val), y_val), bar=0.6)


def _loss(draw: Draw, kinds: int) -> Loss:
    """Return a loss of scores [T, N, C] and symbols int64 [N, S]."""
    blank = kinds if draw.has("blank_index") else 0
    usual: list[Callable[..., Tensor]] = [
        nn.CTCLoss(blank=blank, zero_infinity=True),
        partial(F.ctc_loss, blank=blank, zero_infinity=True),
    ]
    core, short = draw.choice(usual), draw.has("sequence_lengths")

    def loss(scores: Tensor, symbols: Tensor) -> Tensor:
        logs = scores.softmax(2) if draw.has("nll_on_probabilities") else scores.log_softmax(2)
        count = len(symbols)
        # The lengths of the symbols were given as those of the frames.
        frames = torch.full((count,), _SYMBOLS if short else _FRAMES)
        return core(logs, symbols, frames, torch.full((count,), _SYMBOLS))

    return draw.watch.loss(loss)


def _sequences(draw: Draw, kinds: int, features: int, count: int) -> tuple[Tensor, Tensor]:
    """Return frames [N, T, F], and the symbols [N, S] from 1 on, no two in a row the same."""
    look = torch.randn(kinds + 1, features)
    look[0] = 0
    jump = torch.randint(1, kinds, (count, _SYMBOLS))
    y = jump.cumsum(1) % kinds + 1
    # Symbols last two to four frames; there is silence before, between and after them.
    x = torch.zeros(count, _FRAMES, dtype=torch.int64)
    for row in range(count):
        place = int(torch.randint(0, 3, ()))
        for symbol in y[row].tolist():
            lasts, pause = torch.randint(2, 5, ()), torch.randint(0, 2, ())
            x[row, place : place + int(lasts)] = symbol
            place += int(lasts) + int(pause)
    noise = draw.between(0.2, 0.6)
    return look[x] + noise * torch.randn(count, _FRAMES, features), y


def _read(scores: Tensor, symbols: Tensor) -> float:
    """Return 1 less the edit distance per symbol of the best path of each sequence."""
    wrong = 0
    for path, wanted in zip(scores.argmax(2).T.tolist(), symbols.tolist(), strict=True):
        wrong += _distance([one for one, _ in groupby(path) if one], wanted)
    return 1 - wrong / symbols.numel()


def _distance(said: list[int], wanted: list[int]) -> int:
    """Return the Levenshtein distance."""
    row = list(range(len(wanted) + 1))
    for place, one in enumerate(said, 1):
        before, row[0] = row[0], place
        for at, other in enumerate(wanted, 1):
            change = before + (one != other)
            before, row[at] = row[at], min(row[at] + 1, row[at - 1] + 1, change)
    return row[-1]


FAMILY = Family(
    _train,
    (
        *("blank_index", "sequence_lengths", "nll_on_probabilities", "wrong_axis"),
        *("shuffled_labels", "same_batch", "ruinous_augmentation"),
        *("lr_too_high", "lr_too_low", "scheduler_to_zero", "zero_init", "wrong_parameters"),
    ),
    spent="2026-11-25",
)
