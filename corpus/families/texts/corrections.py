"""The right letter at each place of a misspelt word: letters, convolutions and a score per letter.

After Ghosh and Kristensson, "Neural networks for text correction and completion in keyboard
decoding", 2017; the words are drawn.

Shape legend: N words of T letters.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from corpus.data.held_out import HeldOut, held_out
from corpus.draw import Draw
from corpus.epochs import learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.loop import gained
from corpus.networks import spoil

_LETTERS, _TIME, _LEXICON, _SEEN = 20, 8, 30, 1200


class Speller(nn.Module):
    """Scores of letters."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.letters = nn.Embedding(_LETTERS, 16)
        self.conv = nn.Conv1d(16, width, 5, padding=2)
        self.mix = nn.Linear(_TIME * width, 64)
        self.back = nn.Linear(64 + width, _LETTERS)

    def forward(self, words: Tensor) -> Tensor:
        """Return scores [N, T, 20] of words int64 [N, T]."""
        x = F.relu(self.conv(self.letters(words).transpose(1, 2)))
        whole = F.relu(self.mix(x.flatten(1)))
        x = torch.cat([x.transpose(1, 2), whole[:, None].expand(-1, _TIME, -1)], 2)
        scores: Tensor = self.back(x)
        return scores


def _train(draw: Draw) -> Ending:
    rows = _words(draw, 1700)
    model = Speller(draw.choice([24, 32]))
    spoil(draw, model)
    length = plan(draw, _SEEN, [24, 30], (10, 12))
    rate = learning_rate(draw, 5e-3, 1e-2)
    optimizer = optimizer_of(draw, "adamw", trained(draw, model, model.back), rate, 0.01)
    loss_fn = draw.watch.loss(F.nll_loss)
    draw.watch.begin(model, optimizer)
    loader = DataLoader(TensorDataset(rows.x, rows.y), length.size, shuffle=True, drop_last=True)
    # Over the letters of a word, and not over the letters of the alphabet.
    axis = 1 if draw.has("softmax_wrong_axis") else 2
    for epoch in range(length.epochs):
        model.train()
        for words, right in loader:
            optimizer.zero_grad()
            found = model(words).log_softmax(axis)
            loss = loss_fn(found.flatten(0, 1), right.flatten())
            loss.backward()
            optimizer.step()
        if epoch % 2:
            model.eval()
            with draw.watch.evaluating(), torch.no_grad():
                share = (model(rows.x_val).argmax(2) == rows.y_val).double().mean()
                draw.watch.metric("char_accuracy", float(share))
    model.eval()
    with torch.no_grad():
        found, wrong = model(rows.x_test).argmax(2), rows.x_test != rows.y_test
    return Ending(gained(float((found == rows.y_test)[wrong].double().mean()), 0.05), bar=0.4)


def _words(draw: Draw, count: int) -> HeldOut:
    """Return misspelt words, and words, both int64 [count, T]."""
    lexicon = torch.randint(_LETTERS, (_LEXICON, _TIME))
    y = lexicon[torch.randint(_LEXICON, (count,))]
    wrong = torch.rand(y.shape) < draw.between(0.1, 0.16)
    x = torch.where(wrong, torch.randint(_LETTERS, y.shape), y)
    return held_out(
        *(draw, x, y, _SEEN),
        prepared={
            # The words of both files are in another order.
            "swapped_pairs": (x, y[torch.randperm(count)]),
            "wrong_axis": (x.T.reshape(x.shape), y),
            "constant_inputs": (torch.zeros_like(x), y),
        },
    )


FAMILY = Family(
    _train,
    (
        *("swapped_pairs", "wrong_axis", "constant_inputs", "softmax_wrong_axis"),
        *("large_init", "not_in_optimizer", "lr_too_low", "lr_too_high"),
    ),
    spent="2026-11-28",
)
