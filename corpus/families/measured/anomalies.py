"""Which minutes of a machine are unusual: what an autoencoder of usual ones cannot draw again.

After Malhotra et al., "LSTM-based encoder-decoder for multi-sensor anomaly detection", 2016, with
convolutions; the machine is drawn.

Shape legend: N windows of S sensors and T times.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn

from corpus import networks
from corpus.draw import Draw
from corpus.epochs import fit, learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.loop import gained

_SENSORS, _TIME, _SEEN = 4, 16, 800


def _train(draw: Draw) -> Ending:
    usual, unusual = _windows(draw, 1100)
    prepared, odd = _prepared(draw, usual), _prepared(draw, unusual)
    seen = prepared[:_SEEN]
    width = draw.choice([48, 64])
    head = nn.Linear(width, _SENSORS * _TIME)
    model = nn.Sequential(
        *(nn.Flatten(), nn.Linear(_SENSORS * _TIME, width), nn.ReLU()),
        *(nn.Linear(width, 6), nn.Linear(6, width), nn.ReLU(), head),
    )
    if draw.has("wrong_output_activation"):
        model.append(nn.Sigmoid())
    model.append(nn.Unflatten(1, (_SENSORS, _TIME)))
    networks.spoil(draw, model)
    length = plan(draw, _SEEN, [16, 20], (10, 13))
    rate = learning_rate(draw, 3e-3, 6e-3)
    optimizer = optimizer_of(draw, "adam", trained(draw, model, head), rate)
    criterion = nn.MSELoss()
    draw.watch.loss(criterion)

    def compute(batch: Tensor) -> Tensor:
        x = seen[batch]
        if draw.has("wrong_loss"):
            # The sign of the error is lost.
            loss: Tensor = (model(x) - x).mean()
        else:
            loss = criterion(model(x), x)
        return loss

    def evaluate() -> Mapping[str, float]:
        x = prepared[_SEEN:]
        return {"val_reconstruction_error": float((model(x) - x).square().mean())}

    chosen = evaluate if draw.chance(0.7) else None
    fit(draw, model, optimizer, length, compute, evaluate=chosen)
    model.eval()
    with torch.no_grad():
        errors = torch.cat(
            [(model(x) - x).square().mean((1, 2)) for x in (prepared[_SEEN:], odd[_SEEN:])]
        )
    if not errors.isfinite().all():
        return Ending(math.nan, bar=0.55)
    kind = torch.cat([torch.zeros(len(errors) // 2), torch.ones(len(errors) // 2)])
    return Ending(gained(float(roc_auc_score(kind, errors)), 1 / 2), bar=0.55)


def _prepared(draw: Draw, x: Tensor) -> Tensor:
    """Return windows as the script prepares them, with the drawn fault if there is one."""
    source = torch.Generator().manual_seed(draw.amount.getrandbits(32))
    order = torch.rand(x.shape, generator=source).argsort(2)
    lost = torch.rand(x.shape, generator=source) < 5e-4
    scale = torch.tensor([1.0, 1500.0, 0.02, 90.0])[:, None]
    return draw.by_fault(
        {
            # Each sensor in its unit.
            "unnormalised_inputs": (2 + x) * scale,
            "nan_inputs": torch.where(lost, torch.nan, x),
            # Sorted by a time that is text.
            "time_shuffled": x.gather(2, order),
            # A sensor that is not there.
            "constant_inputs": torch.zeros_like(x),
        },
        x,
    )


def _windows(draw: Draw, count: int) -> tuple[Tensor, Tensor]:
    """Return usual and unusual windows float32 [count, S, T], equally large."""
    time = torch.arange(_TIME) / _TIME
    place = torch.arange(_SENSORS)[:, None]
    noise = draw.between(0.15, 0.25)

    def made(turns: float, lag: Tensor) -> Tensor:
        phase = 2 * math.pi * torch.rand(count, 1, 1)
        strength = 1 + 0.3 * torch.randn(count, 1, 1)
        wave = torch.sin(2 * math.pi * turns * time + phase + lag * place)
        return strength * wave + noise * torch.randn(count, _SENSORS, _TIME)

    usual = made(1.5, torch.tensor(0.8))
    # A worn belt: the sensors' waves do not follow each other as they did.
    return usual, made(1.5, torch.where(torch.rand(count, 1, 1) < 0.5, -0.8, 2.4))


FAMILY = Family(
    _train,
    (
        *("unnormalised_inputs", "nan_inputs", "time_shuffled", "constant_inputs"),
        *("wrong_output_activation", "wrong_loss", "wrong_sign", "dead_relu"),
        *("missing_step", "wrong_parameters", "lr_too_low"),
    ),
    spent="2026-11-28",
)
