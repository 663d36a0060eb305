"""The recorded inputs of a step, and the loss that is computed from them again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from vinedresser.snapshots.trees import Computed

__all__ = ["trained_model", "with_output"]


def trained_model(models: Mapping[str, Any]) -> str:
    """Return the name of the model whose update was next, else of the first one.

    Args:
        models: the recorded models by name, at least one; see `TorchGuard.contents`.

    Raises:
        KeyError, TypeError, AttributeError: they are not recorded models.
    """
    return next(
        (
            name
            for name, one in models.items()
            if any(each["steps_now"] for each in one["optimizers"])
        ),
        next(iter(models)),
    )


def with_output(arguments: Sequence[Any], output: Any) -> list[Any] | None:
    """Return the recorded arguments of a loss with an output of the model in its place.

    Args:
        arguments: the arguments, with `Computed` in the place of what the model computed.
        output: what it computes now.

    Returns:
        The arguments; None if the place of the output is not certain.
    """
    computed = [argument for argument in arguments if isinstance(argument, Computed)]
    if len(computed) != 1 or not isinstance(output, Tensor):
        return None
    return [output if isinstance(argument, Computed) else argument for argument in arguments]
