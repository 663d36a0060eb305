"""Running a model once while the implicit bias of every operator is noted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.autograd.graph import get_gradient_edge

from vinedresser.explain.saliency.axes import Axes
from vinedresser.explain.saliency.torch_.axes import axes_of_output
from vinedresser.explain.saliency.torch_.biases import Bias, dense
from vinedresser.explain.saliency.torch_.implicit_biases import (
    DispatchState,
    implicit_biases,
    needs_arguments,
)
from vinedresser.frameworks.torch_.call import Call, tensors_in

__all__ = ["Noted", "Tracer"]

_Place = tuple[int, torch.Size, tuple[int, ...]]


class Noted(NamedTuple):
    """An operator whose implicit bias is not zero.

    Attributes:
        layer: path of the module that called it; "" for the model itself.
        operator: its name.
        name: both, and the number of the call from the second one on.
        shape: shape of the result.
        axes: where examples and pixels lie in the result.
    """

    layer: str
    operator: str
    name: str
    bias: Bias
    shape: torch.Size
    axes: Axes


class Tracer:
    """Notes the implicit biases of all operators whose arguments depend on the input.

    Parameters must not require gradients, so that a tensor requires one if it depends on the input.

    Args:
        path: names of the modules that run, the innermost last.
        on_gradient: called while gradients are computed, with each operator noted and the
            gradient of the output with respect to its result.

    Attributes:
        noted: the operators, in the order of the calls.
        uncovered: operations whose implicit bias is unknown, with their layers, in the same order.
    """

    def __init__(
        self, path: Sequence[str], on_gradient: Callable[[Noted, torch.Tensor], None]
    ) -> None:
        self._path = path
        self._on_gradient = on_gradient
        self._state = DispatchState.current()
        self._followed = _Followed()
        self._calls: Counter[str] = Counter()
        self._unsettled: list[tuple[torch.Tensor, Noted]] = []
        self._fresh: list[torch.Tensor] = []
        self.noted: list[Noted] = []
        self.uncovered: dict[str, None] = {}

    def start(self, tensor: torch.Tensor, axes: Axes) -> None:
        """Follow the input of the model, which requires a gradient."""
        self._followed.put(tensor, axes, fresh=True)

    def run(
        self, func: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        """Run an operator; see `EachOperator`."""
        self.settle()
        call = Call(func, args, kwargs)
        dependent: list[torch.Tensor] = []
        if torch.is_grad_enabled() and call.name != "detach":
            dependent = [tensor for tensor in call.tensors if tensor.requires_grad]
        if not dependent:
            return self._constant(call)
        sources = [(one, self._axes_of(one)) for one in dependent]
        asked, dependent = self._kept(call, dependent)
        base = call.args[0]._base if call.in_place else None
        before = None if base is None or base.requires_grad else base.clone()
        result = call.run()
        call.outputs = asked.outputs = list(tensors_in([result]))
        try:
            biases = implicit_biases(asked, dependent, self._state)
        except NotImplementedError:
            self._miss(call.name)
            biases = [None] * len(call.outputs)
        fresh = not (func.is_view or call.in_place)
        for place, (output, bias) in enumerate(zip(call.outputs, biases, strict=True)):
            axes = axes_of_output(call, sources, place, output)
            self._followed.put(output, axes, fresh=fresh)
            if fresh:
                self._fresh.append(output)
            if base is not None:
                self._note(
                    call, base, _lifted(base, output, bias, before), self._followed.axes(base)
                )
            else:
                self._note(call, output, bias, axes)
        return result

    def settle(self) -> None:
        """Have the gradients of the latest results collected.

        Autograd attaches its node to a result only after this mode has returned it.
        """
        for tensor, noted in self._unsettled:
            if not tensor.requires_grad:
                continue
            edge = get_gradient_edge(tensor)
            self.noted.append(noted)
            self._collect(edge.node, edge.output_nr, noted)
        for tensor in self._fresh:
            # Such as an index, or the empty tensor of a mask.
            if not tensor.requires_grad:
                self._followed.forget(tensor)
        self._unsettled.clear()
        self._fresh.clear()

    def _collect(self, node: Any, place: int, noted: Noted) -> None:
        def collect(gradients: Sequence[torch.Tensor | None]) -> None:
            gradient = gradients[place]
            if gradient is not None:
                self._on_gradient(noted, gradient)

        node.register_prehook(collect)

    def _constant(self, call: Call) -> Any:
        """Run an operator whose result autograd takes for a constant."""
        if call.in_place and self._followed.knows(call.args[0]):
            self._miss(f"{call.name}, in place and hidden from autograd,")
        result = call.run()
        if not (call.operator.is_view or call.in_place or call.name == "detach"):
            for one in tensors_in([result]):
                self._followed.forget(one)
        return result

    def _kept(self, call: Call, dependent: list[torch.Tensor]) -> tuple[Call, list[torch.Tensor]]:
        """Return a call with the first argument as it is now, if it is about to change."""
        if not call.in_place or not needs_arguments(call, dependent):
            return call, dependent
        changed = call.args[0]
        copy = changed.detach().clone()

        def kept(value: Any) -> Any:
            return copy if value is changed else value

        asked = Call(call.operator, tuple(map(kept, call.args)), call.kwargs)
        return asked, [kept(one) for one in dependent]

    def _axes_of(self, tensor: torch.Tensor) -> Axes:
        if not self._followed.knows(tensor):
            node = tensor.grad_fn
            self._miss("a tensor that requires a gradient" if node is None else node.name())
        return self._followed.axes(tensor)

    def _miss(self, what: str) -> None:
        self.uncovered[f"{what} in {self._path[-1] or 'the model'}"] = None

    def _note(self, call: Call, output: torch.Tensor, bias: Bias | None, axes: Axes) -> None:
        if bias is None or not output.is_floating_point():
            return
        layer = self._path[-1]
        name = f"{layer}/{call.name}" if layer else call.name
        self._calls[name] += 1
        count = self._calls[name]
        name = f"{name}#{count}" if count > 1 else name
        noted = Noted(layer, call.name, name, bias, output.shape, axes)
        self._unsettled.append((output, noted))


def _lifted(
    base: torch.Tensor,
    view: torch.Tensor,
    bias: Bias | None,
    before: torch.Tensor | None,
) -> torch.Tensor | None:
    """Return the implicit bias of the whole tensor, a part of which an operator has changed.

    Args:
        bias: implicit bias of the part, or None for zero.
        before: the whole tensor before, if it was constant, else None.
    """
    if bias is None and before is None:
        return None
    whole = torch.zeros_like(base) if before is None else before
    part = whole.as_strided(view.size(), view.stride(), view.storage_offset())
    part.copy_(torch.zeros_like(view) if bias is None else dense(bias, view))
    return whole


class _Followed:
    """Axes of tensors by storage, offset, shape and strides.

    Autograd returns a view as another object than the mode below it has seen.
    """

    def __init__(self) -> None:
        self._known: dict[int, dict[_Place, Axes]] = {}

    def put(self, tensor: torch.Tensor, axes: Axes, *, fresh: bool) -> None:
        """Note the axes of a tensor.

        Args:
            fresh: whether its storage is new, perhaps in the place of another one.
        """
        if fresh:
            self.forget(tensor)
        self._known.setdefault(_storage(tensor), {})[_place(tensor)] = axes

    def forget(self, tensor: torch.Tensor) -> None:
        """Forget everything in the storage of a tensor."""
        self._known.pop(_storage(tensor), None)

    def knows(self, tensor: torch.Tensor) -> bool:
        """Return whether something in the storage of a tensor depends on the input."""
        return _storage(tensor) in self._known

    def axes(self, tensor: torch.Tensor) -> Axes:
        """Return the axes of a tensor; none if they are unknown."""
        return self._known.get(_storage(tensor), {}).get(_place(tensor), {})


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _place(tensor: torch.Tensor) -> _Place:
    return int(tensor.storage_offset()), tensor.shape, tensor.stride()
