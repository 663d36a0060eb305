"""Recording what a script computes from the outputs of its models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from vinedresser.capture.shield import Shield
from vinedresser.frameworks import nesting
from vinedresser.frameworks.nesting import mapped
from vinedresser.frameworks.torch_.nesting import leaves
from vinedresser.frameworks.torch_.passing import passed_on
from vinedresser.preflight.program import (
    CallEvent,
    FunctionEvent,
    Parameter,
    Program,
    Slot,
)

__all__ = ["CONTINUES", "Recorder"]

CONTINUES = "the script continues, and nothing can be checked"

_MOST_EVENTS = 5000
# What takes a value out of torch: what the script does with it, nobody sees.
_LEAVES_TORCH = frozenset(
    ("item", "tolist", "numpy", "__bool__", "__float__", "__int__", "__index__", "__array__")
)


class Recorder(TorchFunctionMode):
    """Records the functions of torch that are applied to outputs and parameters of models.

    Args:
        shield: keeps the errors of a recording out of the script.

    Attributes:
        on: whether it records.
        unsupported: why the computation cannot be run again; "" if it can.
    """

    def __init__(self, shield: Shield) -> None:
        super().__init__()
        self.on = False
        self._record = shield.guard("recording a function", self._function, then=CONTINUES)
        self.clear()

    def clear(self) -> None:
        """Forget the events: a new step begins."""
        self.unsupported = ""
        self._events: list[CallEvent | FunctionEvent] = []
        # By id; the tensors are kept alive, so that no id is used twice.
        self._slots: dict[int, tuple[Tensor, Slot]] = {}
        self._parameters: dict[int, tuple[Tensor, Parameter]] = {}

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
        result = passed_on(func, args, kwargs or {})
        if self.on and self._slots and torch.is_grad_enabled():
            self._record(func, args, kwargs or {}, result)
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
        self._add(FunctionEvent(func, given, named, self._results(result)))

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
    found = nesting.leaves(value, "", lambda one: isinstance(one, Slot | Parameter | Tensor))
    return (one for _, one in found)


def _slots_in(value: Any) -> set[int]:
    return {one.number for one in _flat(value) if isinstance(one, Slot)}
