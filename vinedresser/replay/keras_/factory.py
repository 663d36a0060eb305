"""The user's function that builds the Keras model and the step of a replay."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import keras

from vinedresser.errors import ConfigError
from vinedresser.replay.referenced import referenced

__all__ = ["NEEDED", "KerasParts", "build"]

NEEDED = (
    "--factory MODULE:FUNCTION is needed: a function without arguments that returns the model, "
    "compiled as for the training; for a custom loop, the model and either the loss or a function "
    "step(batch) that computes the loss, applies an optimizer and returns the loss "
    "(docs/snapshots.md#keras)"
)


@dataclass
class KerasParts:
    """What a factory returns.

    Attributes:
        models: the models by the name under which they were watched; "" for one without a name.
        optimizers: the optimizers of a custom loop, in the order in which they were made.
        loss: the loss of a custom loop, or None.
        step: the function that runs the step for a batch and returns its loss, or None.
    """

    models: dict[str, Any]
    optimizers: list[Any] = field(default_factory=list)
    loss: Any = None
    step: Callable[[Any], Any] | None = None


def build(reference: str) -> KerasParts:
    """Call a factory.

    Args:
        reference: ``module:function``; the module is looked for in the working directory first.

    Raises:
        ConfigError: the function does not exist, or returns something else.
    """
    made = referenced(reference)()
    parts = KerasParts({})
    for one in made if isinstance(made, tuple) else (made,):
        _add(parts, one, reference)
    if not parts.models:
        raise ConfigError(f"--factory {reference}: it returned no keras.Model; {NEEDED}")
    return parts


def _add(parts: KerasParts, one: Any, reference: str) -> None:
    if isinstance(one, keras.Model) and not parts.models:
        parts.models = {"": one}
    elif isinstance(one, keras.optimizers.Optimizer):
        parts.optimizers.append(one)
    elif isinstance(one, keras.losses.Loss) and parts.loss is None:
        parts.loss = one
    elif isinstance(one, Mapping) and all(isinstance(each, keras.Model) for each in one.values()):
        parts.models = dict(one)
    elif callable(one) and not isinstance(one, keras.Model) and parts.step is None:
        parts.step = one
    else:
        raise ConfigError(
            f"--factory {reference}: returned a {type(one).__name__}; expected the model (or a "
            "dictionary of models by name), and an optimizer, a loss or a step function"
        )
