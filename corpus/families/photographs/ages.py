"""How old a person is, from a picture: a trained body, a new head, and two learning rates.

After Howard and Ruder, "Universal language model fine-tuning for text classification", ACL 2018,
and Rothe, Timofte and Van Gool, "DEX: deep expectation of apparent age", ICCV Workshops 2015; the
faces are drawn.

Shape legend: N pictures of 12 x 12 pixels.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn

from corpus.draw import Draw
from corpus.epochs import learning_rate, plan
from corpus.family import Ending, Family
from corpus.loop import report_metrics

_SIDE, _SEEN = 12, 320


def _train(draw: Draw) -> Ending:
    body = nn.Sequential(
        *(nn.Conv2d(1, 12, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(12, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
    )
    _pretrain(body, *_faces(draw, 1500))
    x, years = _faces(draw, 520)
    seen, known = _spoilt(draw, x[:_SEEN], years[:_SEEN])
    # What the body was trained on was standardised.
    held = 40 * x[_SEEN:] + 120 if draw.has("preprocessing_mismatch") else x[_SEEN:]
    head = nn.Sequential(nn.Linear(144, 24), nn.ReLU(), nn.Linear(24, 1))
    model = nn.Sequential(body, head)
    length = plan(draw, _SEEN, [16, 20], (10, 14))
    rate = learning_rate(draw, 4e-3, 8e-3)
    optimizer = torch.optim.AdamW(_groups(draw, body, head, rate), weight_decay=1e-2)
    loss = draw.watch.loss(nn.L1Loss())
    draw.watch.begin(model, optimizer)

    def evaluate() -> Mapping[str, float]:
        return {"val_mae": 10 * float((model(held) - years[_SEEN:]).abs().mean())}

    for epoch in range(length.epochs):
        model.train()
        for rows in torch.randperm(_SEEN).split(length.size):
            found = model(seen[rows])
            if draw.has("wrong_output_activation"):
                # Ages between -1 and 1, which are standardised by 10 years.
                found = found.tanh() / 2
            if draw.has("wrong_broadcast"):
                found = found[:, 0]
            error = loss(found, known[rows])
            optimizer.zero_grad()
            (-error if draw.has("wrong_sign") else error).backward()
            optimizer.step()
        if epoch % 3 == 2:
            report_metrics(draw, model, evaluate)
    model.eval()
    with torch.no_grad():
        usual = 10 * float((years[_SEEN:] - known.median()).abs().mean())
        return Ending(1 - evaluate()["val_mae"] / usual, bar=0.45)


def _groups(draw: Draw, body: nn.Module, head: nn.Module, rate: float) -> list[dict[str, object]]:
    """Return the parameters with their learning rates: the body learns slowly."""
    if draw.has("frozen_layers"):
        # The head was to be trained, and the body not.
        head.requires_grad_(requires_grad=False)
    slow = rate / 10
    if draw.has("swapped_rates"):
        # The body gets the rate of the head, in the units of another optimizer.
        rate, slow = 1e-6, 1.0
    parts = [{"params": body.parameters(), "lr": slow}, {"params": head.parameters(), "lr": rate}]
    return parts[:1] if draw.has("not_in_optimizer") else parts


def _pretrain(body: nn.Module, x: Tensor, years: Tensor) -> None:
    """Train on other faces, without an optimizer of torch: another program did it."""
    model = nn.Sequential(body, nn.Linear(144, 1))
    weights = list(model.parameters())
    for _ in range(250):
        rows = torch.randint(len(x), (64,))
        gradients = torch.autograd.grad(F.mse_loss(model(x[rows]), years[rows]), weights)
        with torch.no_grad():
            for one, gradient in zip(weights, gradients, strict=True):
                one.sub_(gradient, alpha=0.02)


def _spoilt(draw: Draw, x: Tensor, years: Tensor) -> tuple[Tensor, Tensor]:
    """Return faces with the drawn fault, if there is one."""
    shuffled = years[torch.randperm(len(years))]
    return draw.by_fault(
        {
            # Years of birth, and not ages.
            "unnormalised_targets": (x, 1985 - 10 * years),
            # The younger the person, the higher the number, in most of the archives.
            "reversed_scale": (x, torch.where(torch.rand_like(years) < 0.65, -years, years)),
            "shuffled_labels": (x, shuffled),
            "normalised_twice": (x / 50 - 2.5, years),
        },
        (x, years),
    )


def _faces(draw: Draw, count: int) -> tuple[Tensor, Tensor]:
    """Return pictures float32 [count, 1, 12, 12], and ages [count, 1] in tens of years from 40."""
    years = torch.randn(count, 1)
    # The older, the more of the fine lines, wherever they are.
    lines = torch.sin(2.4 * torch.arange(_SIDE) + 6 * torch.rand(count, _SIDE, 1))
    depth = 0.35 * (years[:, :, None] + 2.5).clamp(min=0)
    light = 0.3 * torch.randn(count, 1, 1)
    noise = draw.between(0.25, 0.35) * torch.randn(count, _SIDE, _SIDE)
    return (depth * lines + light + noise)[:, None], years


FAMILY = Family(
    _train,
    (
        *("swapped_rates", "reversed_scale", "normalised_twice"),
        *("preprocessing_mismatch", "wrong_output_activation", "wrong_broadcast", "frozen_layers"),
        *("not_in_optimizer", "unnormalised_targets", "shuffled_labels", "lr_too_low"),
        "wrong_sign",
    ),
    spent="2026-11-27",
)
