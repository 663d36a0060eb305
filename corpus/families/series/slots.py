"""What a sentence asks for, and what each of its words says about it: two answers of one network.

After Liu and Lane, "Attention-based recurrent neural network models for joint intent detection and
slot filling", Interspeech 2016.

Shape legend: N sentences, T words of a sentence, 4 intents, 4 slots.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from corpus import networks
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import accuracy, gained

_WORDS, _TIME, _SEEN, _NONE = 61, 9, 700, -100


class Reader(nn.Module):
    """Scores [N, 4] of intents and [N, T, 4] of slots, of words int64 [N, T]."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.words = nn.Embedding(_WORDS, 24, padding_idx=0)
        self.sides = nn.LSTM(24, width, batch_first=True, bidirectional=True)
        self.dropout = nn.Dropout(dropout)
        self.intent, self.slots = nn.Linear(2 * width, 4), nn.Linear(2 * width, 4)

    def forward(self, words: Tensor) -> tuple[Tensor, Tensor]:
        """Return the scores."""
        inner = self.dropout(self.sides(self.dropout(self.words(words)))[0])
        return self.intent(inner.amax(1)), self.slots(inner)


def _train(draw: Draw) -> Ending:
    words, intent, slots = _sentences(draw, 900)
    told, asked, filled = _spoilt(draw, words[:_SEEN], intent[:_SEEN], slots[:_SEEN])
    dropout = draw.by_fault({"dropout_too_high": 0.98}, draw.choice([0.0, 0.1]))
    model = Reader(draw.choice([24, 32]), dropout)
    networks.spoil(draw, model)
    networks.blank(draw, model)
    size, epochs = draw.choice([25, 35]), draw.whole(9, 13)
    draw.epoch = _SEEN // size
    draw.watch.expect(epochs * draw.epoch)
    rate = draw.between(4e-3, 8e-3)
    rate *= draw.by_fault({"lr_too_low": draw.extent(1e-5, 1e-4), "lr_too_high": 1000.0}, 1.0)
    if draw.has("frozen_layers"):
        # As if the words and the sides had been trained before.
        for one in (
            *model.words.parameters(),
            *model.sides.parameters(),
            *model.slots.parameters(),
        ):
            one.requires_grad_(False)
    trained = [one for one in model.parameters() if one.requires_grad]
    optimizer = torch.optim.Adam(trained, lr=rate)
    of_intent, of_slots = nn.CrossEntropyLoss(), nn.CrossEntropyLoss(ignore_index=_NONE)
    draw.watch.begin(model, optimizer)
    for epoch in range(epochs):
        model.train()
        for rows in torch.randperm(_SEEN).split(size):
            optimizer.zero_grad()
            found, tags = model(told[rows])
            loss = of_intent(found, asked[rows])
            if not draw.has("term_left_out"):
                loss = loss + of_slots(tags.flatten(0, 1), filled[rows].flatten())
            (-loss if draw.has("wrong_sign") else loss).backward()
            nn.utils.clip_grad_norm_(trained, 1.0)
            optimizer.step()
        model.eval()
        if epoch % 2:
            with draw.watch.evaluating(), torch.no_grad():
                right = _right(model, words[_SEEN:], intent[_SEEN:], slots[_SEEN:])
                draw.watch.metric("intent_acc", right[0])
                draw.watch.metric("slot_acc", right[1])
    with torch.no_grad():
        right = _right(model, words[_SEEN:], intent[_SEEN:], slots[_SEEN:])
    return Ending(gained(sum(right) / 2, 0.25), bar=0.7)


def _right(model: Reader, words: Tensor, intent: Tensor, slots: Tensor) -> tuple[float, float]:
    """Return how many intents and slots are right, the mean over their kinds."""
    found, tags = model(words)
    counted = slots >= 0
    return accuracy(found, intent), accuracy(tags[counted], slots[counted])


def _spoilt(draw: Draw, words: Tensor, intent: Tensor, slots: Tensor) -> tuple[Tensor, ...]:
    """Return sentences with the drawn fault, if there is one."""
    if draw.has("wrong_shift"):
        # The tokens begin with one of the tokenizer's own, the slots do not.
        return words, intent, slots.roll(1, 1).clamp(min=0)
    if draw.has("misaligned_targets"):
        return words, intent.roll(1), slots.roll(1, 0)
    if draw.has("mask_inverted"):
        return words, intent, torch.where(slots >= 0, _NONE, 0)
    if draw.has("colliding_ids"):
        return torch.where(words > 0, 1 + words % 4, words), intent, slots
    if draw.has("constant_inputs"):
        return torch.ones_like(words), intent, slots
    return words, intent, slots


def _sentences(draw: Draw, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return words int64 [count, T], 0 for none, intents [count], and slots [count, T]."""
    intent = torch.randint(4, (count,))
    # Words from 41 on say what is asked for; others fill a slot by what they are, or follow.
    words = torch.randint(1, 41, (count, _TIME))
    verb = torch.randint(_TIME - 3, (count, 1))
    words.scatter_(1, verb, 41 + 5 * intent[:, None] + torch.randint(5, (count, 1)))
    kind = torch.where(words < 41, words % 4, 0)
    turned = torch.roll(words % 5 == 0, 1, 1)
    turned[:, 0] = False
    slots = torch.where(turned, 3 - kind, kind)
    length = torch.tensor(draw.numpy.integers(_TIME - 3, _TIME + 1, (count, 1)))
    there = torch.arange(_TIME) < length
    return torch.where(there, words, 0), intent, torch.where(there, slots, _NONE)


FAMILY = Family(
    _train,
    (
        *("wrong_shift", "term_left_out", "mask_inverted", "misaligned_targets", "colliding_ids"),
        *("constant_inputs", "dropout_too_high", "frozen_layers", "lr_too_low", "lr_too_high"),
        *("wrong_sign", "zero_init"),
    ),
    spent="2026-11-27",
)
