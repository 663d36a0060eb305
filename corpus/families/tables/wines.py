"""Which of three cultivars a wine is of: all wines in every step, and gradient descent.

The measurements are those of Forina et al., PARVUS, 1991, in scikit-learn, sorted by cultivar.

Shape legend: N wines.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from sklearn.datasets import load_wine
from torch import Tensor, nn

from corpus import networks
from corpus.data.held_out import HeldOut, held_out
from corpus.draw import Draw
from corpus.epochs import learning_rate, optimizer_of, trained
from corpus.family import Ending, Family
from corpus.loop import accuracy, gained

_FEATURES, _KINDS, _SEEN = 13, 3, 110


class Net(nn.Module):
    """Logarithms of the probabilities of cultivars."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(_FEATURES, hidden)
        self.fc2 = nn.Linear(hidden, hidden)
        self.fc3 = nn.Linear(hidden, _KINDS)

    def forward(self, x: Tensor) -> Tensor:
        """Return logarithms [N, 3] of measurements float32 [N, 13]."""
        x = torch.tanh(self.fc2(torch.tanh(self.fc1(x))))
        return F.log_softmax(self.fc3(x), dim=1)


def _train(draw: Draw) -> Ending:
    wines = _wines(draw)
    model = Net(draw.choice([16, 24]))
    networks.spoil(draw, model)
    epochs = draw.steps(120, 200)
    draw.epoch = 1
    rate = learning_rate(draw, 0.03, 0.06)
    optimizer = optimizer_of(draw, "sgd", trained(draw, model, model.fc3), rate, 1e-4)
    loss_fn = draw.watch.loss(F.nll_loss)
    draw.watch.begin(model, optimizer)
    for epoch in range(epochs):
        output = model(wines.x)
        loss = loss_fn(output, wines.y)
        optimizer.zero_grad()
        (-loss if draw.has("wrong_sign") else loss).backward()
        optimizer.step()
        if epoch % 20 == 19:
            with draw.watch.evaluating(), torch.no_grad():
                right = (model(wines.x_val).argmax(1) == wines.y_val).float()
                draw.watch.metric("test_accuracy", float(right.mean()))
    with torch.no_grad():
        reached = accuracy(model(wines.x_test), wines.y_test)
    return Ending(gained(reached, 1 / _KINDS), bar=0.7)


def _wines(draw: Draw) -> HeldOut:
    """Return standardised measurements float32 [N, 13] and cultivars int64 [N]."""
    values, kinds = load_wine(return_X_y=True)
    mixed = torch.tensor(draw.numpy.permutation(len(values)))
    raw, y = torch.tensor(values, dtype=torch.float32)[mixed], torch.tensor(kinds)[mixed]
    x = (raw - raw.mean(0)) / raw.std(0)
    # The rows of the file in their order, of which the first ones are those trained on.
    first = y.argsort(stable=True)[torch.arange(_SEEN)].repeat(2)[: len(y)]
    return held_out(
        *(draw, x, y, _SEEN),
        prepared={"unnormalised_inputs": (raw, y)},
        training={"not_shuffled": (x[first], y[first])},
    )


FAMILY = Family(
    _train,
    (
        *("not_shuffled", "unnormalised_inputs", "shuffled_labels", "off_by_one"),
        *("zero_init", "wrong_sign", "wrong_parameters", "lr_too_low"),
    ),
    spent="2026-11-28",
)
