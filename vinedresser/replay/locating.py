"""Finding the operation that makes a step's loss or gradients non-finite."""

from __future__ import annotations

import linecache
import math
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from vinedresser.frameworks.torch_.modes import EachOperator
from vinedresser.frameworks.torch_.names import Names, unwrapped
from vinedresser.frameworks.torch_.nesting import leaves
from vinedresser.replay.batch import Batch
from vinedresser.replay.factory import Parts
from vinedresser.replay.results import Located, Place

__all__ = ["locate_in", "nonfinite_inputs", "origin_of_gradients"]

# Operations whose results nobody reads before they are written.
_UNSET = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "resize_")
# Operations in place that do not read what they overwrite.
_OVERWRITING = ("copy_", "fill_")
_PACKAGE = str(Path(__file__).parents[1])
_TORCH = str(Path(torch.__file__).parent)
# Inputs whose values are shown, and elements of each.
_MOST_INPUTS = 3


class _Scan:
    """Follows non-finite values from the operation that makes them.

    A value that is infinite because the program says so, as in ``masked_fill(mask, -inf)``, has no
    origin, and neither has one that is absorbed, as by a softmax.

    Args:
        modules: the modules in progress, outermost first.
    """

    def __init__(self, modules: list[str]) -> None:
        self._modules = modules
        self._places: dict[int, Place] = {}
        # By address of the memory that holds the values: views share it.
        self._origins: dict[int, Located] = {}
        self._number = -1

    def origin(self, tensor: Tensor) -> Located | None:
        """Return where the non-finite values of a tensor come from; None if that is unknown."""
        return self._origins.get(_address(tensor))

    def run(
        self, func: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        """Run an operator; see `EachOperator`."""
        self._number += 1
        place = self._place()
        given = [one for _, one in leaves((args, kwargs)) if _is_real(one)]
        before = [(one, _nonfinite(one)) for one in given]
        result = func(*args, **kwargs)
        name = func.overloadpacket.__name__
        for _, one in leaves(result):
            if _is_real(one) and name not in _UNSET:
                read = [
                    (value, bad)
                    for value, bad in before
                    if value is not one or (name.endswith("_") and name not in _OVERWRITING)
                ]
                self._judge(f"aten.{name}", place, read, (args, kwargs), one)
        return result

    def _judge(
        self,
        operation: str,
        place: Place,
        given: list[tuple[Tensor, bool]],
        arguments: Any,
        result: Tensor,
    ) -> None:
        """Note where the non-finite values of a result come from."""
        if not _nonfinite(result):
            self._origins.pop(_address(result), None)
            return
        bad = [one for one, is_bad in given if is_bad]
        known = [one for one in map(self.origin, bad) if one is not None]
        if known:
            self._origins[_address(result)] = min(known, key=lambda one: one.number)
            return
        legitimate = bad or _has_infinite_number(arguments)
        undefined = torch.isnan(result).any() and not any(torch.isnan(one).any() for one in bad)
        if legitimate and not undefined:
            return
        self._origins[_address(result)] = self._located(operation, place, given, result)

    def _located(
        self, operation: str, place: Place, given: list[tuple[Tensor, bool]], result: Tensor
    ) -> Located:
        node = _node()
        index = torch.nonzero(~torch.isfinite(result))[0].tolist() if result.dim() else []
        value = result[tuple(index)].item()
        where = f" at {index}" if index else ""
        return Located(
            operation,
            "forward" if node is None else "backward",
            "" if node is None else node.name(),
            place,
            f"{_kind(result)} is {value:g}{where}",
            [
                f"{_kind(one)}: changed in place"
                if one is result
                else _described(one, result, index)
                for one, _ in given[:_MOST_INPUTS]
            ],
            self._number,
        )

    def _place(self) -> Place:
        """Return the place of the operation that runs now."""
        node = _node()
        if node is not None:
            # The node was made just before the operation whose derivative it computes.
            return self._places.get(node._sequence_nr(), Place("", "", 0, ""))
        place = _caller(self._modules[-1] if self._modules else "")
        self._places.setdefault(_sequence() - 1, place)
        return place


@contextmanager
def locate_in(parts: Parts, begun: nn.Module | None = None) -> Iterator[_Scan]:
    """Follow non-finite values in the computations of a block.

    Args:
        parts: the models.
        begun: the module whose call the block begins in; None: outside of all.
    """
    paths = {
        id(module): path
        for model in parts.models.values()
        for path, module in Names(unwrapped(model)).modules()
    }
    stack: list[str] = [] if begun is None else [paths.get(id(begun), "")]
    scan = _Scan(stack)

    def enter(module: nn.Module, _: Any) -> None:
        stack.append(paths.get(id(module), stack[-1] if stack else ""))

    def leave(*_: Any) -> None:
        stack.pop()

    handles = [
        register_module_forward_pre_hook(enter),
        register_module_forward_hook(leave, always_call=True),
    ]
    try:
        with EachOperator(scan.run):
            yield scan
    finally:
        for handle in handles:
            handle.remove()


def origin_of_gradients(scan: _Scan, parts: Parts) -> Located | None:
    """Return the first operation that makes a gradient non-finite; None if that is unknown.

    Args:
        scan: has followed the values of the step.
        parts: the models, with the gradients of the step.
    """
    gradients: list[Tensor] = [
        parameter.grad
        for model in parts.models.values()
        for parameter in model.parameters()
        if parameter.grad is not None
    ]
    known = [one for one in map(scan.origin, reversed(gradients)) if one is not None]
    return min(known, key=lambda one: one.number, default=None)


def nonfinite_inputs(parts: Parts, batches: Iterable[Batch]) -> list[str]:
    """Return the names of the inputs and parameters that are not finite already."""
    found = []
    for number, batch in enumerate(batches):
        named = leaves((batch.args, batch.kwargs, batch.loss_args), f"inputs[{number}]")
        found += [name for name, one in named if _is_real(one) and _nonfinite(one)]
    for name, model in parts.models.items():
        named = ((f"{name}.{path}".lstrip("."), one) for path, one in model.named_parameters())
        found += [f"parameter {path}" for path, one in named if _nonfinite(one)]
    return found


def _sequence() -> int:
    """Return the number that the next node of a backward pass will have."""
    number: int = torch.autograd._get_sequence_nr()  # type: ignore[attr-defined]
    return number


def _node() -> Any:
    """Return the node of the backward pass that runs now; None in the forward."""
    return torch._C._current_autograd_node()


def _caller(module: str) -> Place:
    """Return the innermost line of the program that is neither torch's nor this package's."""
    for frame, line in traceback.walk_stack(sys._getframe(2)):
        file = frame.f_code.co_filename
        if not file.startswith((_TORCH, *_keras(), _PACKAGE, "<")):
            return Place(module, file, line, linecache.getline(file, line).strip())
    return Place(module, "", 0, "")


def _keras() -> list[str]:
    """Return the folder of Keras, whose backend torch may be, if it is loaded."""
    file = getattr(sys.modules.get("keras"), "__file__", None)
    return [str(Path(file).parent)] if file else []


def _is_real(tensor: Tensor) -> bool:
    return tensor.is_floating_point() and tensor.layout == torch.strided and not tensor.is_meta


def _nonfinite(tensor: Tensor) -> bool:
    return not bool(torch.isfinite(tensor.detach()).all())


def _address(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _has_infinite_number(arguments: Any) -> bool:
    """Return whether the program itself passed a number that is not finite."""
    if isinstance(arguments, float):
        return not math.isfinite(arguments)
    if isinstance(arguments, dict):
        return any(map(_has_infinite_number, arguments.values()))
    if isinstance(arguments, tuple | list):
        return any(map(_has_infinite_number, arguments))
    return False


def _described(given: Tensor, result: Tensor, index: Sequence[int]) -> str:
    """Return an input's element at an index, or its range if it has another shape."""
    if not given.numel():
        return f"{_kind(given)}: empty"
    if given.shape == result.shape:
        return f"{_kind(given)}: {given[tuple(index)].item():g} there"
    if given.numel() == 1:
        return f"{_kind(given)}: {given.item():g}"
    low, high = (float(one) for one in torch.aminmax(given.detach().float()))
    return f"{_kind(given)}: from {low:g} to {high:g}"


def _kind(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"
