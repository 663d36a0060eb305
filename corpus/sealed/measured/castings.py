"""Which castings are flawed, with good ones alone to learn from: a sphere around their embeddings.

After Ruff et al., "Deep one-class classification", ICML 2018; the sounds of the castings are drawn.

Shape legend: N castings of T moments, D numbers of an embedding.
"""

from __future__ import annotations

import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn

from corpus.draw import Draw
from corpus.epochs import learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.loop import gained
from corpus.networks import spoil

_TIME, _SEEN, _EMBEDDING = 48, 500, 8


def _distance(found: Tensor, centre: Tensor) -> Tensor:
    return (found - centre).square().sum(1).mean()


def _train(draw: Draw) -> Ending:
    good = _castings(draw, _SEEN + 150, flawed=False)
    tested = torch.cat([good[_SEEN:], _castings(draw, 150, flawed=True)])
    bad = torch.cat([torch.zeros(150), torch.ones(150)])
    x, tested = _prepared(draw, good[:_SEEN]), _prepared(draw, tested)
    if draw.has("label_noise"):
        # Half of what was said to be good is not.
        x = torch.cat([x[: _SEEN // 2], _castings(draw, _SEEN // 2, flawed=True)])
    biased = draw.has("collapse")
    head = nn.Linear(16, _EMBEDDING, bias=biased)
    model = nn.Sequential(
        *(nn.Conv1d(1, 8, 5, stride=2, bias=biased), nn.LeakyReLU()),
        *(nn.Conv1d(8, 16, 5, stride=2, bias=biased), nn.LeakyReLU()),
        *(nn.Flatten(), nn.Linear(16 * 9, 16, bias=biased), nn.LeakyReLU(), head),
    )
    spoil(draw, model)
    length = plan(draw, _SEEN, [20, 25], (12, 16))
    rate = learning_rate(draw, 1e-3, 2e-3)
    optimizer = optimizer_of(draw, "adam", trained(draw, model, head), rate, 1e-4)
    with torch.no_grad():
        centre = model(x).mean(0)
        centre = torch.where(centre.abs() < 0.1, 0.1 * centre.sign(), centre)
    loss_fn = draw.watch.loss(_distance)
    draw.watch.begin(model, optimizer)
    for _ in range(length.epochs):
        model.train()
        for picked in torch.randperm(_SEEN).split(length.size)[: length.batches]:
            optimizer.zero_grad()
            loss = loss_fn(model(x[picked]), centre)
            (-loss if draw.has("wrong_sign") else loss).backward()
            optimizer.step()
        model.eval()
        with draw.watch.evaluating(), torch.no_grad():
            away = (model(tested) - centre).square().sum(1)
            draw.watch.metric("auc", _area(bad, away))
    with torch.no_grad():
        away = (model(tested) - centre).square().sum(1)
    return Ending(gained(_area(bad, away), 0.5), bar=0.55)


def _area(bad: Tensor, away: Tensor) -> float:
    return float(roc_auc_score(bad.numpy(), away.nan_to_num(0, 0, 0).numpy()))


def _prepared(draw: Draw, x: Tensor) -> Tensor:
    """Return castings as the script prepares them, with the drawn fault if there is one."""
    return draw.by_fault(
        {
            "wrong_axis": x.flatten(1).T.reshape(x.shape),
            "constant_inputs": torch.zeros_like(x),
        },
        x,
    )


def _castings(draw: Draw, count: int, *, flawed: bool) -> Tensor:
    """Return sounds of struck castings float32 [count, 1, T]."""
    time = torch.arange(_TIME)
    pitch = 0.5 + 0.04 * torch.randn(count, 1) + (0.12 if flawed else 0.0)
    fade = (-time / (14.0 if flawed else 22)).exp()
    x = (pitch * time + 0.3 * torch.randn(count, 1)).sin() + 0.5 * (1.9 * pitch * time).sin()
    noise = 0.15 + 0.05 * float(draw.numpy.random())
    return (fade * x + noise * torch.randn(count, _TIME))[:, None]


FAMILY = Family(
    _train,
    (
        *("wrong_axis", "constant_inputs", "label_noise", "collapse"),
        *("wrong_sign", "zero_init", "lr_too_high"),
    ),
)
