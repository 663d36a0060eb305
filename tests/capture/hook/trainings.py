"""Trainings of many kinds, which a hook must not disturb or misread.

Each trains a small model and notes, by plain clones in its own loop, what the hook should have
captured: the weights before the update, the gradients that the optimizer is given, the loss.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from vinedresser.capture import Hook, SaveConfig

__all__ = ["EVERYTHING", "TRAININGS", "Notes", "Residual", "train"]

STEPS = 5
_ALL = SaveConfig(every=1, tensor=True, reductions=("l2", "std", "min", "zero_share", "nonfinite"))
EVERYTHING = dict.fromkeys(
    ("losses", "metrics", "weights", "biases", "gradients", "outputs", "saved"), _ALL
)


@dataclass
class Notes:
    """The values that a training's own loop saw, by step.

    Attributes:
        losses: the values that the loop has computed itself.
        weights: parameters before the update, by name.
        gradients: what the optimizer was given, by name.
        final: parameters and buffers after the last step.
    """

    losses: list[float] = field(default_factory=list)
    weights: list[dict[str, Tensor]] = field(default_factory=list)
    gradients: list[dict[str, Tensor]] = field(default_factory=list)
    final: dict[str, Tensor] = field(default_factory=dict)

    def before_update(self, model: nn.Module, scale: float = 1.0) -> None:
        """Note the current weights and gradients."""
        named = dict(model.named_parameters())
        self.weights.append({name: one.detach().clone() for name, one in named.items()})
        self.gradients.append(
            {name: one.grad.clone() / scale for name, one in named.items() if one.grad is not None}
        )


class Residual(nn.Module):
    """A convolution block that writes in place wherever it can."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)
        self.bn = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(channels, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.conv2(self.relu(self.bn(self.conv(x))))
        y += x
        out: Tensor = self.relu(y)
        return out


def conv_net() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), Residual(4), Residual(4),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.3), nn.Linear(4, 3),
    )  # fmt: skip


def mlp() -> nn.Module:
    return nn.Sequential(
        nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 3)
    )


class Checkpointed(nn.Module):
    """A perceptron that computes its middle again in the backward pass."""

    def __init__(self, *, reentrant: bool) -> None:
        super().__init__()
        self.first = nn.Linear(6, 16)
        self.middle = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16))
        self.last = nn.Linear(16, 3)
        self._reentrant = reentrant

    def forward(self, x: Tensor) -> Tensor:
        y = checkpoint(self.middle, self.first(x), use_reentrant=self._reentrant)
        out: Tensor = self.last(y)
        return out


def _images(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return (
        torch.randn(8, 2, 9, 9, generator=generator),
        torch.randint(0, 3, (8,), generator=generator),
    )


def _rows(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return torch.randn(8, 6, generator=generator), torch.randint(0, 3, (8,), generator=generator)


def _adam(model: nn.Module, *, fused: bool = False) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=0.01, fused=fused)


def _momentum(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)


_Batch = Callable[[torch.Generator], tuple[Tensor, Tensor]]


@dataclass
class Training:
    """A way of training.

    Attributes:
        model: makes it.
        batch: draws one.
        optimizer: makes it.
        clip: norm to which gradients are clipped.
        micro: micro-batches in a step.
        scaler: makes a scaler of gradients.
        bf16: the model's own dtype is bfloat16.
    """

    model: Callable[[], nn.Module]
    batch: _Batch
    optimizer: Callable[[nn.Module], torch.optim.Optimizer] = _momentum
    clip: float | None = None
    micro: int = 1
    scaler: Callable[[], torch.amp.GradScaler] | None = None
    bf16: bool = False


TRAININGS = {
    "mlp": Training(mlp, _rows),
    "mlp_adam_clipped": Training(mlp, _rows, _adam, clip=0.1),
    "conv_in_place": Training(conv_net, _images),
    "conv_accumulated": Training(conv_net, _images, _adam, micro=3),
    "scaled": Training(mlp, _rows, scaler=lambda: torch.amp.GradScaler("cpu", init_scale=1024.0)),
    "scaled_fused": Training(
        mlp,
        _rows,
        lambda model: _adam(model, fused=True),
        scaler=lambda: torch.amp.GradScaler("cpu", init_scale=1024.0),
    ),
    "bf16": Training(mlp, _rows, bf16=True),
    "lbfgs": Training(
        mlp, _rows, lambda model: torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=4)
    ),
    "checkpointed": Training(lambda: Checkpointed(reentrant=False), _rows),
    "checkpointed_reentrant": Training(lambda: Checkpointed(reentrant=True), _rows, _adam),
}


def train(
    name: str, hooked: Callable[[], Hook] | None = None, *, with_optimizer: bool = True
) -> Notes:
    """Train, and return what the loop saw.

    Args:
        name: which of `TRAININGS`.
        hooked: makes the hook; None: train without.
        with_optimizer: tell the hook the optimizer.
    """
    training = TRAININGS[name]
    torch.manual_seed(1)
    generator = torch.Generator().manual_seed(2)
    model, loss = training.model(), nn.CrossEntropyLoss()
    if training.bf16:
        model = model.bfloat16()
    optimizer = training.optimizer(model)
    hook = hooked().watch(model, loss, optimizer if with_optimizer else None) if hooked else None
    notes = Notes()
    scaler = training.scaler() if training.scaler else None
    for _ in range(STEPS):
        batches = [training.batch(generator) for _ in range(training.micro)]
        if isinstance(optimizer, torch.optim.LBFGS):
            _closure_step(model, loss, optimizer, batches[0], notes)
        else:
            _step(training, (model, loss, optimizer, scaler), batches, notes)
    notes.final = {key: value.clone() for key, value in model.state_dict().items()}
    if hook is not None:
        hook.close()
    return notes


def _step(
    training: Training,
    state: tuple[nn.Module, nn.Module, torch.optim.Optimizer, torch.amp.GradScaler | None],
    batches: list[tuple[Tensor, Tensor]],
    notes: Notes,
) -> None:
    model, loss, optimizer, scaler = state
    optimizer.zero_grad()
    values = []
    for x, y in batches:
        value = loss(model(x.bfloat16() if training.bf16 else x), y)
        values.append(value.item())
        value = value / len(batches)
        (value if scaler is None else scaler.scale(value)).backward()
    fused = "fused" in optimizer.defaults and optimizer.defaults["fused"]
    if scaler is not None and not fused:
        scaler.unscale_(optimizer)
    if training.clip is not None:
        torch.nn.utils.clip_grad_norm_(model.parameters(), training.clip)
    notes.losses.append(sum(values) / len(values))
    notes.before_update(model, scaler.get_scale() if scaler is not None and fused else 1.0)
    if scaler is None:
        optimizer.step()
    else:
        scaler.step(optimizer)
        scaler.update()


def _closure_step(
    model: nn.Module,
    loss: nn.Module,
    optimizer: torch.optim.Optimizer,
    batch: tuple[Tensor, Tensor],
    notes: Notes,
) -> None:
    values: list[float] = []

    def closure() -> float:
        optimizer.zero_grad()
        value: Tensor = loss(model(batch[0]), batch[1])
        value.backward()
        values.append(value.item())
        return value.item()

    notes.before_update(model)
    optimizer.step(closure)
    notes.losses.append(values[0])
    # The gradients that it consumed last remain.
    notes.gradients[-1] = {
        name: one.grad.clone() for name, one in model.named_parameters() if one.grad is not None
    }
