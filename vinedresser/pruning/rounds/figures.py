"""What is measured of a round's model: its costs, its latency and the figure of its evaluation."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from vinedresser.capture import Hook
from vinedresser.errors import PruningError
from vinedresser.pruning.backends import backend_of
from vinedresser.pruning.cost import cost
from vinedresser.pruning.latency import Latency, compared_latency
from vinedresser.pruning.rounds.round_record import RoundRecord

__all__ = ["ModelCosts", "costs_of", "evaluated", "refuse_nonfinite", "report", "report_round"]


class ModelCosts(NamedTuple):
    """What a model costs.

    Attributes:
        parameters: number of parameters.
        macs: multiply-accumulate operations for one example.
        size: bytes of parameters and buffers.
        latency: measured in turns with the unpruned model, which is "before".
        channels: number of channels in each group that can be pruned.
        notes: what of the model was not seen; see `vinedresser.pruning.Pruned`.
    """

    parameters: int
    macs: int
    size: int
    latency: Latency
    channels: dict[str, int]
    notes: tuple[str, ...]


def costs_of(model: Any, original: Any, example: Any) -> ModelCosts:
    """Measure a model beside the unpruned one.

    Raises:
        PruningError: the model does not run on the example.
    """
    prunable = backend_of(model).prunable(model, example)
    tensors = prunable.tensors()
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    item_sizes = {name: tensor.itemsize for name, tensor in tensors.items()}
    costs = cost(shapes, prunable.parameters, prunable.uses, item_sizes)
    return ModelCosts(
        parameters=costs.parameters,
        macs=costs.macs,
        size=costs.size_bytes,
        latency=compared_latency(model, original, example),
        channels={group.name: group.size for group in prunable.groups if not group.locked},
        notes=prunable.notes,
    )


def refuse_nonfinite(model: Any, example: Any, name: str) -> None:
    """Refuse a model with a parameter that is NaN or infinite; a buffer may be, such as a mask.

    Args:
        example: an input of it.
        name: name of the function that trained it, for the message.

    Raises:
        PruningError: a value is not finite.
    """
    prunable = backend_of(model).prunable(model, example)
    for tensor, values in prunable.tensors().items():
        if tensor in prunable.parameters and not np.isfinite(values).all():
            raise PruningError(f"{name}: left a model that is not finite: {tensor}")


def evaluated(evaluate: Callable[[Any], Any], model: Any, name: str) -> float:
    """Return the figure of a model.

    Args:
        evaluate: the user's function.
        name: name of the function, for the message.

    Raises:
        PruningError: it is not a finite number.
    """
    given = evaluate(model)
    try:
        figure = float(given)
    except (TypeError, ValueError) as error:
        raise PruningError(f"{name}: must return a number, not {given!r}") from error
    if not math.isfinite(figure):
        raise PruningError(f"{name}: returned {figure}; a model is compared by a finite number")
    return figure


def report(hook: Hook, **values: float) -> None:
    """Save values as metrics ``pruning/<name>`` of an evaluation."""
    with hook.mode("eval"):
        for name, value in values.items():
            hook.metric(f"pruning/{name}", value)


def report_round(hook: Hook, record: RoundRecord) -> None:
    """Save the figure and the costs of a round's model as metrics; see `report`."""
    share = record.share_of_latency
    bounds = {"latency_ratio_low": share.low, "latency_ratio_high": share.high}
    report(
        hook,
        figure=record.figure,
        parameters=record.parameters,
        macs=record.macs,
        size=record.size,
        latency_ratio=share.value,
        **{name: bound for name, bound in bounds.items() if bound is not None},
    )
