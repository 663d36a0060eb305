"""Recording what a script computes from the outputs of its models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from vinedresser.capture.torch_.nesting import leaves
from vinedresser.preflight.program import (
    CallEvent,
    FunctionEvent,
    Parameter,
    Program,
    Slot,
    mapped,
)

__all__ = ["Recorder"]

_MOST_EVENTS = 5000
# What takes a value out of torch: what the script does with it, nobody sees.
_LEAVES_TORCH = frozenset(
    ("item", "tolist", "numpy", "__bool__", "__float__", "__int__", "__index__", "__array__")
)


class Recorder(TorchFunctionMode):
    """Records the functions of torch that are applied to outputs and parameters of models.

    Attributes:
        on: whether it records.
        unsupported: why the computation cannot be run again; "" if it can.
        compared: name, arguments and keyword arguments of each recorded function of
            `torch.nn.functional` that compares two tensors, and its result.
    """

    def __init__(self) -> None:
        super().__init__()
        self.on = False
        self.clear()

    def clear(self) -> None:
        """Forget the events: a new step begins."""
        self.unsupported = ""
        self.compared: list[tuple[str, tuple[Any, ...], dict[str, Any], Tensor]] = []
        self._events: list[CallEvent | FunctionEvent] = []
        # By id; the tensors are kept alive, so that no id is used twice.
        self._slots: dict[int, tuple[Tensor, Slot]] = {}
        self._parameters: dict[int, tuple[Tensor, Parameter]] = {}

    @property
    def calls(self) -> int:
        """Number of recorded calls of models."""
        return sum(isinstance(one, CallEvent) for one in self._events)

    def called(
        self,
        number: int,
        model: nn.Module,
        given: tuple[tuple[Any, ...], Mapping[str, Any]],
        output: Any,
        random: dict[str, Any],
    ) -> None:
        """Record a call of a model by its number, with its arguments; see `CallEvent`."""
        for name, value in model.named_parameters():
            self._parameters[id(value)] = value, Parameter(number, name)
        args, kwargs = mapped(given[0], self._place), mapped(dict(given[1]), self._place)
        self._add(CallEvent(number, args, kwargs, self._results(output), random))

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if self.on and self._slots and torch.is_grad_enabled():
            self._function(func, args, kwargs or {}, result)
        return result

    def program(self, loss: Tensor) -> Program | None:
        """Return what leads to a loss; None if it does not come from a recorded call."""
        known = self._slots.get(id(loss))
        if known is None:
            return None
        needed = {known[1].number}
        kept: list[CallEvent | FunctionEvent] = []
        for event in reversed(self._events):
            # Each call may change buffers that a later one reads.
            if isinstance(event, CallEvent) or needed.intersection(event.results):
                kept.append(event)
                needed.update(_slots_in((event.args, event.kwargs)))
        return Program(kept[::-1], known[1].number)

    def computed(self) -> list[Tensor]:
        """Return what was computed with a gradient, the outputs of the models first."""
        found = (tensor for tensor, _ in self._slots.values())
        return [one for one in found if one.requires_grad and one.is_floating_point()]

    def given(self) -> list[Tensor]:
        """Return the other tensors that functions of these were given, such as targets."""
        events = (one for one in self._events if isinstance(one, FunctionEvent))
        found = (each for one in events for each in _flat((one.args, one.kwargs)))
        tensors = {id(one): one for one in found if isinstance(one, Tensor)}
        return list(tensors.values())

    def _function(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
    ) -> None:
        name = str(getattr(func, "__name__", ""))
        given, named = mapped(args, self._place), mapped(kwargs, self._place)
        if not any(isinstance(one, Slot | Parameter) for one in _flat((given, named))):
            return
        of_outputs = any(isinstance(one, Slot) for one in _flat((given, named)))
        if name in _LEAVES_TORCH and of_outputs:
            self.unsupported = f"the loss may depend on Python numbers ({name})"
        if name in ("__setitem__", "__set__") and of_outputs:
            self.unsupported = "the loss assigns to parts of tensors"
        if not any(True for _ in leaves(result)):
            return
        changed = args[0] if args and name.endswith("_") and not name.startswith("__") else None
        if isinstance(changed, Tensor) and id(changed) not in self._slots:
            self.unsupported = f"the loss changes a tensor in place ({name})"
        if isinstance(result, Tensor) and len(args) + len(kwargs) >= 2:
            module = str(getattr(func, "__module__", ""))
            if module == "torch.nn.functional":
                self.compared.append((name, args, kwargs, result))
        self._add(FunctionEvent(func, given, named, self._results(result), name))

    def _add(self, event: CallEvent | FunctionEvent) -> None:
        if len(self._events) >= _MOST_EVENTS:
            self.unsupported = "the loss takes too many operations"
        else:
            self._events.append(event)

    def _place(self, value: Any) -> Any:
        """Return the place of a tensor that is computed, or a parameter; others as they are."""
        if not isinstance(value, Tensor):
            return value
        for table in (self._slots, self._parameters):
            known = table.get(id(value))
            if known is not None:
                return known[1]
        return value

    def _results(self, value: Any) -> tuple[int, ...]:
        numbers = []
        for _, tensor in leaves(value):
            known = self._slots.get(id(tensor))
            if known is None:
                known = tensor, Slot(len(self._slots))
                self._slots[id(tensor)] = known
            numbers.append(known[1].number)
        return tuple(numbers)


def _flat(value: Any) -> Iterable[Any]:
    found: list[Any] = []
    mapped(value, found.append)
    return found


def _slots_in(value: Any) -> set[int]:
    return {one.number for one in _flat(value) if isinstance(one, Slot)}
