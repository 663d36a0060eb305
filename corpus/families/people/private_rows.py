"""Patients of whom the model is to reveal nothing: clipped gradients of single rows, and noise.

After Abadi et al., "Deep learning with differential privacy", CCS 2016; the gradients are those of
`torch.func`.

Shape legend: N patients, F features, 3 illnesses.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from corpus import networks
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import accuracy, gained

_FEATURES, _SEEN = 10, 2000


def _train(draw: Draw) -> Ending:
    x, y = _patients(draw, 2600)
    seen, known = _spoilt(draw, x[:_SEEN], y[:_SEEN])
    width = draw.choice([24, 32])
    model = nn.Sequential(nn.Linear(_FEATURES, width), nn.Tanh(), nn.Linear(width, 3))
    networks.spoil(draw, model)
    size, steps = draw.choice([100, 160]), draw.steps(250, 350)
    rate = draw.between(0.8, 1.2)
    rate *= draw.by_fault({"lr_too_low": draw.extent(1e-5, 1e-4), "lr_too_high": 300.0}, 1.0)
    optimizer = torch.optim.SGD(model.parameters(), rate, momentum=0.5)
    draw.watch.begin(model, optimizer)
    most, spread = 1.0, draw.between(0.6, 1.0)
    if draw.has("clip_too_small"):
        most = draw.extent(1e-5, 1e-4)

    def lost(weights: dict[str, Tensor], row: Tensor, kind: Tensor) -> Tensor:
        scores = functional_call(model, weights, (row[None],))
        loss = F.cross_entropy(scores, kind[None])
        return -loss if draw.has("wrong_sign") else loss

    each: Any = vmap(grad(lost), in_dims=(None, 0, 0))
    for step in range(1, steps + 1):
        rows = torch.randint(_SEEN, (size,))
        weights = {name: one.detach() for name, one in model.named_parameters()}
        grads = each(weights, seen[rows], known[rows])
        norms = torch.stack([one.flatten(1).norm(dim=1) for one in grads.values()]).norm(dim=0)
        factor = (most / (norms + 1e-6)).clamp(max=1)
        for name, weight in model.named_parameters():
            total = torch.einsum("n,n...->...", factor, grads[name])
            noise = spread * most * torch.randn_like(total)
            if draw.has("noise_unscaled"):
                # It was added after the division.
                noise = noise * size
            moved = (total + noise) / size
            weight.grad = moved
        optimizer.step()
        if step % 60 == 0:
            with draw.watch.evaluating(), torch.no_grad():
                draw.watch.metric("accuracy", accuracy(model(x[_SEEN:]), y[_SEEN:]))
    with torch.no_grad():
        return Ending(gained(accuracy(model(x[_SEEN:]), y[_SEEN:]), 1 / 3), bar=0.6)


def _spoilt(draw: Draw, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return the patients with the drawn fault, if there is one."""
    return draw.by_fault(
        {
            "shuffled_labels": (x, y[torch.randperm(len(y))]),
            "off_by_one": (x, (y + 1) % 3),
            "single_label": (x, torch.full_like(y, 1)),
            "constant_inputs": (torch.zeros_like(x), y),
            "unnormalised_inputs": (1e4 * x + 1e5, y),
            "wrong_axis": (x.T.reshape(x.shape), y),
        },
        (x, y),
    )


def _patients(draw: Draw, count: int) -> tuple[Tensor, Tensor]:
    """Return features float32 [count, F] and illnesses int64 [count]."""
    x = torch.randn(count, _FEATURES)
    signs = torch.stack([x[:, 0] + x[:, 1], x[:, 2] - x[:, 0], x[:, 3].abs() * 1.5 - x[:, 2]], 1)
    return x, (signs + draw.between(0.2, 0.4) * torch.randn_like(signs)).argmax(1)


FAMILY = Family(
    _train,
    (
        *("noise_unscaled", "clip_too_small", "shuffled_labels", "off_by_one", "single_label"),
        *("constant_inputs", "unnormalised_inputs", "wrong_axis", "lr_too_low", "lr_too_high"),
        *("wrong_sign", "large_init"),
    ),
    spent="2026-11-27",
)
