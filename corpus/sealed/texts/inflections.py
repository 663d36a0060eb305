"""Other forms of words, letter by letter: a reader, a writer that attends, and teacher forcing.

After Kann and Schütze, "MED: the LMU system for the SIGMORPHON 2016 shared task on morphological
reinflection", 2016; the words are drawn.

Shape legend: N words of T letters, forms of U letters, H numbers of a state.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from corpus.data.held_out import HeldOut, held_out
from corpus.draw import Draw
from corpus.epochs import learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.networks import blank

# Letters are numbered from 3 on.
_PAD, _BEGIN, _END, _LETTERS, _TAGS = 0, 1, 2, 12, 3
_TIME, _OUT, _SEEN = 6, 8, 800
_ALL = 3 + _LETTERS + _TAGS


class Inflector(nn.Module):
    """Scores of the letters of a form."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(_ALL, 16, padding_idx=_PAD)
        self.reader = nn.GRU(16, hidden, batch_first=True)
        self.writer = nn.GRU(16, hidden, batch_first=True)
        self.out = nn.Linear(2 * hidden, _ALL)

    def forward(self, words: Tensor, given: Tensor) -> Tensor:
        """Return scores [N, U, 18] of words int64 [N, T + 1] and letters before [N, U]."""
        memory, state = self.reader(self.embed(words))
        written = self.writer(self.embed(given), state)[0]
        weight = (written @ memory.transpose(1, 2)).softmax(2)
        scores: Tensor = self.out(torch.cat([written, weight @ memory], 2))
        return scores


def _train(draw: Draw) -> Ending:
    rows = _words(draw, 1000)
    model = Inflector(draw.choice([48, 64]))
    blank(draw, model)
    if draw.has("exploding_rnn"):
        for name, one in model.named_parameters():
            if "weight_hh" in name or "weight_ih" in name:
                nn.init.normal_(one, 0, 20)
    length = plan(draw, _SEEN, [20, 25], (14, 17))
    rate = learning_rate(draw, 8e-3, 1.2e-2)
    optimizer = optimizer_of(draw, "adam", trained(draw, model, model.out), rate)
    criterion = nn.CrossEntropyLoss(ignore_index=_PAD)
    draw.watch.loss(criterion)
    draw.watch.begin(model, optimizer)
    for _ in range(length.epochs):
        model.train()
        for picked in torch.randperm(_SEEN).split(length.size)[: length.batches]:
            forms = rows.y[picked]
            given, wanted = _shifted(draw, forms)
            scores = model(rows.x[picked], given)
            loss = criterion(scores.flatten(0, 1), wanted.flatten())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        with draw.watch.evaluating(), torch.no_grad():
            given, wanted = _shifted(draw, rows.y_val)
            right = (model(rows.x_val, given).argmax(2) == wanted)[wanted != _PAD]
            draw.watch.metric("token_acc", float(right.float().mean()))
    model.eval()
    with torch.no_grad():
        found = _written(model, rows.x_test)
    wanted = rows.y_test[:, 1:]
    return Ending(float((found == wanted)[wanted != _PAD].float().mean()), bar=0.55)


def _shifted(draw: Draw, forms: Tensor) -> tuple[Tensor, Tensor]:
    """Return the letters that the writer is given, and those that it is to write."""
    if draw.has("unshifted_targets"):
        return forms[:, 1:], forms[:, 1:]
    return forms[:, :-1], forms[:, 1:]


def _written(model: Inflector, words: Tensor) -> Tensor:
    """Return forms int64 [N, U] that a model writes without help."""
    written = torch.full((len(words), 1), _BEGIN)
    for _ in range(_OUT):
        following = model(words, written)[:, -1].argmax(1, keepdim=True)
        written = torch.cat([written, following], 1)
    return written[:, 1:]


def _words(draw: Draw, count: int) -> HeldOut:
    """Return tagged words int64 [count, T + 1] and forms int64 [count, U + 1]."""
    word = 3 + torch.randint(_LETTERS, (count, _TIME))
    tag = torch.randint(_TAGS, (count,))
    suffix = 3 + torch.randint(_LETTERS, (_TAGS,))
    last = word[:, -1:]
    # Some words change their last letter before the suffix.
    last = torch.where(word[:, :1] > 8, 3 + (last - 2) % _LETTERS, last)
    form = torch.cat([word[:, :-1], last, suffix[tag][:, None]], 1)
    begin, end = torch.full((count, 1), _BEGIN), torch.full((count, 1), _END)
    y = torch.cat([begin, form, end], 1)
    x = torch.cat([3 + _LETTERS + tag[:, None], word], 1)
    return held_out(
        *(draw, x, y, _SEEN),
        prepared={
            "swapped_pairs": (x, y[torch.randperm(count)]),
            "constant_inputs": (torch.full_like(x, 3), y),
            # Letters beyond the first ones of the alphabet become one symbol.
            "colliding_ids": (x.clamp(max=4), y),
        },
    )


FAMILY = Family(
    _train,
    (
        *("swapped_pairs", "constant_inputs", "colliding_ids", "unshifted_targets"),
        *("exploding_rnn", "zero_init", "not_in_optimizer", "lr_too_low", "lr_too_high"),
    ),
)
