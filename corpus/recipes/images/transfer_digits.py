"""A new head on a trained body that is frozen.

Settings: PyTorch's tutorial "Transfer learning for computer vision", as fixed feature extractor:
only the new last layer is trained, SGD with a rate of 1e-3 and momentum of 0.9, times 0.1 after
seven epochs, a batch of 4. The body is scikit-learn's, fitted to the digits from 0 to 4; the others
are to be told apart.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from sklearn.neural_network import MLPClassifier
from torch import Tensor, nn

from corpus.data.bundled import digits
from corpus.data.rows import batches
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import accuracy, evaluation, gained, report_metrics

_EPOCHS, _ROWS = 8, 600


def _train(draw: Draw) -> Ending:
    steps = _EPOCHS * (_ROWS // 4)
    draw.watch.expect(steps)
    images, labels = digits(8)
    x = 2 * images.flatten(1) - 1
    old = labels < 5
    body = _body(x[old], labels[old])
    x, y = x[~old], labels[~old] - 5
    x_train, y_train, x_val, y_val = x[:_ROWS], y[:_ROWS], x[_ROWS:], y[_ROWS:]
    if draw.has("normalised_twice"):
        x_train = 2 * (x_train / 255) - 1
    model = nn.Sequential(body, nn.Linear(128, 5))
    trained = body if draw.has("wrong_parameters") else model[1]
    rate = 1e-6 if draw.has("lr_too_low") else 1e-3
    optimizer = torch.optim.SGD(trained.parameters(), lr=rate, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=7, gamma=0.1)
    criterion = nn.CrossEntropyLoss()
    draw.watch.loss(criterion)
    draw.watch.begin(model, optimizer)

    def measure() -> Mapping[str, float]:
        return {"val_acc": float((model(x_val).argmax(1) == y_val).float().mean())}

    source = batches(draw, x_train, y_train, 4)
    for _ in range(_EPOCHS):
        model.train()
        for _ in range(_ROWS // 4):
            inputs, wanted = next(source)
            optimizer.zero_grad()
            loss: Tensor = criterion(model(inputs), wanted)
            loss.backward()
            optimizer.step()
        scheduler.step()
        report_metrics(draw, model, measure)
    with evaluation(draw, model):
        return Ending(gained(accuracy(model(x_val), y_val), 0.2), bar=0.75)


def _body(x: Tensor, y: Tensor) -> nn.Module:
    """Return the frozen hidden layers of a network that knows some digits."""
    fitted = MLPClassifier((128,), max_iter=80, random_state=0).fit(x.numpy(), y.numpy())
    layer = nn.Linear(64, 128)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(fitted.coefs_[0].T))
        layer.bias.copy_(torch.tensor(fitted.intercepts_[0]))
    return nn.Sequential(layer, nn.ReLU()).requires_grad_(requires_grad=False)


FAMILY = Family(_train, ("wrong_parameters", "normalised_twice", "lr_too_low"), spent="2026-11-25")
