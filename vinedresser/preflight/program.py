"""The computation of a loss from calls of the models, which can be run again on copies of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from vinedresser.frameworks.nesting import mapped
from vinedresser.frameworks.torch_.nesting import leaves
from vinedresser.frameworks.torch_.random_states import set_states

__all__ = ["CallEvent", "FunctionEvent", "Parameter", "Program", "Slot", "Transform"]


@dataclass(frozen=True)
class Slot:
    """The place of a tensor that the program computes."""

    number: int


@dataclass(frozen=True)
class Parameter:
    """The place of a parameter.

    Attributes:
        model: number of the model.
        name: its name there.
    """

    model: int
    name: str


@dataclass(frozen=True)
class CallEvent:
    """A call of a model.

    Attributes:
        model: number of the model.
        args: positional arguments.
        kwargs: keyword arguments.
        results: numbers of the tensors in its output, in their order.
        random: states of the random generators before the call.
    """

    model: int
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    results: tuple[int, ...]
    random: dict[str, Any]


@dataclass(frozen=True)
class FunctionEvent:
    """A call of a function of torch on what the models computed.

    Attributes:
        args: positional arguments.
        kwargs: keyword arguments.
        results: numbers of the tensors in its result.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    results: tuple[int, ...]


Transform = Callable[[tuple[Any, ...], dict[str, Any]], tuple[tuple[Any, ...], dict[str, Any]]]


@dataclass(frozen=True)
class Program:
    """The events that lead to a loss.

    Attributes:
        events: calls and functions, in their order.
        loss: number of the loss.
    """

    events: Sequence[CallEvent | FunctionEvent]
    loss: int

    @property
    def calls(self) -> list[CallEvent]:
        """Its calls of models."""
        return [event for event in self.events if isinstance(event, CallEvent)]

    def run(
        self,
        models: Sequence[nn.Module],
        *,
        as_recorded: bool = False,
        transform: Transform | None = None,
    ) -> Tensor:
        """Compute the loss with other models of the same kind.

        Args:
            models: the models by number.
            as_recorded: set the random generators before each call as they were then.
            transform: changes the arguments of each call.

        Returns:
            The loss, [], with its graph.
        """
        slots: dict[int, Tensor] = {}
        parameters: Mapping[Parameter, Tensor] = {
            Parameter(number, name): value
            for number, model in enumerate(models)
            for name, value in model.named_parameters()
        }

        def filled(value: Any) -> Any:
            if isinstance(value, Slot):
                return slots[value.number]
            return parameters[value] if isinstance(value, Parameter) else value

        for event in self.events:
            args, kwargs = mapped(event.args, filled), mapped(event.kwargs, filled)
            if isinstance(event, CallEvent):
                if as_recorded:
                    set_states(event.random)
                if transform is not None:
                    args, kwargs = transform(args, kwargs)
                result = models[event.model](*args, **kwargs)
            else:
                result = event.function(*args, **kwargs)
            found = [tensor for _, tensor in leaves(result)]
            slots.update(zip(event.results, found, strict=True))
        return slots[self.loss]
