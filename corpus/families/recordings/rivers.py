"""How much water rivers carry, from weather and what is known of their basins: a loss per basin.

After Kratzert et al., "Towards learning universal, regional, and local hydrological behaviors via
machine learning applied to large-sample datasets", Hydrology and Earth System Sciences 2019; the
rivers are drawn.

Shape legend: N spells of T days of one of B basins.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from corpus.draw import Draw
from corpus.epochs import learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.loop import explained
from corpus.networks import blank

_TIME, _BASINS, _KNOWN, _SEEN = 20, 12, 3, 600


class River(nn.Module):
    """The standardised flow of the last day."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(2 + _KNOWN, hidden, batch_first=True)
        self.drop = nn.Dropout(0.1)
        self.head = nn.Linear(hidden, 1)

    def forward(self, weather: Tensor, basin: Tensor) -> Tensor:
        """Return flows [N] of weather float32 [N, T, 2] and basins [N, 3]."""
        x = torch.cat([weather, basin[:, None].expand(-1, _TIME, -1)], 2)
        flow: Tensor = self.head(self.drop(self.lstm(x)[0][:, -1]))
        return flow[:, 0]


def _efficiency(flow: Tensor, true: Tensor, spread: Tensor) -> Tensor:
    """Return what is missing of the efficiency of Nash and Sutcliffe, of spells [N]."""
    return ((flow - true).square() / (spread + 0.1).square()).mean()


def _train(draw: Draw) -> Ending:
    weather, basin, flow, spread = _spells(draw, 850)
    given, known = _prepared(draw, weather, flow)
    model = River(draw.choice([20, 24]))
    blank(draw, model)
    length = plan(draw, _SEEN, [15, 20], (10, 13))
    rate = learning_rate(draw, 6e-3, 1.2e-2)
    optimizer = optimizer_of(draw, "adam", trained(draw, model, model.head), rate)
    loss_fn = draw.watch.loss(_efficiency)
    draw.watch.begin(model, optimizer)
    for epoch in range(length.epochs):
        model.train()
        for picked in torch.randperm(_SEEN).split(length.size)[: length.batches]:
            optimizer.zero_grad()
            loss = loss_fn(model(given[picked], basin[picked]), known[picked], spread[picked])
            (-loss if draw.has("wrong_sign") else loss).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            if not draw.has("missing_step"):
                optimizer.step()
        if epoch % 3 == 2:
            model.eval()
            with draw.watch.evaluating(), torch.no_grad():
                found = model(given[_SEEN:], basin[_SEEN:])
                left = (found - known[_SEEN:]).square().sum()
                draw.watch.metric("nse", float(1 - left / known[_SEEN:].var() / len(found)))
    model.eval()
    with torch.no_grad():
        found = model(given[_SEEN:], basin[_SEEN:])
    true = (known if draw.has("unnormalised_targets") else flow)[_SEEN:]
    return Ending(explained(found[:, None], true[:, None]), bar=0.55)


def _prepared(draw: Draw, weather: Tensor, flow: Tensor) -> tuple[Tensor, Tensor]:
    """Return weather and flows as the script prepares them, with the drawn fault if any."""
    return draw.by_fault(
        {
            # Tenths of a millimetre, and kelvin.
            "unnormalised_inputs": (weather * torch.tensor([900.0, 8]) + 280, flow),
            "unnormalised_targets": (weather, 3000 + 2000 * flow),
            "misaligned_targets": (weather, flow.roll(1)),
            "constant_inputs": (torch.zeros_like(weather), flow),
        },
        (weather, flow),
    )


def _spells(draw: Draw, count: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return weather [count, T, 2], basins [count, 3], flows [count], and their spread [count]."""
    basins = torch.randn(_BASINS, _KNOWN)
    which = torch.randint(_BASINS, (count,))
    basin = basins[which]
    rain = (torch.rand(count, _TIME) < 0.35) * torch.rand(count, _TIME) * 3
    warm = torch.randn(count, 1) + 0.4 * torch.randn(count, _TIME)
    keep = (0.75 + 0.1 * basin[:, 0]).clamp(0.5, 0.93)
    water = torch.zeros(count)
    for day in range(_TIME):
        falls = rain[:, day] * (1 + 0.3 * basin[:, 1]).clamp(min=0.3)
        water = keep * water + falls * torch.sigmoid(2 * warm[:, day] + basin[:, 2])
    flow = water + draw.between(0.05, 0.1) * torch.randn(count)
    flow = (flow - flow.mean()) / flow.std()
    spread = torch.stack([flow[which == one].std() for one in range(_BASINS)])[which]
    weather = torch.stack([(rain - rain.mean()) / rain.std(), warm], 2)
    return weather, basin, flow, spread


FAMILY = Family(
    _train,
    (
        *("unnormalised_inputs", "unnormalised_targets", "misaligned_targets", "zero_init"),
        *("constant_inputs", "wrong_sign", "missing_step", "not_in_optimizer", "lr_too_high"),
    ),
    spent="2026-11-28",
)
