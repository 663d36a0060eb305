"""What a step computes between its inputs and its loss, seen from the functions that it calls."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn

from vinedresser.frameworks.loss_functions import measures_errors
from vinedresser.frameworks.torch_.modes import EachFunction
from vinedresser.frameworks.torch_.nesting import leaves
from vinedresser.replay.what_if.functions import (
    ACTIVATIONS,
    DETACHING,
    LAYERS,
    LOSSES,
    PRODUCTS,
)
from vinedresser.replay.what_if.module_calls import during_calls

__all__ = ["FunctionsSeen", "Network", "Targets"]

# What programs apply to outputs before the loss; others belong to losses that are written by hand.
_AFTER = ("softmax", "sigmoid")


@dataclass(frozen=True)
class Targets:
    """What a loss of torch compares.

    Attributes:
        loss: its name, such as "mse_loss".
        broadcast: whether targets have as many entries as outputs in another shape.
        lowest: smallest of the targets.
        highest: largest of them.
        mean: mean of floating-point targets.
        deviation: their standard deviation.
        one_hot: whether each row of targets has a single 1 beside zeros.
        summed: whether the loss is a sum over the samples.
    """

    loss: str
    broadcast: bool
    lowest: float
    highest: float
    mean: float
    deviation: float
    one_hot: bool
    summed: bool


@dataclass(frozen=True)
class Network:
    """What the first call of a model computed.

    Attributes:
        hidden: place and name of each activation between two layers, by place.
        last: place and name of the activation of the outputs, inside or after the model; None if
            there is none.
        width: size of the last dimension of the outputs; 0 if these are not one tensor.
        signal: standard deviation over the samples after the last hidden activation, as a share of
            the largest after any of them and of the inputs; 1 if it is not known.
        cut: whether the model detaches values that need gradients.
        targets: what the loss compares, if it is one of torch; else None.
    """

    hidden: tuple[tuple[int, str], ...]
    last: tuple[int, str] | None
    width: int
    signal: float
    cut: bool
    targets: Targets | None

    @classmethod
    def from_json(cls, table: dict[str, Any]) -> Self:
        """Return it from a table of plain values, as `dataclasses.asdict` makes it.

        Raises:
            KeyError, TypeError: it is not such a table.
        """
        hidden = tuple((place, name) for place, name in table["hidden"])
        last = tuple(table["last"]) if table["last"] else None
        targets = Targets(**table["targets"]) if table["targets"] else None
        return cls(**{**table, "hidden": hidden, "last": last, "targets": targets})


class FunctionsSeen:
    """Follows the values of a step from one function to the next."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._inside = self._cut = False
        self._calls = 0
        self._ended = False
        self._names: list[str] = []
        # Places of activations after the model that may be a part of the loss.
        self._of_loss: set[int] = set()
        self._shapes: list[tuple[int, ...]] = []
        self._deviations: list[float] = []
        self._before_layers: set[int] = set()
        self._factors: set[int] = set()
        # Places of the activations from which a tensor was computed without a layer between.
        self._sources: dict[int, frozenset[int]] = {}
        # A tensor that is gone may have the address of a later one.
        self._kept: list[Tensor] = []
        self._inputs = 0.0
        self._output: Tensor | None = None
        self._targets: Targets | None = None

    @contextmanager
    def watching(self, begun: Any = None) -> Iterator[None]:
        """Watch what is computed.

        Args:
            begun: arguments of a call of the model that has begun; None if there is none.
        """
        if begun is not None:
            self._begin(begun)
        with during_calls(self._model, self._begin, self._end), EachFunction(self._call):
            yield

    def ended(self) -> Network | None:
        """End the first step; return what was seen, or None unless the model was called once."""
        self._sources.clear()
        self._kept.clear()
        self._ended = True
        if self._calls != 1:
            return None
        hidden = sorted(self._before_layers - self._factors)
        shape = () if self._output is None else tuple(self._output.shape)
        ends = [
            place
            for place, name in enumerate(self._names)
            if place not in self._before_layers | self._factors | self._of_loss
            and self._shapes[place] == shape
        ]
        largest = max([self._inputs, *(self._deviations[one] for one in hidden)], default=0.0)
        signal = self._deviations[hidden[-1]] / largest if hidden and largest > 0 else 1.0
        return Network(
            tuple((one, self._names[one]) for one in hidden),
            (ends[-1], self._names[ends[-1]]) if ends and shape else None,
            shape[-1] if len(shape) > 1 else 0,
            signal,
            self._cut,
            self._targets,
        )

    def _call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = func(*args, **kwargs)
        if self._ended:
            return result
        if func in LOSSES and len(args) > 1:
            self._compare(func, args, kwargs)
        if self._calls == 1:
            self._follow(func, args, kwargs, result)
        return result

    def _begin(self, given: Any) -> None:
        if self._ended:
            return
        self._calls += 1
        self._inside = True
        found = [one for _, one in leaves(given) if one.is_floating_point()]
        self._inputs = max(map(_deviation, found), default=0.0)

    def _end(self, output: Any) -> None:
        self._inside = False
        if self._ended:
            return
        self._output = output if isinstance(output, Tensor) else None

    def _follow(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        given = [one for _, one in leaves((args, kwargs))]
        places = frozenset().union(*(self._sources.get(id(one), frozenset()) for one in given))
        if func in LAYERS:
            self._before_layers |= places
            return
        if func in PRODUCTS and self._inside and len(given) > 1:
            self._factors |= places
        if func in DETACHING and self._inside and torch.is_grad_enabled():
            self._cut |= any(one.requires_grad for one in given)
        if func in ACTIVATIONS and isinstance(result, Tensor):
            places = frozenset({len(self._names)})
            if not self._inside and ACTIVATIONS[func] not in _AFTER:
                self._of_loss |= places
            self._names.append(ACTIVATIONS[func])
            self._shapes.append(tuple(result.shape))
            self._deviations.append(_deviation(result))
        for one in (each for _, each in leaves(result)) if places else ():
            self._sources[id(one)] = places
            self._kept.append(one)

    def _compare(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        output, target = args[:2]
        if self._targets is not None or not isinstance(output, Tensor):
            return
        if not isinstance(target, Tensor) or not output.requires_grad:
            return
        values = target.detach().float()
        rows = values if values.dim() == 2 and values.shape[1] > 1 else None
        self._targets = Targets(
            LOSSES[func],
            measures_errors(LOSSES[func])
            and output.shape != target.shape
            and output.numel() == target.numel(),
            float(values.min()),
            float(values.max()),
            float(values.mean()),
            float(values.std(correction=0)),
            rows is not None and bool((rows.sum(1) == 1).all() and (rows.amax(1) == 1).all()),
            kwargs.get("reduction") == "sum",
        )


def _deviation(values: Tensor) -> float:
    """Return the mean over entries of the standard deviation over samples, the first dimension."""
    if values.dim() < 2 or len(values) < 2:
        return 0.0
    found = float(values.detach().float().std(0).mean())
    return found if found < float("inf") else 0.0
