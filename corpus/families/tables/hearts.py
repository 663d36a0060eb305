"""Who has a heart disease, from a few measurements: two dense layers, and a probability.

After Detrano et al., "International application of a new probability algorithm for the diagnosis
of coronary artery disease", American Journal of Cardiology 1989; the patients are drawn.

Shape legend: N patients, F measurements.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from corpus.data.held_out import HeldOut, held_out
from corpus.draw import Draw
from corpus.epochs import learning_rate, optimizer_of, plan
from corpus.family import Ending, Family
from corpus.loop import gained
from corpus.networks import spoil

_FEATURES, _SEEN = 10, 600


def _train(draw: Draw) -> Ending:
    rows = _patients(draw, 850)
    width = draw.choice([24, 32])
    model = nn.Sequential(
        *(nn.Linear(_FEATURES, width), nn.ReLU(), nn.Dropout(0.1)),
        *(nn.Linear(width, 16), nn.ReLU(), nn.Linear(16, 1)),
    )
    spoil(draw, model)
    if draw.has("one_unit_softmax"):
        model.append(nn.Softmax(dim=1))
    length = plan(draw, _SEEN, [16, 20], (12, 16))
    optimizer = optimizer_of(draw, "sgd", list(model.parameters()), learning_rate(draw, 0.01, 0.02))
    criterion = nn.BCEWithLogitsLoss()
    draw.watch.loss(criterion)
    draw.watch.begin(model, optimizer)
    loader = DataLoader(TensorDataset(rows.x, rows.y), batch_size=length.size, shuffle=True)
    for _ in range(length.epochs):
        model.train()
        for inputs, labels in loader:
            if not draw.has("missing_zero_grad"):
                optimizer.zero_grad()
            loss = criterion(model(inputs).squeeze(1), labels)
            loss.backward()
            optimizer.step()
        model.eval()
        with draw.watch.evaluating(), torch.no_grad():
            right = (model(rows.x_val).squeeze(1) > 0) == (rows.y_val > 0.5)
            draw.watch.metric("val_accuracy", float(right.float().mean()))
    with torch.no_grad():
        found, ill = model(rows.x_test).squeeze(1) > 0, rows.y_test > 0.5
    right = (found == ill).double()
    return Ending(gained(float((right[ill].mean() + right[~ill].mean()) / 2), 1 / 2), bar=0.5)


def _patients(draw: Draw, count: int) -> HeldOut:
    """Return standardised measurements float32 [count, F], and 1 for the ill [count]."""
    x = torch.randn(count, _FEATURES)
    score = 1.2 * x[:, 0] - x[:, 1] + 1.2 * (x[:, 2] > 0.3) * x[:, 3] + 0.8 * x[:, 4].abs()
    score = score + draw.between(0.3, 0.6) * torch.randn(count)
    y = (score > score.quantile(0.55)).float()
    # Years, millimetres of mercury, milligrams per decilitre, beats per minute.
    scale = torch.tensor([9.0, 17, 52, 23, 1, 0.5, 1, 0.6, 0.9, 0.4])
    mean = torch.tensor([54.0, 131, 246, 150, 1, 0.7, 1, 0.7, 2, 0.1])
    # The dose of a drug that is given after the diagnosis.
    treated = x.clone()
    treated[:, 9] = 3 * y - 1 + 0.1 * torch.randn(count)
    return held_out(
        *(draw, x, y, _SEEN),
        prepared={"unnormalised_inputs": (mean + scale * x, y), "target_leak": (treated, y)},
    )


FAMILY = Family(
    _train,
    (
        *("unnormalised_inputs", "target_leak", "shuffled_labels", "label_noise"),
        *("one_unit_softmax", "missing_zero_grad", "zero_init", "lr_too_low", "lr_too_high"),
    ),
    spent="2026-11-28",
)
