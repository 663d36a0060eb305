"""How much of each drug cells survive: curves of many wells, fitted by L-BFGS with a closure.

After Hill, 1910, and Gesztelyi et al., "The Hill equation and the origin of quantitative
pharmacology", 2012.

Shape legend: N wells, D drugs.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import explained

_DRUGS, _DOSES = 30, 9


class Hill(nn.Module):
    """Shares [N] of cells that survive logarithms of doses [N] of drugs int64 [N]."""

    def __init__(self) -> None:
        super().__init__()
        self.middle = nn.Parameter(torch.zeros(_DRUGS))
        self.log_slope = nn.Parameter(torch.zeros(_DRUGS))
        self.least = nn.Parameter(torch.full((_DRUGS,), 0.5))

    def forward(self, drug: Tensor, dose: Tensor) -> Tensor:
        """Return the shares."""
        slope, least = self.log_slope[drug].exp(), self.least[drug]
        shares: Tensor = least + (1 - least) * torch.sigmoid(-slope * (dose - self.middle[drug]))
        return shares


def _train(draw: Draw) -> Ending:
    drug = torch.arange(_DRUGS).repeat_interleave(_DOSES)
    dose = torch.linspace(-3, 3, _DOSES).repeat(_DRUGS)
    truth = Hill()
    with torch.no_grad():
        truth.middle.normal_(0, 1)
        truth.log_slope.normal_(0.7, 0.3)
        truth.least.uniform_(0, 0.5)
        survived = truth(drug, dose)
    survived = survived + draw.between(0.02, 0.05) * torch.randn_like(survived)
    told, given, known = _spoilt(draw, drug, dose, survived)
    model = Hill()
    steps = draw.steps(24, 40)
    rate = draw.between(0.5, 1.0)
    rate *= draw.by_fault({"lr_too_low": draw.extent(1e-6, 1e-5)}, 1.0)
    search = None if draw.has("lr_too_low") else "strong_wolfe"
    optimizer = torch.optim.LBFGS(model.parameters(), rate, max_iter=4, line_search_fn=search)
    draw.watch.begin(model, optimizer)
    price = draw.by_fault({"term_wrong_sign": -1.0}, 1e-4)

    def closure() -> Tensor:
        optimizer.zero_grad()
        found = model(told, given)
        if draw.has("wrong_broadcast"):
            found = found[:, None]
        usual = model.middle.square().mean() + model.log_slope.square().mean()
        loss: Tensor = (found - known).square().mean() + price * usual
        if draw.has("wrong_sign"):
            loss = -loss
        loss.backward()
        return loss

    for _ in range(steps):
        optimizer.step(closure)
    with torch.no_grad():
        new = torch.linspace(-2.8, 2.8, 15).repeat(_DRUGS)
        which = torch.arange(_DRUGS).repeat_interleave(15)
        found = model(which, new).nan_to_num(-1)[:, None]
        return Ending(max(-1.0, explained(found, truth(which, new)[:, None])), bar=0.8)


def _spoilt(draw: Draw, drug: Tensor, dose: Tensor, known: Tensor) -> tuple[Tensor, ...]:
    """Return wells with the drawn fault, if there is one."""
    return draw.by_fault(
        {
            # The doses themselves, in nanomoles, and not their logarithms.
            "unnormalised_inputs": (drug, 1e4 * 10**dose, known),
            # Half of the plates say how many cells died.
            "reversed_scale": (drug, dose, torch.where(drug % 2 == 0, 1 - known, known)),
            "misaligned_targets": (drug, dose, known.roll(4)),
            # The plate was read by columns.
            "wrong_axis": (drug, dose, known.view(_DRUGS, _DOSES).T.flatten()),
            "colliding_ids": (drug % 3, dose, known),
            "unnormalised_targets": (drug, dose, 100 * known),
        },
        (drug, dose, known),
    )


FAMILY = Family(
    _train,
    (
        *("reversed_scale", "wrong_axis", "colliding_ids", "wrong_broadcast", "term_wrong_sign"),
        *("misaligned_targets", "unnormalised_inputs", "unnormalised_targets"),
        *("lr_too_low", "wrong_sign"),
    ),
    spent="2026-11-27",
)
