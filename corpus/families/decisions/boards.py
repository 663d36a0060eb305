"""The best moves of noughts and crosses, and who wins: one body, a policy and a value.

After Silver et al., "Mastering the game of Go without human knowledge", Nature 2017, whose loss
has both terms; the positions are solved.

Shape legend: N positions of 9 cells.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn

from corpus import networks
from corpus.draw import Draw
from corpus.epochs import fit, learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.loop import explained, gained

_SEEN = 2400
_LINES = (
    *((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8)),
    *((0, 4, 8), (2, 4, 6)),
)
Board = tuple[int, ...]


class PolicyValue(nn.Module):
    """Scores of moves [N, 9], and values [N, 1], of positions float32 [N, 18]."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *(nn.Linear(18, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()),
        )
        self.policy, self.value = nn.Linear(width, 9), nn.Linear(width, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return both."""
        told = self.body(x)
        won = self.value(told)
        # A value is between a loss, -1, and a win, 1.
        return self.policy(told), won.tanh()


def _train(draw: Draw) -> Ending:
    solved = _solved()
    order = torch.tensor(draw.numpy.permutation(len(solved[0]))[:3200])
    x, moves, value = (one[order] for one in solved)
    seen, best, won = _spoilt(draw, x[:_SEEN], moves[:_SEEN], value[:_SEEN])
    model = PolicyValue(draw.choice([96, 128]))
    networks.spoil(draw, model)
    length = plan(draw, _SEEN, [30, 40], (14, 18))
    rate = learning_rate(draw, 3e-3, 5e-3)
    optimizer = optimizer_of(draw, "adamw", trained(draw, model, model.value), rate, 1e-3)
    weight = draw.by_fault({"term_left_out": 0.0, "term_wrong_sign": -1.0}, 1.0)

    def both(scores: Tensor, found: Tensor, targets: Tensor, wanted: Tensor) -> Tensor:
        policy = -(targets * F.log_softmax(scores, 1)).sum(1).mean()
        return policy + weight * F.mse_loss(found, wanted)

    loss = draw.watch.loss(both)

    def compute(rows: Tensor) -> Tensor:
        scores, found = model(seen[rows])
        return loss(scores, found, best[rows], won[rows])

    def evaluate() -> Mapping[str, float]:
        scores, found = model(x[_SEEN:])
        free = x[_SEEN:, :9] + x[_SEEN:, 9:] == 0
        chosen = scores.masked_fill(~free, -torch.inf).argmax(1, keepdim=True)
        right = float((moves[_SEEN:].gather(1, chosen) > 0).double().mean())
        chance = float(((moves[_SEEN:] > 0).sum(1) / free.sum(1)).mean())
        return {"policy": gained(right, chance), "value": explained(found, value[_SEEN:])}

    chosen = evaluate if draw.chance(0.6) else None
    fit(draw, model, optimizer, length, compute, evaluate=chosen, every=4)
    model.eval()
    with torch.no_grad():
        return Ending(min(evaluate().values()), bar=0.4)


def _spoilt(draw: Draw, x: Tensor, moves: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return positions with the drawn fault, if there is one."""
    order = torch.randperm(len(x))
    few = torch.arange(len(x)) % 40
    return draw.by_fault(
        {
            # Crosses come first, whoever moves, and the value is that of who moves.
            "players_swapped": (torch.cat([x[:, 9:], x[:, :9]], 1), moves, value),
            "shuffled_labels": (x, moves[order], value[order]),
            "duplicated_rows": (x[few], moves[few], value[few]),
            # Those of the position before, in the record of a game.
            "misaligned_targets": (x, moves.roll(1, 0), value.roll(1, 0)),
        },
        (x, moves, value),
    )


@cache
def _value(board: Board) -> int:
    """Return the value of a position for who is to move, whose cells are 1 and the others' -1."""
    if any(all(board[cell] == -1 for cell in line) for line in _LINES):
        return -1
    return max((-_value(_moved(board, cell)) for cell in _free(board)), default=0)


def _free(board: Board) -> list[int]:
    return [cell for cell in range(9) if board[cell] == 0]


def _moved(board: Board, cell: int) -> Board:
    """Return the position after a move, as the other player sees it."""
    return tuple(-(1 if place == cell else one) for place, one in enumerate(board))


def _solved() -> tuple[Tensor, Tensor, Tensor]:
    """Return all open positions [N, 18], shares of their best moves [N, 9] and values [N, 1]."""
    begun: Board = (0,) * 9
    known, waiting = {begun: None}, [begun]
    for board in waiting:
        for cell in _free(board):
            after = _moved(board, cell)
            lost = any(all(after[one] == -1 for one in line) for line in _LINES)
            if after not in known and not lost and 0 in after:
                known[after] = None
                waiting.append(after)
    boards = torch.tensor(waiting)
    x = torch.cat([boards == 1, boards == -1], 1).float()
    values = torch.tensor([[float(_value(one))] for one in waiting])
    best = torch.tensor(
        [
            [
                float(one[cell] == 0 and -_value(_moved(one, cell)) == _value(one))
                for cell in range(9)
            ]
            for one in waiting
        ]
    )
    return x, best / best.sum(1, keepdim=True), values


FAMILY = Family(
    _train,
    (
        *("players_swapped", "shuffled_labels", "duplicated_rows", "misaligned_targets"),
        *("term_left_out", "term_wrong_sign"),
        *("dead_relu", "frozen_layers", "weight_decay_too_high", "lr_too_high"),
    ),
    spent="2026-11-28",
)
