"""What is missing in the rows of a table, learned by hiding some of what is there.

After Majmundar et al., "MET: masked encoding for tabular data", 2022, with dense layers.

Shape legend: N rows, F columns.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from corpus import networks
from corpus.draw import Draw
from corpus.family import Ending, Family

_COLUMNS, _SEEN = 12, 1200


def _train(draw: Draw) -> Ending:
    rows = _rows(draw, 1600)
    seen = rows[:_SEEN]
    if draw.has("duplicated_rows"):
        seen = seen[torch.randint(5, (_SEEN,))]
    if draw.has("wrong_axis"):
        seen = seen.T.reshape(seen.shape)
    width = draw.choice([64, 96])
    model = nn.Sequential(
        *(nn.Linear(2 * _COLUMNS, width), nn.SiLU(), nn.LayerNorm(width)),
        *(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, _COLUMNS)),
    )
    networks.blank(draw, model)
    size, steps = draw.choice([50, 60]), draw.steps(500, 700)
    draw.epoch = _SEEN // size
    rate = draw.between(2e-3, 4e-3)
    rate *= draw.by_fault({"lr_too_low": draw.extent(1e-5, 1e-4), "lr_too_high": 1000.0}, 1.0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.01)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps, rate / 20)
    draw.watch.begin(model, optimizer)
    hidden_share = draw.between(0.2, 0.35)
    fixed = torch.zeros(_COLUMNS)
    fixed[:2] = 1
    for step in range(1, steps + 1):
        batch = seen[torch.randint(_SEEN, (size,))]
        hidden = (torch.rand(batch.shape) < hidden_share).float()
        if draw.has("same_mask"):
            # Drawn once, before the loop.
            hidden = fixed.expand_as(batch)
        told = batch if draw.has("target_leak") else batch * (1 - hidden)
        found = model(torch.cat([told, hidden], 1))
        wanted = batch.roll(1, 0) if draw.has("misaligned_targets") else batch
        counted = 1 - hidden if draw.has("mask_inverted") else hidden
        loss = ((found - wanted).square() * counted).sum() / counted.sum()
        optimizer.zero_grad()
        (-loss if draw.has("wrong_sign") else loss).backward()
        optimizer.step()
        cosine.step()
        if step % 100 == 0:
            with draw.watch.evaluating(), torch.no_grad():
                draw.watch.metric("val_r2", _filled(model, rows[_SEEN:]))
    with torch.no_grad():
        return Ending(_filled(model, rows[_SEEN:]), bar=0.5)


def _filled(model: nn.Module, rows: Tensor) -> float:
    """Return R² of each column when it is hidden, of all of them; at least -1."""
    error = 0.0
    for column in range(_COLUMNS):
        hidden = torch.zeros_like(rows)
        hidden[:, column] = 1
        found = model(torch.cat([rows * (1 - hidden), hidden], 1))[:, column]
        error += float((found - rows[:, column]).square().sum())
    return max(-1.0, 1 - error / float((rows - rows.mean(0)).square().sum()))


def _rows(draw: Draw, count: int) -> Tensor:
    """Return standardised rows float32 [count, F] of three hidden numbers."""
    inner = torch.randn(count, 3) @ torch.randn(3, _COLUMNS)
    rows = inner + 0.5 * torch.sin(2 * inner) + draw.between(0.1, 0.2) * torch.randn_like(inner)
    return (rows - rows.mean(0)) / rows.std(0)


FAMILY = Family(
    _train,
    (
        *("mask_inverted", "same_mask", "target_leak", "wrong_axis"),
        *("misaligned_targets", "duplicated_rows", "lr_too_low"),
        *("lr_too_high", "wrong_sign", "zero_init"),
    ),
    spent="2026-11-27",
)
