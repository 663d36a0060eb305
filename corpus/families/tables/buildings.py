"""How much heat and how much cold a building needs: two numbers of one deep network of sigmoids.

After Tsanas and Xifara, "Accurate quantitative estimation of energy performance of residential
buildings using statistical machine learning tools", Energy and Buildings 2012.

Shape legend: N buildings, F features.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from corpus import networks
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import explained, report_metrics

_FEATURES, _SEEN = 8, 900


def _train(draw: Draw) -> Ending:
    x, y = _buildings(draw, 1300)
    seen, known = _spoilt(draw, x[:_SEEN], y[:_SEEN])
    width = draw.choice([32, 48])
    deep = draw.amount.randint(7, 9) if draw.has("vanishing") else 1
    bend: type[nn.Module] = nn.Sigmoid if draw.has("vanishing") else nn.Tanh
    layers: list[nn.Module] = [nn.Linear(_FEATURES, width), bend()]
    for _ in range(deep):
        layers += [nn.Linear(width, width), bend()]
    model = nn.Sequential(*layers, nn.Linear(width, 2))
    if draw.has("wrong_output_activation"):
        model.append(nn.Softmax(dim=1))
    networks.spoil(draw, model)
    networks.blank(draw, model)
    epochs, size = draw.whole(24, 30), draw.choice([30, 45])
    draw.epoch = _SEEN // size
    draw.watch.expect(epochs * draw.epoch)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=draw.between(2e-3, 4e-3))
    # With the fault, the loss is taken for a score: each epoch in which it falls lowers the rate.
    upside_down = draw.has("scheduler_to_zero")
    lower = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimizer, "max" if upside_down else "min", factor=0.3, patience=0 if upside_down else 4
    )
    criterion = nn.MSELoss(reduction="none")
    draw.watch.begin(model, optimizer)
    share = torch.tensor([1.0, 0.0]) if draw.has("term_left_out") else torch.ones(2)

    def evaluate() -> Mapping[str, float]:
        return {"r2_score": explained(model(x[_SEEN:]), y[_SEEN:])}

    for epoch in range(epochs):
        model.train()
        total = 0.0
        for rows in torch.randperm(_SEEN).split(size):
            optimizer.zero_grad()
            loss = (criterion(model(seen[rows]), known[rows]) * share).mean()
            if draw.has("detached_graph"):
                loss = torch.tensor(float(loss), requires_grad=True)
            (-loss if draw.has("wrong_sign") else loss).backward()
            optimizer.step()
            total += float(loss.detach()) * len(rows) / _SEEN
        lower.step(total)
        if epoch % 6 == 5:
            report_metrics(draw, model, evaluate)
    with torch.no_grad():
        return Ending(_least(model(x[_SEEN:]), y[_SEEN:]), bar=0.6)


def _least(found: Tensor, y: Tensor) -> float:
    """Return the lower R² of the two numbers."""
    return min(explained(found[:, [one]], y[:, [one]]) for one in range(2))


def _spoilt(draw: Draw, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return the buildings with the drawn fault, if there is one."""
    some = torch.randperm(len(x))[torch.arange(len(x)) % 12]
    shuffled = y[torch.randperm(len(y))]
    return draw.by_fault(
        {
            # Twelve buildings, copied for each of their rooms.
            "duplicated_rows": (x[some], y[some]),
            "shuffled_labels": (x, shuffled),
            # The columns of the answers have another order.
            "swapped_coordinates": (x, y.flip(1)),
            # Kilowatt hours for one, and Joule for the other.
            "unnormalised_targets": (x, y * torch.tensor([1.0, 3e4])),
            "unnormalised_inputs": (1e3 * x + 4e3, y),
        },
        (x, y),
    )


def _buildings(draw: Draw, count: int) -> tuple[Tensor, Tensor]:
    """Return features float32 [count, F] and needs float32 [count, 2]."""
    x = torch.randn(count, _FEATURES)
    common = x[:, 0] * x[:, 1].tanh()
    heat = common + torch.sin(1.5 * x[:, 2]) + 0.4 * x[:, 3]
    cold = common - torch.sin(1.5 * x[:, 4]) + 0.4 * x[:, 5].square()
    y = torch.stack([heat, cold], 1) + draw.between(0.1, 0.2) * torch.randn(count, 2)
    return x, (y - y.mean(0)) / y.std(0)


FAMILY = Family(
    _train,
    (
        *("swapped_coordinates", "term_left_out", "duplicated_rows", "unnormalised_targets"),
        *("wrong_output_activation", "vanishing", "scheduler_to_zero", "detached_graph"),
        *("unnormalised_inputs", "saturation", "large_init", "zero_init"),
    ),
    spent="2026-11-27",
)
