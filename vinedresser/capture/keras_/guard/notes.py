"""Inputs and state of one train step, kept by reference until its update."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import keras

from vinedresser.frameworks.keras_.codec import is_tensor, mapped
from vinedresser.snapshots.trees import Computed

__all__ = ["NO_DATA", "NotedCall", "StepNotes"]

NO_DATA = object()
"""The batch of a step that is not Keras's own."""

# Beyond, the inputs of a step are not kept: a loop may call its model without ever stepping.
_MOST_CALLS = 256


@dataclass(eq=False)
class NotedCall:
    """A call of the model in a custom loop, and the losses computed after it.

    Attributes:
        args: positional arguments.
        losses: name, value and arguments of each loss.
        outputs: the tensors that it returned.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    losses: list[tuple[str, Any, tuple[Any, ...]]] = field(default_factory=list)
    outputs: list[Any] = field(default_factory=list)


@dataclass(eq=False)
class StepNotes:
    """Notes of one train step; the tensors may be symbolic.

    Attributes:
        data: the batch given to ``train_step``; `NO_DATA` in a custom loop.
        before: values of the variables that a forward may change, before it, by path.
        random: states of the random generators before it.
        calls: the calls of the model in a custom loop; [] if there were too many.
        loss: the loss of the model's own ``compute_loss``; None if that was not called.
        too_many: there were more calls than can be kept.
    """

    data: Any
    before: dict[str, Any]
    random: dict[str, Any] = field(default_factory=dict)
    calls: list[NotedCall] = field(default_factory=list)
    loss: Any = None
    too_many: bool = False

    def add_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Keep a call of the model."""
        self.too_many |= len(self.calls) >= _MOST_CALLS
        if self.too_many:
            self.calls.clear()
            return
        self.calls.append(NotedCall(args, dict(kwargs)))

    def add_output(self, output: Any) -> None:
        """Note what the latest call returned."""
        if self.calls:
            self.calls[-1].outputs = [one for one in keras.tree.flatten(output) if is_tensor(one)]

    def add_loss(self, name: str, value: Any, arguments: tuple[Any, ...]) -> None:
        """Keep a loss of the latest call, with predictions replaced by their place."""
        if not self.calls:
            return
        computed = {id(output) for call in self.calls for output in call.outputs}

        def kept(one: Any) -> Any:
            if id(one) not in computed:
                return one
            return Computed(f"{keras.backend.standardize_dtype(one.dtype)} {list(one.shape)}")

        self.calls[-1].losses.append((name, value, mapped(arguments, kept)))

    def mapped(self, change: Callable[[Any], Any]) -> StepNotes:
        """Return notes in which each tensor is replaced by the result of a function."""
        return replace(
            self,
            data=self.data if self.data is NO_DATA else mapped(self.data, change),
            before=mapped(self.before, change),
            loss=mapped(self.loss, change),
            calls=[
                NotedCall(
                    mapped(call.args, change),
                    mapped(call.kwargs, change),
                    [
                        (name, mapped(value, change), mapped(arguments, change))
                        for name, value, arguments in call.losses
                    ],
                )
                for call in self.calls
            ],
        )
