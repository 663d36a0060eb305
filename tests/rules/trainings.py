"""Small real trainings on real data, healthy and faulty, for the tests of the rules.

Each is seeded, runs on one thread within seconds, and leaves a run directory. As a program:
``python tests/rules/trainings.py NAME DIRECTORY``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path

import torch
from sklearn.datasets import load_diabetes, load_digits
from torch import Tensor, nn

from tests.rules.runs import RunStore
from vinedresser.capture.hook.hook import Hook
from vinedresser.rules.base import capture_for
from vinedresser.rules.registry import RULES

__all__ = ["FAULTY", "HEALTHY", "RowReader", "diabetes", "digits", "mlp", "train", "trained"]


@dataclass
class Data:
    """Training and evaluation rows."""

    x: Tensor
    y: Tensor
    x_eval: Tensor
    y_eval: Tensor

    def subset(self, rows: int) -> Data:
        """Return the data with fewer training rows."""
        return Data(self.x[:rows], self.y[:rows], self.x_eval, self.y_eval)


def digits(*, image: bool = False) -> Data:
    """Return 1,797 digits of 8 x 8 pixels from 0 to 1, 1,437 of them for training."""
    x, y = load_digits(return_X_y=True)
    rows = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    pixels = torch.tensor(x / 16, dtype=torch.float32)[rows]
    labels = torch.tensor(y, dtype=torch.long)[rows]
    if image:
        pixels = pixels.reshape(-1, 1, 8, 8)
    return Data(pixels[:1437], labels[:1437], pixels[1437:], labels[1437:])


def diabetes() -> Data:
    """Return 442 patients, inputs of unit variance, targets from 25 to 346."""
    x, y = load_diabetes(return_X_y=True)
    inputs = torch.tensor(x / x.std(0), dtype=torch.float32)
    targets = torch.tensor(y, dtype=torch.float32)[:, None]
    return Data(inputs[:350], targets[:350], inputs[350:], targets[350:])


@dataclass
class Training:
    """The settings of a training.

    Attributes:
        data: returns the data.
        model: returns the model, freshly initialised.
        optimizer: returns the optimizer for the model.
        parameters: recorded hyperparameters.
        steps: optimizer steps.
        loss: returns the loss, a function of outputs and targets.
        batch: rows per step.
        evaluate_every: steps from one evaluation to the next; 0: none.
        rate: learning rate relative to the optimizer's, by step.
        latest: of a faulty training, step by which a rule must have stopped it.
    """

    data: Callable[[], Data]
    model: Callable[[], nn.Module]
    optimizer: Callable[[nn.Module], torch.optim.Optimizer]
    parameters: dict[str, float] = field(default_factory=dict)
    steps: int = 600
    loss: Callable[[], nn.Module] = nn.CrossEntropyLoss
    batch: int = 64
    evaluate_every: int = 50
    rate: Callable[[int], float] = lambda step: 1.0
    latest: int | None = None

    def run(self, directory: Path, *, whole: bool = True) -> Path:
        """Train, and return the run directory.

        Args:
            directory: the run directory.
            whole: take all steps; False: leave out those after `latest`.
        """
        last = self.steps - 1 if whole or self.latest is None else self.latest
        torch.manual_seed(0)
        torch.set_num_threads(1)
        data, model, loss = self.data(), self.model(), self.loss()
        optimizer = self.optimizer(model)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, self.rate)
        rules = [kind() for kind in RULES.values()]
        hook = Hook(
            directory,
            collections=capture_for(rules).collections,
            parameters=self.parameters,
            total_steps=self.steps,
        )
        hook.watch(model, loss=loss, optimizer=optimizer)
        rows = batches(len(data.x), self.batch)
        for step in range(last + 1):
            if self.evaluate_every and step % self.evaluate_every == 0:
                evaluate(hook, model, loss, data)
            chosen = next(rows)
            optimizer.zero_grad()
            loss(model(data.x[chosen]), data.y[chosen]).backward()
            optimizer.step()
            schedule.step()
        hook.close()
        return directory


def batches(rows: int, size: int) -> Iterator[Tensor]:
    """Yield the row indices of batches endlessly, each epoch in another order."""
    generator = torch.Generator().manual_seed(1)
    while True:
        order = torch.randperm(rows, generator=generator)
        yield from (part for part in torch.split(order, size) if len(part) == min(size, rows))


def evaluate(hook: Hook, model: nn.Module, loss: nn.Module, data: Data) -> None:
    """Evaluate on the evaluation rows."""
    model.eval()
    with hook.mode("eval"), torch.no_grad():
        output = model(data.x_eval)
        loss(output, data.y_eval)
        if data.y_eval.dtype == torch.long:
            right = (output.argmax(1) == data.y_eval).float().mean()
            hook.metric("accuracy", right.item())
    model.train()


class Mixed(nn.Module):
    """Reads the axes of a batch in the wrong order, so that rows contain parts of others."""

    def forward(self, x: Tensor) -> Tensor:
        return x.T.reshape(x.shape)


def mixing() -> nn.Module:
    """Return a network that mixes the rows of a batch."""
    return nn.Sequential(Mixed(), *mlp(64, 64, 10)().children())


def mlp(*widths: int, activation: Callable[[], nn.Module] = nn.ReLU) -> Callable[[], nn.Module]:
    """Return a factory of a multilayer perceptron with an activation between its layers."""

    def make() -> nn.Module:
        layers: list[nn.Module] = []
        for wide, narrow in pairwise(widths):
            layers += [nn.Linear(wide, narrow), activation()]
        return nn.Sequential(*layers[:-1])

    return make


def cnn() -> nn.Module:
    """Return a small convolutional network with batch normalisation and dropout."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(inplace=True),
        nn.Flatten(),
        nn.Dropout(0.5),
        nn.Linear(512, 10),
    )


class RowReader(nn.Module):
    """Reads a digit row by row."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(8, 32, batch_first=True)
        self.head = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.gru(x.reshape(-1, 8, 8))
        out: Tensor = self.head(states[:, -1])
        return out


class Reconstruction(nn.Module):
    """Squared error of a reconstructed picture; ignores the labels."""

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        return ((output[:, :64] - output[:, 64:]) ** 2).mean()


class AutoEncoder(nn.Module):
    """Returns the reconstructed picture and the original, concatenated."""

    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 8))
        self.decode = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 64))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.decode(self.encode(x)), x], dim=1)


class Distance(nn.Module):
    """Distance of the probabilities from the label, zero where it is small.

    The root has no derivative at zero: once a row comes that close, the gradient is NaN while the
    loss is finite.
    """

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        difference = output.softmax(1) - nn.functional.one_hot(target, 10)
        far = (difference.abs().sum(1, keepdim=True) > 0.1).float()
        return ((difference * far) ** 2).sum(1).sqrt().mean()


class LogOfProbability(nn.Module):
    """An unstable cross-entropy: the logarithm of a softmax in float32."""

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        probability = (20 * output).softmax(1)
        wrong = 1 - nn.functional.one_hot(target, 10)
        return -(wrong * (1 - probability).log()).sum(1).mean()


def sgd(lr: float, momentum: float = 0.0) -> Callable[[nn.Module], torch.optim.Optimizer]:
    """Return a factory of stochastic gradient descent."""
    return lambda model: torch.optim.SGD(model.parameters(), lr=lr, momentum=momentum)


def adam(lr: float) -> Callable[[nn.Module], torch.optim.Optimizer]:
    """Return a factory of Adam."""
    return lambda model: torch.optim.Adam(model.parameters(), lr=lr)


def dead() -> nn.Module:
    """Return a network whose relu units are dead for all inputs."""
    model = mlp(64, 64, 10)()
    assert isinstance(model, nn.Sequential)
    assert isinstance(model[0], nn.Linear)
    nn.init.constant_(model[0].bias, -10.0)
    return model


def scaled(make: Callable[[], nn.Module], scale: float) -> Callable[[], nn.Module]:
    """Return a factory of a model with all weights scaled."""

    def made() -> nn.Module:
        model = make()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(scale)
        return model

    return made


DEEP = (64, *[32] * 10, 10)

HEALTHY: dict[str, Training] = {
    "mlp": Training(digits, mlp(64, 64, 10), adam(1e-3), {"lr": 1e-3}),
    "cnn": Training(lambda: digits(image=True), cnn, adam(2e-3), {"lr": 2e-3}, steps=300),
    "deep_tanh": Training(digits, mlp(*DEEP, activation=nn.Tanh), adam(3e-3), {"lr": 3e-3}),
    "gru": Training(digits, RowReader, adam(5e-3), {"lr": 5e-3}, steps=500),
    "regression": Training(
        diabetes, mlp(10, 32, 1), adam(1e-2), {"lr": 1e-2}, steps=1000, loss=nn.MSELoss, batch=32
    ),
    "warm_up": Training(
        digits,
        mlp(64, 64, 10),
        sgd(0.5),
        {"lr": 0.5},
        rate=lambda step: min(1.0, max(1e-4, (step - 120) / 200)),
    ),
    "autoencoder": Training(digits, AutoEncoder, adam(2e-3), {"lr": 2e-3}, loss=Reconstruction),
    "tiny_batches": Training(digits, mlp(64, 32, 10), sgd(0.01), {"lr": 0.01}, steps=800, batch=4),
    "converged": Training(
        digits, mlp(64, 64, 10), sgd(0.2, 0.9), {"lr": 0.2}, steps=1000, evaluate_every=100
    ),
}

FAULTY: dict[str, Training] = {
    "lr_sticks": Training(digits, mlp(64, 64, 64, 10), sgd(10.0), {"lr": 10.0}, latest=300),
    "lr_momentum": Training(digits, mlp(64, 64, 10), sgd(5.0, 0.9), {"lr": 5.0}, latest=350),
    "lr_adam": Training(digits, mlp(64, 64, 64, 10), adam(1.0), {"lr": 1.0}, latest=300),
    "lr_regression": Training(
        diabetes, mlp(10, 32, 1), sgd(1e-2), {"lr": 1e-2}, loss=nn.MSELoss, batch=32, latest=10
    ),
    "lr_cnn": Training(
        lambda: digits(image=True), cnn, sgd(100.0), {"lr": 100.0}, steps=300, latest=100
    ),
    "lr_too_low": Training(digits, mlp(64, 64, 10), sgd(1e-6), {"lr": 1e-6}, latest=300),
    "vanishing": Training(
        digits, mlp(*DEEP, activation=nn.Sigmoid), sgd(0.1), {"lr": 0.1}, latest=260
    ),
    "vanishing_adam": Training(
        digits, mlp(*DEEP, activation=nn.Sigmoid), adam(1e-3), {"lr": 1e-3}, latest=320
    ),
    "tiny_weights": Training(digits, scaled(mlp(*DEEP), 0.15), sgd(0.1), {"lr": 0.1}, latest=260),
    "dead_units": Training(digits, dead, adam(1e-3), {"lr": 1e-3}, latest=300),
    "mixed_rows": Training(digits, mixing, adam(1e-3), {"lr": 1e-3}, latest=400),
    "overfit": Training(
        lambda: digits().subset(100),
        mlp(64, 128, 10),
        adam(1e-2),
        {"lr": 1e-2},
        batch=32,
        evaluate_every=20,
        latest=560,
    ),
    "nan_sqrt": Training(
        digits, mlp(64, 64, 10), adam(5e-3), {"lr": 5e-3}, loss=Distance, latest=100
    ),
    "nan_log": Training(
        digits, mlp(64, 64, 10), adam(5e-3), {"lr": 5e-3}, loss=LogOfProbability, latest=200
    ),
}


def train(name: str, directory: Path, *, whole: bool = True) -> Path:
    """Run a training by name; return its run directory (see `Training.run`)."""
    return (HEALTHY | FAULTY)[name].run(directory, whole=whole)


def trained(name: str, runs: RunStore) -> Path:
    """Return the run directory of a training up to its `latest`; tests must not change it."""
    return runs.path(f"trainings/{name}", partial(train, name, whole=False))


if __name__ == "__main__":
    train(sys.argv[1], Path(sys.argv[2]))
