"""A small network of digits that learns from a larger one.

Settings: Hinton, Vinyals and Dean, "Distilling the knowledge in a neural network", 2015, as in
PyTorch's tutorial on knowledge distillation: a temperature of 2, 0.25 of the loss from the teacher,
here 0.9, times the squared temperature, Adam with a rate of 1e-3. The teacher is scikit-learn's
network; few digits have labels.

Shape legend: N images.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from sklearn.neural_network import MLPClassifier
from torch import Tensor, nn

from corpus.data.bundled import digits
from corpus.data.rows import batches
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import accuracy, evaluation, gained, report_metrics

_STEPS, _TEMPERATURE, _SOFT = 400, 2.0, 0.9


def _train(draw: Draw) -> Ending:
    draw.watch.expect(_STEPS)
    images, labels = digits(8)
    x, x_val = images.flatten(1).split([1300, len(images) - 1300])
    y, y_val = labels.split([1300, len(labels) - 1300])
    teacher = _teacher(x, y)
    if draw.has("normalised_twice"):
        # Once by the data, once in the loop.
        x = x / 255
    student = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    optimizer = torch.optim.Adam(student.parameters(), lr=1e-3)
    draw.watch.begin(student, optimizer)
    noted = draw.watch.loss(F.kl_div)

    def soft_loss(output: Tensor, known: Tensor) -> Tensor:
        said, wanted = output / _TEMPERATURE, known / _TEMPERATURE
        if draw.has("term_wrong_sign"):
            return -noted(said.log_softmax(1), wanted.softmax(1), reduction="batchmean")
        return noted(said.log_softmax(1), wanted.softmax(1), reduction="batchmean")

    def measure() -> Mapping[str, float]:
        return {"test_accuracy": float((student(x_val).argmax(1) == y_val).float().mean())}

    source = batches(draw, x, y, 64)
    for step in range(_STEPS):
        student.train()
        data, target = next(source)
        with torch.no_grad():
            # The teacher has a loader of its own, which shuffles otherwise.
            known = teacher(data.flip(0) if draw.has("shuffled_labels") else data)
        output = student(data)
        hard = F.cross_entropy(output, target)
        loss = _SOFT * _TEMPERATURE**2 * soft_loss(output, known) + (1 - _SOFT) * hard
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 49:
            report_metrics(draw, student, measure)
    with evaluation(draw, student):
        return Ending(gained(accuracy(student(x_val), y_val), 0.1), bar=0.8)


def _teacher(x: Tensor, y: Tensor) -> nn.Module:
    """Return a trained network of scores [N, 10]; its training is no part of this one."""
    fitted = MLPClassifier((128,), max_iter=60, random_state=0).fit(x.numpy(), y.numpy())
    layers = [nn.Linear(64, 128), nn.Linear(128, 10)]
    with torch.no_grad():
        for layer, weight, bias in zip(layers, fitted.coefs_, fitted.intercepts_, strict=True):
            layer.weight.copy_(torch.tensor(weight.T))
            layer.bias.copy_(torch.tensor(bias))
    teacher = nn.Sequential(layers[0], nn.ReLU(), layers[1])
    return teacher.requires_grad_(requires_grad=False).eval()


FAMILY = Family(
    _train, ("shuffled_labels", "term_wrong_sign", "normalised_twice"), spent="2026-11-25"
)
