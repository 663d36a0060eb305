"""Whether two signatures are of one person: twin networks and the distance of what they say.

After Hadsell, Chopra and LeCun, "Dimensionality reduction by learning an invariant mapping", CVPR
2006, and Dey et al., "SigNet", 2017.

Shape legend: N pairs, F numbers of a signature.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from corpus import networks
from corpus.draw import Draw
from corpus.family import Ending, Family

_FEATURES, _HABITS = 30, 5


class ContrastiveLoss(nn.Module):
    """Pairs of one person are close, others are a margin apart."""

    def __init__(self, margin: float) -> None:
        super().__init__()
        self.margin = margin

    def forward(self, distance: Tensor, differs: Tensor) -> Tensor:
        """Return the loss of distances [N] and labels [N], 1 for pairs of two persons."""
        near = (1 - differs) * distance.square()
        far = differs * (self.margin - distance).clamp(min=0).square()
        return (near + far).mean()


class Writers:
    """Persons with habits, which their signatures show among much else."""

    def __init__(self, draw: Draw, count: int) -> None:
        self.habits = 1.5 * torch.randn(count, _HABITS)
        self.noise = draw.between(0.2, 0.35)
        self.turn = torch.linalg.qr(torch.randn(_FEATURES, _FEATURES))[0]

    def pairs(self, first: int, last: int, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return two signatures float32 [N, F] each, and whether they differ float32 [N]."""
        one, other = (torch.randint(first, last, (count,)) for _ in range(2))
        other = torch.where(torch.rand(count) < 0.5, one, other)
        return self._signed(one), self._signed(other), (one != other).float()

    def _signed(self, who: Tensor) -> Tensor:
        habits = self.habits[who] + self.noise * torch.randn(len(who), _HABITS)
        mood = 2.5 * torch.randn(len(who), _FEATURES - _HABITS)
        signed: Tensor = torch.cat([habits, mood], 1) @ self.turn
        return signed


def _train(draw: Draw) -> Ending:
    writers = Writers(draw, 140)
    width, code = draw.choice([40, 64]), draw.choice([6, 8])
    model = nn.Sequential(
        *(nn.Linear(_FEATURES, width), nn.LeakyReLU(0.1)),
        *(nn.Linear(width, width), nn.LeakyReLU(0.1), nn.Linear(width, code)),
    )
    networks.spoil(draw, model)
    size, steps = draw.choice([48, 64]), draw.steps(600, 900)
    rate = draw.between(2e-3, 4e-3)
    rate *= draw.by_fault({"lr_too_low": draw.extent(1e-5, 1e-4), "lr_too_high": 1000.0}, 1.0)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=rate)
    criterion = draw.watch.loss(ContrastiveLoss(draw.choice([1.0, 2.0])))
    draw.watch.begin(model, optimizer)
    decay = torch.optim.lr_scheduler.StepLR(optimizer, steps // 3, 0.3)
    for step in range(1, steps + 1):
        one, other, differs = _spoilt(draw, *writers.pairs(0, 100, size))
        distance = _distance(model, one, other)
        loss = criterion(distance, differs)
        optimizer.zero_grad()
        (-loss if draw.has("wrong_sign") else loss).backward()
        optimizer.step()
        decay.step()
        if step % 100 == 0:
            with draw.watch.evaluating(), torch.no_grad():
                draw.watch.metric("separation", _separation(model, writers, 300))
    with torch.no_grad():
        return Ending(_separation(model, writers, 2000), bar=0.55)


def _distance(model: nn.Module, one: Tensor, other: Tensor) -> Tensor:
    # The square root has no derivative at zero.
    distance: Tensor = ((model(one) - model(other)).square().sum(1) + 1e-6).sqrt()
    return distance


def _separation(model: nn.Module, writers: Writers, count: int) -> float:
    """Return 2 AUC - 1 of pairs of persons that were not seen."""
    one, other, differs = writers.pairs(100, 140, count)
    distance = _distance(model, one, other).nan_to_num()
    near, far = distance[differs == 0], distance[differs == 1]
    return float((far[:, None] - near).sign().mean())


def _spoilt(draw: Draw, one: Tensor, other: Tensor, differs: Tensor) -> tuple[Tensor, ...]:
    """Return pairs with the drawn fault, if there is one."""
    if draw.has("swapped_pairs"):
        # The file says 1 for pairs of one person.
        differs = 1 - differs
    if draw.has("negatives_left_out"):
        differs = torch.zeros_like(differs)
    if draw.has("misaligned_targets"):
        differs = differs.roll(1)
    if draw.has("constant_inputs"):
        one, other = torch.zeros_like(one), torch.zeros_like(other)
    if draw.has("ruinous_augmentation"):
        one = one.gather(1, torch.rand_like(one).argsort(1))
    return one, other, differs


FAMILY = Family(
    _train,
    (
        *("swapped_pairs", "negatives_left_out", "misaligned_targets", "constant_inputs"),
        *("ruinous_augmentation", "lr_too_low", "lr_too_high"),
        *("wrong_sign", "zero_init", "detached_graph"),
    ),
    spent="2026-11-27",
)
