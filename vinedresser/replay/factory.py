"""The user's function that builds the model and the step of a replay."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn
from torch.optim import Optimizer

from vinedresser.errors import ConfigError
from vinedresser.replay.batch import Batch
from vinedresser.replay.referenced import referenced

__all__ = ["NEEDED", "Parts", "build"]

NEEDED = (
    "--factory MODULE:FUNCTION is needed: a function without arguments that returns the model as "
    "it was built for the training, and either the loss module or a function step(batch) that "
    "computes the loss, calls backward() and returns the loss; batch has args, kwargs, loss_args "
    "and loaded (docs/snapshots.md#running-the-step-again)"
)


@dataclass
class Parts:
    """What a factory returns.

    Attributes:
        models: the models by the name under which they were watched; "" for one without a name.
        optimizers: the optimizers, in the order in which they were made.
        loss: the loss module, or None.
        step: the function that runs the step for a batch and returns its loss, or None.
        batches: more batches for steps that follow the recorded one, or None.
    """

    models: dict[str, nn.Module]
    optimizers: list[Optimizer] = field(default_factory=list)
    loss: nn.Module | None = None
    step: Callable[[Batch], Any] | None = None
    batches: Iterable[Any] | None = None


def build(reference: str) -> Parts:
    """Call a factory.

    Args:
        reference: ``module:function``; the module is looked for in the working directory first.

    Raises:
        ConfigError: the function does not exist, or returns something else.
    """
    made = referenced(reference)()
    parts = Parts({})
    for one in made if isinstance(made, tuple) else (made,):
        _add(parts, one, reference)
    if not parts.models:
        raise ConfigError(f"--factory {reference}: it returned no torch.nn.Module; {NEEDED}")
    return parts


def _add(parts: Parts, one: Any, reference: str) -> None:
    if isinstance(one, nn.Module) and not parts.models:
        parts.models = {"": one}
    elif isinstance(one, nn.Module) and parts.loss is None:
        parts.loss = one
    elif isinstance(one, Optimizer):
        parts.optimizers.append(one)
    elif isinstance(one, Mapping) and all(isinstance(each, nn.Module) for each in one.values()):
        parts.models = dict(one)
    elif callable(one) and parts.step is None:
        parts.step = one
    elif isinstance(one, Iterable) and not isinstance(one, Mapping | str) and parts.batches is None:
        parts.batches = one
    else:
        raise ConfigError(
            f"--factory {reference}: returned a {type(one).__name__}; expected the model (or a "
            "dictionary of models by name), and an optimizer, a loss module, a step function or an "
            "iterable of batches"
        )
