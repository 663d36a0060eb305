"""Numbers in order of size, by a cell that points at one after the other.

After Vinyals, Fortunato and Jaitly, "Pointer networks", NeurIPS 2015.

Shape legend: N sequences, L numbers of each, H width.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn

from corpus import networks
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import gained


class Pointers(nn.Module):
    """An encoder and a decoder of `LSTMCell`, and attention that points."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.read = nn.LSTMCell(1, width)
        self.write = nn.LSTMCell(1, width)
        self.keys, self.query = nn.Linear(width + 1, width), nn.Linear(width, width, bias=False)
        self.score = nn.Linear(width, 1, bias=False)

    def forward(self, numbers: Tensor, chosen: Tensor | None = None) -> Tensor:
        """Return scores [N, L, L] of each choice.

        Args:
            numbers: float32 [N, L].
            chosen: choices int64 [N, L] that the decoder is told; None: its own.
        """
        state = None
        seen = []
        for one in numbers.split(1, dim=1):
            state = self.read(one, state)
            seen.append(state[0])
        inner = torch.cat([torch.stack(seen, 1), numbers[:, :, None]], 2)
        keys, last, scores = self.keys(inner), torch.zeros_like(numbers[:, :1]), []
        taken = torch.zeros_like(numbers)
        for at in range(numbers.shape[1]):
            state = self.write(last, state)
            score = self.score(torch.tanh(keys + self.query(state[0])[:, None]))[:, :, 0]
            score = score - 20 * taken
            scores.append(score)
            choice = score.argmax(1) if chosen is None else chosen[:, at]
            taken = taken + F.one_hot(choice, numbers.shape[1])
            last = numbers.gather(1, choice[:, None])
        return torch.stack(scores, 1)


def _train(draw: Draw) -> Ending:
    length = draw.choice([5, 6])
    model = Pointers(draw.choice([32, 48]))
    networks.spoil(draw, model)
    steps, size = draw.steps(350, 550), draw.choice([48, 64])
    rate = draw.between(4e-3, 8e-3)
    rate *= draw.by_fault({"lr_too_low": draw.extent(1e-5, 1e-3), "lr_too_high": 300.0}, 1.0)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    jump = draw.amount.uniform(0.4, 0.6) * steps
    draw.watch.begin(model, optimizer)
    valid, order = _sequences(draw.without_fault(), 400, length)
    for step in range(steps):
        if draw.has("late_jump") and step > jump:
            optimizer.param_groups[0]["lr"] = 1.0
        numbers, places = _sequences(draw, size, length)
        if draw.has("same_batch"):
            # The loader was asked for its first batch, again and again.
            numbers, places = valid[:3], order[:3]
        scores = model(numbers, places)
        # A sum over the choices, as the loss of each is added in the loop of other scripts.
        loss = F.cross_entropy(scores.transpose(1, 2), places, reduction="none").sum(1).mean()
        optimizer.zero_grad()
        (-loss if draw.has("wrong_sign") else loss).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 2.0)
        optimizer.step()
        if step % 100 == 99:
            with draw.watch.evaluating(), torch.no_grad():
                right = (model(valid).argmax(2) == order).float().mean()
                draw.watch.metric("pointed_right", float(right))
    with torch.no_grad():
        right = (model(valid).argmax(2) == order).float().mean()
    return Ending(gained(float(right), 1 / length), bar=0.6)


def _sequences(draw: Draw, count: int, length: int) -> tuple[Tensor, Tensor]:
    """Return numbers float32 [count, length] and the places int64 of the smallest to largest."""
    numbers = 2 * torch.rand(count, length) - 1
    order = numbers.argsort(1)
    if draw.has("misaligned_targets"):
        # The numbers were shuffled after they had been sorted.
        numbers = numbers.roll(1, 0)
    if draw.has("off_by_one"):
        order = (order + 1) % length
    if draw.has("constant_inputs"):
        numbers = torch.zeros_like(numbers)
    return numbers, order


FAMILY = Family(
    _train,
    (
        *("misaligned_targets", "off_by_one", "constant_inputs", "same_batch"),
        *("lr_too_low", "lr_too_high", "late_jump", "wrong_sign", "zero_init"),
    ),
    spent="2026-11-27",
)
