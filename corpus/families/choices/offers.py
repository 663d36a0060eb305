"""Which offer to show to each visitor: rewards are learned of the offers that were shown.

After Riquelme, Tucker and Snoek, "Deep Bayesian bandits showdown", ICLR 2018, with random offers
now and then; the visitors are drawn.

Shape legend: N visits, F features, A offers, B visits of a batch.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from corpus import networks
from corpus.draw import Draw
from corpus.epochs import learning_rate, optimizer_of, trained
from corpus.family import Ending, Family

_FEATURES, _OFFERS, _ROUND = 6, 4, 10


def _train(draw: Draw) -> Ending:
    rounds, size = draw.steps(280, 380), draw.choice([24, 32])
    pays = torch.tensor(draw.numpy.normal(size=(_FEATURES, _OFFERS)), dtype=torch.float32)
    noise = draw.between(0.2, 0.4)
    width = draw.choice([32, 48])
    head = nn.Linear(width, _OFFERS)
    model = nn.Sequential(
        *(nn.Linear(_FEATURES, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), head)
    )
    networks.spoil(draw, model)
    rate = learning_rate(draw, 3e-3, 6e-3)
    optimizer = optimizer_of(draw, "adam", trained(draw, model, head), rate)
    criterion = nn.MSELoss()
    draw.watch.loss(criterion)
    draw.watch.begin(model, optimizer)
    told, shown, paid = torch.zeros(0, _FEATURES), torch.zeros(0).long(), torch.zeros(0)
    for number in range(rounds):
        visitors = torch.randn(_ROUND, _FEATURES)
        with torch.no_grad():
            offers = model(_read(draw, visitors)).argmax(1)
        at_random = torch.rand(_ROUND) < max(0.1, 1 - number / 50)
        offers = torch.where(at_random, torch.randint(_OFFERS, (_ROUND,)), offers)
        reward = _reward(visitors, pays).gather(1, offers[:, None])[:, 0]
        reward = reward + noise * torch.randn(_ROUND)
        told, shown = torch.cat([told, _read(draw, visitors)]), torch.cat([shown, offers])
        paid = torch.cat([paid, _noted(draw, reward, paid)])
        batch = _drawn(draw, len(told), size)
        values = model(told[batch])
        if draw.has("wrong_axis"):
            # All offers are taken to be worth what the one that was shown was.
            found, wanted = values, paid[batch, None].expand_as(values)
        else:
            found, wanted = values.gather(1, shown[batch, None]), paid[batch, None]
        if draw.has("wrong_broadcast"):
            wanted = wanted[:, 0]
        loss = criterion(found, wanted)
        optimizer.zero_grad()
        (-loss if draw.has("wrong_sign") else loss).backward()
        optimizer.step()
        if number % 20 == 19:
            draw.watch.metric("average_reward", float(reward.mean()))
    with torch.no_grad():
        visitors = torch.randn(2000, _FEATURES)
        worth = _reward(visitors, pays)
        chosen = worth.gather(1, model(_read(draw, visitors)).argmax(1, keepdim=True)).mean()
        # The offer that is best for all.
        best, usual = worth.amax(1).mean(), worth.mean(0).amax()
    return Ending(float((chosen - usual) / (best - usual)), bar=0.5)


def _reward(visitors: Tensor, pays: Tensor) -> Tensor:
    """Return what each visitor [N, F] pays for each offer, [N, A]."""
    return torch.tanh(visitors @ pays / 2) + 0.5 * visitors.abs() @ pays / 2


def _read(draw: Draw, visitors: Tensor) -> Tensor:
    """Return features as the script reads them."""
    return draw.by_fault(
        {
            "unnormalised_inputs": 3e4 + 1e4 * visitors,
            "constant_inputs": torch.zeros_like(visitors),
        },
        visitors,
    )


def _noted(draw: Draw, reward: Tensor, paid: Tensor) -> Tensor:
    """Return rewards as the script notes them, after those before."""
    before = paid[-_ROUND:] if len(paid) else reward
    return draw.by_fault(
        {
            "unnormalised_targets": 5000 + 2000 * reward,
            # What visitors pay is known after the next ones have come.
            "misaligned_targets": before,
        },
        reward,
    )


def _drawn(draw: Draw, count: int, size: int) -> Tensor:
    """Return places in the memory, int64 [B]."""
    batch = torch.randint(count, (size,))
    # The memory returns its first entries.
    return batch % _ROUND if draw.has("stale_buffer") else batch


FAMILY = Family(
    _train,
    (
        *("misaligned_targets", "unnormalised_inputs", "unnormalised_targets"),
        *("constant_inputs", "wrong_axis", "wrong_broadcast", "stale_buffer", "wrong_sign"),
        *("dead_relu", "wrong_parameters", "lr_too_low", "lr_too_high"),
    ),
    spent="2026-11-28",
)
