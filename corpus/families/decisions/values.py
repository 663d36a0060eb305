"""How good each cell of a garden is for one who strolls: temporal differences and a second network.

After Sutton, "Learning to predict by the methods of temporal differences", Machine Learning 1988,
with the target network of Mnih et al., Nature 2015; the exact values solve a linear system.

Shape legend: N moves, S cells.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from corpus import networks
from corpus.draw import Draw
from corpus.epochs import fit, learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.loop import explained

_SIDE, _MOVES, _DISCOUNT, _PERIOD = 5, 3000, 0.9, 15
_CELLS = _SIDE * _SIDE


def _train(draw: Draw) -> Ending:
    state, reward, after, ended, exact = _strolls(draw)
    here, paid, there, over = _spoilt(draw, state, reward, after, ended)
    width = draw.choice([48, 64])
    head = nn.Linear(width, 1)
    model = nn.Sequential(
        *(nn.Linear(_CELLS, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), head)
    )
    networks.spoil(draw, model)
    target = copy.deepcopy(model)
    length = plan(draw, _MOVES, [50, 60], (14, 18))
    rate = learning_rate(draw, 2e-3, 4e-3)
    optimizer = optimizer_of(draw, "adam", trained(draw, model, head), rate)
    criterion = nn.MSELoss()
    draw.watch.loss(criterion)
    cells = torch.eye(_CELLS)
    steps = 0

    def compute(rows: Tensor) -> Tensor:
        with torch.no_grad():
            later = target(cells[there[rows]])
        going = 1 - over[rows, None]
        wanted = paid[rows, None] + _DISCOUNT * going * later
        found = model(cells[here[rows]])
        # [N, 1] against [N] is [N, N].
        loss: Tensor = criterion(found, wanted[:, 0] if draw.has("wrong_broadcast") else wanted)
        return loss

    def synchronise() -> None:
        nonlocal steps
        steps += 1
        if steps % _PERIOD == 0:
            target.load_state_dict(model.state_dict())

    fit(draw, model, optimizer, length, compute, after=synchronise)
    model.eval()
    with torch.no_grad():
        # Nobody strolls on from an end: its value is not learned.
        kept = exact[:, 0].isfinite()
        return Ending(explained(model(cells)[kept], exact[kept]), bar=0.6)


def _spoilt(
    draw: Draw, state: Tensor, reward: Tensor, after: Tensor, ended: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return moves with the drawn fault, if there is one."""
    order = torch.randperm(len(state))
    few = torch.arange(len(state)) % 20
    return draw.by_fault(
        {
            # The buffer of rewards is one move behind.
            "misaligned_targets": (state, reward.roll(1), after, ended),
            "shuffled_labels": (state, reward[order], after, ended),
            # Cents, and not fractions of the largest reward.
            "unnormalised_targets": (state, 1e4 * reward, after, ended),
            "duplicated_rows": (state[few], reward[few], after[few], ended[few]),
            "swapped_pairs": (after, reward, state, ended),
        },
        (state, reward, after, ended),
    )


def _strolls(draw: Draw) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return moves, and exact values [S, 1], NaN where a stroll ends.

    A move has a cell int64, a reward float32, the next cell int64, and whether the stroll ends
    there float32, [N] each.
    """
    # A bench that is liked, a pond that is not, and where each cell leads.
    place = draw.numpy.permutation(_CELLS)
    bench, pond = int(place[0]), int(place[1])
    row, column = torch.arange(_CELLS) // _SIDE, torch.arange(_CELLS) % _SIDE
    leads = torch.stack(
        [
            (row + down).clamp(0, _SIDE - 1) * _SIDE + (column + right).clamp(0, _SIDE - 1)
            for down, right in ((0, 1), (0, -1), (1, 0), (-1, 0))
        ],
        1,
    )
    pays = torch.zeros(_CELLS)
    pays[bench], pays[pond] = 1.0, -1.0
    ends = pays != 0
    open_cells = torch.arange(_CELLS)[~ends]
    state = open_cells[torch.randint(len(open_cells), (_MOVES,))]
    after = leads[state, torch.randint(4, (_MOVES,))]
    chance = torch.zeros(_CELLS, _CELLS, dtype=torch.double)
    for move in range(4):
        chance[torch.arange(_CELLS), leads[:, move]] += 0.25
    within = chance * ~ends[None, :]
    exact = torch.linalg.solve(
        torch.eye(_CELLS, dtype=torch.double) - _DISCOUNT * within, chance @ pays.double()
    )
    exact[ends] = torch.nan
    return state, pays[after], after, ends[after].float(), exact[:, None]


FAMILY = Family(
    _train,
    (
        *("misaligned_targets", "shuffled_labels", "swapped_pairs"),
        *("unnormalised_targets", "duplicated_rows", "wrong_broadcast", "zero_init"),
        *("lr_too_low", "lr_too_high", "wrong_sign"),
    ),
    spent="2026-11-28",
)
