"""Successive torch trainings in one process without a hook.

Each prints what it ends with. Run as a script with the names of the trainings.
"""

from __future__ import annotations

import copy
import hashlib
import io
import pickle
import sys
import warnings
from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

__all__ = ["SCENARIOS", "STEPS", "rows"]

STEPS = 6


def rows() -> tuple[Tensor, Tensor]:
    """Return 16 rows with 4 features and a label."""
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(16, 4, generator=generator)
    return x, torch.randint(0, 2, (16,), generator=generator)


def perceptron() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 2))


def descend(
    optimizer: torch.optim.Optimizer, loss_of: Callable[[], Tensor], steps: int = STEPS
) -> list[float]:
    """Train with a loss and return its values."""
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = loss_of()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def show(*models: nn.Module, losses: list[float], saved: bytes = b"") -> None:
    digest = hashlib.sha256(saved)
    for model in models:
        for value in model.state_dict().values():
            digest.update(value.numpy().tobytes())
    print(*losses, digest.hexdigest())  # noqa: T201


def manual() -> None:
    """A loop that updates the weights itself, after one that compares states."""
    model = perceptron()
    x, y = rows()
    best = {name: one.clone() for name, one in model.state_dict().items()}
    for share in (0.1, 0.4, 0.7, 1.0):
        model.load_state_dict({name: share * one for name, one in best.items()})
        F.cross_entropy(model(x), y).backward()
    model.load_state_dict(best)
    losses, norms = [], []
    for _ in range(STEPS):
        model.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        for parameter in model.parameters():
            assert parameter.grad is not None
            parameter.data.add_(parameter.grad, alpha=-0.1)
        losses.append(loss.item())
        gradients = [one.grad for one in model[0].parameters() if one.grad is not None]
        norms.append(sum(float(gradient.square().sum()) for gradient in gradients))
    model.eval()
    with torch.no_grad():
        losses.append(F.cross_entropy(model(x), y).item())
    show(model, losses=losses + norms)


def plain() -> None:
    """An ordinary loop, with evaluations, copies, pickles and workers."""
    model, criterion = perceptron(), nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    loader = DataLoader(TensorDataset(*rows()), batch_size=16, num_workers=1)
    losses = []
    saved = io.BytesIO()
    for _ in range(STEPS):
        model.train()
        for x, y in loader:
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        model.eval()
        with torch.no_grad():
            losses.append(criterion(model(x), y).item())
        copy.deepcopy(model)(x)
        torch.save((model, criterion, optimizer, copy.deepcopy(model)), saved)
        pickle.dumps((model, criterion, optimizer))
    show(model, losses=losses, saved=saved.getvalue())


def functional() -> None:
    """A loss function, accumulated over two halves and scaled."""
    model = perceptron()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    x, y = rows()
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        total = 0.0
        for half in (slice(0, 8), slice(8, 16)):
            loss = F.cross_entropy(model(x[half]), y[half]) / 2
            scaler.scale(loss).backward()
            total += loss.item()
        scaler.step(optimizer)
        scaler.update()
        losses.append(total)
    show(model, losses=losses)


class WithLoss(nn.Module):
    """A model that computes its loss itself."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = perceptron()

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(self.inner(x), y)


def evaluated() -> None:
    """A loss function inside the model, accumulated over two halves, with evaluations by others."""
    model = WithLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    # The trained model is evaluated by functions and modules that the training did not use.
    criterion = nn.NLLLoss(reduction="sum")
    x, y = rows()
    losses = []
    for _ in range(STEPS):
        model.train()
        halves = [model(x[half], y[half]) / 2 for half in (slice(0, 8), slice(8, 16))]
        for loss in halves:
            loss.backward()
        losses.append(sum(loss.item() for loss in halves))
        optimizer.step()
        optimizer.zero_grad()
        model.eval()
        with torch.no_grad():
            total = model(x[:4], y[:4]).item() * 4
            total += criterion(model.inner(x[4:]).log_softmax(1), y[4:]).item()
        losses.append(total / 16)
    show(model, losses=losses)


def adversarial() -> None:
    """Two adversarial models."""
    generator = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 4))
    critic = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    criterion = F.binary_cross_entropy_with_logits
    on_critic = torch.optim.Adam(critic.parameters(), lr=0.01)
    on_generator = torch.optim.Adam(generator.parameters(), lr=0.01)
    real, ones, zeros = rows()[0], torch.ones(16, 1), torch.zeros(16, 1)
    losses = []
    for _ in range(STEPS):
        fake = generator(torch.randn(16, 3))
        on_critic.zero_grad()
        first = criterion(critic(real), ones)
        first.backward()
        second = criterion(critic(fake.detach()), zeros)
        second.backward()
        on_critic.step()
        on_generator.zero_grad()
        third = criterion(critic(fake), ones)
        third.backward()
        on_generator.step()
        losses += [first.item() + second.item(), third.item()]
    show(generator, critic, losses=losses)


def compiled() -> None:
    """A model that is compiled after its optimizer was created."""
    plain_model = perceptron()
    optimizer = torch.optim.SGD(plain_model.parameters(), lr=0.1)
    model = torch.compile(plain_model, backend="aot_eager")
    x, y = rows()
    losses = descend(optimizer, lambda: F.cross_entropy(model(x), y))
    show(plain_model, losses=losses)


def compiled_loss() -> None:
    """A model that only compiled code calls."""
    model = perceptron()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = rows()

    @torch.compile(backend="aot_eager")
    def loss_of(x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(model(x), y)

    losses = descend(optimizer, lambda: loss_of(x, y))
    show(model, losses=losses)


class AutoEncoder(nn.Module):
    """A model whose parts are called directly."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(4, 2)
        self.decoder = nn.Linear(2, 4)


def parts() -> None:
    model = AutoEncoder()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, _ = rows()
    losses = descend(optimizer, lambda: F.mse_loss(model.decoder(model.encoder(x)), x))
    show(model, losses=losses)


def closure() -> None:
    """An optimizer that runs the model several times per step."""
    model = nn.Linear(4, 2)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=4)
    x, y = rows()

    def evaluate() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        return loss

    show(model, losses=[float(optimizer.step(evaluate)) for _ in range(STEPS)])


def tensors() -> None:
    """A training without a module."""
    weights = torch.zeros(4, requires_grad=True)
    optimizer = torch.optim.SGD([weights], lr=0.1)
    x, y = rows()
    losses = descend(optimizer, lambda: F.mse_loss(x @ weights, y.float()))
    print(*losses, weights.tolist())  # noqa: T201


def autograd_backward() -> None:
    """`torch.autograd.backward` of several losses; the model is scripted afterwards."""
    model = perceptron()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = rows()
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        output = model(x)
        first, second = F.cross_entropy(output, y), output.square().mean()
        torch.autograd.backward([first, second])
        optimizer.step()
        losses.append((first + second).item())
    model.eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scripted = torch.jit.script(model)
    assert torch.equal(scripted(x), model(x))
    show(model, losses=losses)


def phases() -> None:
    """A second optimizer continues the training while the first still exists."""
    model = perceptron()
    x, y = rows()
    head = torch.optim.SGD(model[3].parameters(), lr=0.1)
    losses = descend(head, lambda: F.cross_entropy(model(x), y))
    everything = torch.optim.SGD(model.parameters(), lr=0.1)
    losses += descend(everything, lambda: F.cross_entropy(model(x), y))
    show(model, losses=losses)


def renewed() -> None:
    """An optimizer that is replaced in each epoch, and then waits for the garbage collection."""
    model = perceptron()
    x, y = rows()
    losses = []
    for epoch in range(3):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1 / (1 + epoch))
        cycle: list[object] = [optimizer]
        cycle.append(cycle)
        losses += descend(optimizer, lambda: F.cross_entropy(model(x), y), steps=2)
    show(model, losses=losses)


def idle() -> None:
    """An optimizer that takes no step, beside one of the same model that does."""
    model = perceptron()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    unused = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = rows()
    show(model, losses=descend(optimizer, lambda: F.cross_entropy(model(x), y), steps=12))
    del unused


def by_turns() -> None:
    """Two parts of a model, of which the one with the later optimizer begins late."""
    model = AutoEncoder()
    before = torch.optim.SGD(model.decoder.parameters(), lr=0.1)
    late = torch.optim.SGD(model.encoder.parameters(), lr=0.1)
    x, _ = rows()
    losses = []
    for turn in range(13):
        model.zero_grad()
        loss = F.mse_loss(model.decoder(model.encoder(x)), x)
        loss.backward()
        (late if turn in (8, 10, 12) else before).step()
        losses.append(loss.item())
    show(model, losses=losses)


def accelerated() -> None:
    """A loss module whose values a library divides by the number of micro-batches."""
    model = perceptron()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    criterion = nn.CrossEntropyLoss()
    x, y = rows()
    losses = []
    for _ in range(STEPS):
        total = 0.0
        for half in (slice(0, 8), slice(8, 16)):
            loss = criterion(model(x[half]), y[half])
            (loss / 2).backward()
            total += loss.item() / 2
        optimizer.step()
        optimizer.zero_grad()
        losses.append(total)
    show(model, losses=losses)


class WithNewLoss(WithLoss):
    """A model that makes a loss module in each forward, as many of transformers do."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        criterion = nn.CrossEntropyLoss()
        loss: Tensor = criterion(self.inner(x), y)
        return loss


def made_anew() -> None:
    """Loss modules that exist for one forward, accumulated over two halves."""
    model = WithNewLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = rows()
    losses = []
    for _ in range(STEPS):
        total = 0.0
        for half in (slice(0, 8), slice(8, 16)):
            loss = model(x[half], y[half]) / 2
            loss.backward()
            total += loss.item()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(total)
    show(model, losses=losses)


def made_in_steps() -> None:
    """A loss module that the loop makes in each step, and keeps in a variable."""
    model = perceptron()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = rows()
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        criterion = nn.CrossEntropyLoss()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    show(model, losses=losses)


class Focal(nn.Module):
    """A loss module of the user's own."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        lost = F.binary_cross_entropy_with_logits(x, y, reduction="none")
        return ((1 - torch.exp(-lost)) ** 2 * lost).mean()


def focal() -> None:
    model, criterion = nn.Linear(4, 1), Focal()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = rows()
    losses = descend(optimizer, lambda: criterion(model(x), y[:, None].float()))
    show(model, losses=losses)


SCENARIOS: dict[str, Callable[[], None]] = {
    one.__name__: one
    for one in (
        # Before any optimizer.
        manual,
        plain,
        functional,
        evaluated,
        adversarial,
        compiled,
        compiled_loss,
        parts,
        closure,
        tensors,
        autograd_backward,
        phases,
        renewed,
        idle,
        by_turns,
        accelerated,
        made_anew,
        made_in_steps,
        focal,
    )
}

if __name__ == "__main__":
    torch.manual_seed(1)
    for name in sys.argv[1:]:
        SCENARIOS[name]()
    print(torch.rand(1).item())  # noqa: T201
