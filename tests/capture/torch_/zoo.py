"""Small trainings of many common kinds, each with or without a hook.

A training is a function of a `Watch`: it makes its models and optimizers, hands them over, trains,
and returns whatever is left at the end: models, optimizers, scalers, losses.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (as everybody calls it)

from tests.capture.torch_.zoo_modules import Block, Checkpointed, Recurrent, Transformer
from vinedresser.capture import Hook, SaveConfig
from vinedresser.store.collections.collection import BUILT_IN

__all__ = ["EVERYTHING", "STEPS", "ZOO", "Watch", "final_bits", "watching"]

_WORDS = (
    *("min", "max", "mean", "sum", "l1", "l2", "std", "variance", "zero_share", "nonfinite"),
    *("abs_mean", "abs_max", "p95", "histogram", "channel_l2"),
)

_ALL = SaveConfig(every=1, tensor=True, reductions=_WORDS)

EVERYTHING = dict.fromkeys(BUILT_IN, _ALL)

STEPS = 4


class Watch(Protocol):
    """Passed to a training: `Hook.watch`, or a no-op with the same interface."""

    def __call__(
        self, model: nn.Module, loss: Any = None, optimizer: Any = None, name: str | None = None
    ) -> Callable[[str], AbstractContextManager[None]]:
        """Watch a model; return the function that opens a block of a mode."""


def watching(hook: Hook | None) -> Watch:
    """Return what a training is given."""

    def watch(
        model: nn.Module, loss: Any = None, optimizer: Any = None, name: str | None = None
    ) -> Callable[[str], AbstractContextManager[None]]:
        if hook is None:
            return lambda mode: nullcontext()
        hook.watch(model, loss, optimizer, name=name)
        return hook.mode  # type: ignore[return-value]

    return watch


def rows(*shape: int) -> Tensor:
    """Return a batch of 8, of the global generator, as a data loader without a seed gives it."""
    return torch.randn(8, *shape)


def labels(classes: int = 3) -> Tensor:
    return torch.randint(0, classes, (8,))


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3)


def _mlp() -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 3)
    )


def mlp(watch: Watch) -> list[Any]:
    model, loss = _mlp(), nn.CrossEntropyLoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)
    mode = watch(model, loss, optimizer)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss(model(rows(6)), labels()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        scheduler.step()
        model.eval()
        with mode("eval"), torch.no_grad():
            loss(model(rows(6)), labels())
        model.train()
    return [model, optimizer]


def resnet(watch: Watch) -> list[Any]:
    model = nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), Block(4), Block(4),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3),
    )  # fmt: skip
    loss, optimizer = nn.CrossEntropyLoss(label_smoothing=0.1), sgd(model)
    watch(model, loss, optimizer)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss(model(rows(2, 9, 9)), labels()).backward()
        optimizer.step()
    return [model, optimizer]


def lstm(watch: Watch) -> list[Any]:
    model, optimizer_of = Recurrent(), torch.optim.RMSprop
    optimizer = optimizer_of(model.parameters(), lr=0.01)
    watch(model, None, optimizer)
    for _ in range(STEPS):
        tokens = torch.randint(0, 11, (8, 5))
        optimizer.zero_grad()
        logits = model(tokens)["logits"]
        F.cross_entropy(logits.flatten(0, 1), tokens.flatten()).backward()
        optimizer.step()
    return [model, optimizer]


def transformer(watch: Watch) -> list[Any]:
    model, loss = Transformer(), nn.CrossEntropyLoss()
    groups: list[dict[str, Any]] = [
        {"params": model.encoder.parameters(), "lr": 1e-3},
        {"params": model.head.parameters()},
    ]
    optimizer = torch.optim.Adam(groups, lr=1e-2, amsgrad=True)
    watch(model, loss, optimizer)
    for _ in range(STEPS):
        tokens = torch.randint(0, 11, (8, 5))
        optimizer.zero_grad()
        loss(model(tokens, causal=True).flatten(0, 1), tokens.flatten()).backward()
        optimizer.step()
    return [model, optimizer]


def autocast(watch: Watch) -> list[Any]:
    model, loss = _mlp(), nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, fused=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16, growth_interval=2)
    watch(model, loss, optimizer)
    for step in range(STEPS):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            value = loss(model(rows(6)), labels())
        scaler.scale(value * (float("inf") if step == 1 else 1.0)).backward()
        scaler.step(optimizer)
        scaler.update()
    return [model, optimizer, scaler]


def bf16(watch: Watch) -> list[Any]:
    model, loss = _mlp().bfloat16(), nn.CrossEntropyLoss()
    optimizer = sgd(model)
    watch(model, loss, optimizer)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss(model(rows(6).bfloat16()), labels()).backward()
        optimizer.step()
    return [model, optimizer]


def accumulated(watch: Watch) -> list[Any]:
    model, loss = _mlp(), nn.CrossEntropyLoss(reduction="none")
    optimizer = sgd(model)
    watch(model, loss, optimizer)
    for _ in range(STEPS):
        optimizer.zero_grad(set_to_none=False)
        for _ in range(3):
            (loss(model(rows(6)), labels()).mean() / 3).backward()
        optimizer.step()
    return [model, optimizer]


def lbfgs(watch: Watch) -> list[Any]:
    model, loss = _mlp(), nn.CrossEntropyLoss()
    optimizer = torch.optim.LBFGS(
        model.parameters(), lr=0.5, max_iter=4, line_search_fn="strong_wolfe"
    )
    watch(model, loss, optimizer)
    for _ in range(STEPS):
        x, y = rows(6), labels()

        def closure(x: Tensor = x, y: Tensor = y) -> Tensor:
            optimizer.zero_grad()
            value: Tensor = loss(model(x), y)
            value.backward()
            return value

        optimizer.step(closure)
    return [model, optimizer]


def gan(watch: Watch) -> list[Any]:
    generator = nn.Sequential(nn.Linear(2, 8), nn.LeakyReLU(0.2, inplace=True), nn.Linear(8, 4))
    critic = nn.Sequential(
        nn.utils.parametrizations.spectral_norm(nn.Linear(4, 8)), nn.ELU(), nn.Linear(8, 1)
    )
    makes, judges = (
        torch.optim.Adam(one.parameters(), lr=0.01, betas=(0.5, 0.9)) for one in (generator, critic)
    )
    loss = nn.BCEWithLogitsLoss()
    watch(critic, loss, judges, name="critic")
    watch(generator, None, makes, name="generator")
    for _ in range(STEPS):
        made, real, fake = generator(rows(2)), torch.ones(8, 1), torch.zeros(8, 1)
        judges.zero_grad()
        (loss(critic(rows(4)), real) + loss(critic(made.detach()), fake)).backward()
        judges.step()
        makes.zero_grad()
        loss(critic(made), real).backward()
        makes.step()
    return [generator, critic, makes, judges]


def _compiled(backend: str) -> Callable[[Watch], list[Any]]:
    def compiled(watch: Watch) -> list[Any]:
        torch._dynamo.reset()
        model, loss = torch.compile(_mlp(), backend=backend), nn.CrossEntropyLoss()
        assert isinstance(model, nn.Module)
        optimizer = sgd(model)
        watch(model, loss, optimizer)
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss(model(rows(6)), labels()).backward()
            optimizer.step()
        return [model, optimizer]

    return compiled


def _checkpointed(*, reentrant: bool) -> Callable[[Watch], list[Any]]:
    def checkpointed(watch: Watch) -> list[Any]:
        model, loss = Checkpointed(reentrant=reentrant), nn.CrossEntropyLoss()
        optimizer = sgd(model)
        watch(model, loss, optimizer)
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss(model(rows(6)), labels()).backward()
            optimizer.step()
        return [model, optimizer]

    return checkpointed


def sparse(watch: Watch) -> list[Any]:
    model = nn.Sequential(nn.Embedding(11, 4, sparse=True), nn.Flatten())
    optimizer = torch.optim.SparseAdam(list(model.parameters()), lr=0.01)
    watch(model, None, optimizer)
    for _ in range(STEPS):
        optimizer.zero_grad()
        model(torch.randint(0, 11, (8, 3))).square().sum().backward()
        optimizer.step()
    return [model, optimizer]


def penalty(watch: Watch) -> list[Any]:
    """Train on the gradient of a gradient, as WGAN-GP does, with inputs that have one."""
    model = nn.Sequential(nn.Linear(4, 8), nn.Softplus(), nn.Linear(8, 1))
    optimizer = sgd(model)
    watch(model, None, optimizer)
    for _ in range(STEPS):
        x = rows(4).requires_grad_()
        optimizer.zero_grad()
        (slope,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        (slope.norm(dim=1) - 1).square().mean().backward()
        optimizer.step()
    return [model, optimizer]


def shuffled(watch: Watch) -> list[Any]:
    """Draw batches from a shuffling loader, augment them by two more generators."""
    data = torch.utils.data.TensorDataset(torch.randn(32, 6), torch.randint(0, 3, (32,)))
    loader = torch.utils.data.DataLoader(data, batch_size=8, shuffle=True)
    model, loss = _mlp(), nn.CrossEntropyLoss()
    optimizer = sgd(model)
    watch(model, loss, optimizer)
    for x, y in loader:
        noise = torch.from_numpy(np.random.randn(*x.shape)).float()
        optimizer.zero_grad()
        loss(model(x * random.uniform(0.9, 1.1) + 0.1 * noise), y).backward()
        optimizer.step()
    return [model, optimizer]


ZOO: dict[str, Callable[[Watch], list[Any]]] = {
    "mlp": mlp,
    "resnet": resnet,
    "lstm": lstm,
    "transformer": transformer,
    "autocast": autocast,
    "bf16": bf16,
    "accumulated": accumulated,
    "lbfgs": lbfgs,
    "gan": gan,
    "compiled_eager": _compiled("eager"),
    "compiled_aot_eager": _compiled("aot_eager"),
    "checkpointed": _checkpointed(reentrant=False),
    "checkpointed_reentrant": _checkpointed(reentrant=True),
    "sparse": sparse,
    "penalty": penalty,
    "shuffled": shuffled,
}


def final_bits(name: str, hooked: Callable[[], Hook] | None = None) -> dict[str, bytes]:
    """Run a training and return all that is left at the end, bit for bit, by name.

    Args:
        name: of the training.
        hooked: makes the hook; None: train without.
    """
    torch.manual_seed(1)
    np.random.seed(2)
    random.seed(3)
    hook = hooked() if hooked else None
    left = ZOO[name](watching(hook))
    if hook is not None:
        hook.close()
        assert hook.problems == [], hook.problems
    found = {"torch": torch.get_rng_state().numpy().tobytes()}
    found["numpy"] = np.random.get_state(legacy=False)["state"]["key"].tobytes()
    found["python"] = repr(random.getstate()).encode()
    for number, one in enumerate(left):
        _collect(f"{number}", one.state_dict(), found)
    return found


def _collect(name: str, value: Any, found: dict[str, bytes]) -> None:
    """Put the bits of everything in a nesting under names of their own."""
    if isinstance(value, Tensor):
        plain = value.detach().contiguous().reshape(-1)
        found[name] = plain.view(torch.uint8).numpy().tobytes() if plain.numel() else b""
    elif isinstance(value, dict):
        for key, item in value.items():
            _collect(f"{name}.{key}", item, found)
    elif isinstance(value, (list, tuple)):
        for key, item in enumerate(value):
            _collect(f"{name}.{key}", item, found)
    else:
        found[name] = repr(value).encode()
