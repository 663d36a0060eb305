"""Values of the results of autograd nodes, computed again from the outputs of the model.

Autograd saves what the derivatives need, not all values. Those between the outputs of a model and
its loss follow from the outputs, as long as no constant is added to them, which is not saved.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor

from vinedresser.frameworks.torch_.losses.model_outputs import marked_output
from vinedresser.frameworks.torch_.losses.saved_tensors import saved, signed

__all__ = ["Recomputed", "recomputed", "result_shape", "without_constant"]

# A prediction is a few functions away from the outputs of the model.
_MOST_NODES = 24
# Functions by the first part of the names of their nodes, which return the result of one argument.
_OF_ONE: dict[str, Callable[[Tensor, Any], Tensor]] = {
    "Neg": lambda x, _: -x,
    "Abs": lambda x, _: x.abs(),
    "Exp": lambda x, _: x.exp(),
    "Log": lambda x, _: x.log(),
    "Log1P": lambda x, _: x.log1p(),
    "Sqrt": lambda x, _: x.sqrt(),
    "Sin": lambda x, _: x.sin(),
    "Cos": lambda x, _: x.cos(),
    "Relu": lambda x, _: x.relu(),
    "Sigmoid": lambda x, _: x.sigmoid(),
    "Tanh": lambda x, _: x.tanh(),
    "LogSigmoid": lambda x, _: F.logsigmoid(x),
    "Softplus": lambda x, node: F.softplus(x, node._saved_beta, node._saved_threshold),
    "Pow": lambda x, node: x**node._saved_exponent,
    "Softmax": lambda x, node: x.softmax(signed(node._saved_dim)),
    "LogSoftmax": lambda x, node: x.log_softmax(signed(node._saved_dim)),
    "Cumsum": lambda x, node: x.cumsum(signed(node._saved_dim)),
    "Select": lambda x, node: x.select(signed(node._saved_dim), signed(node._saved_index)),
    "Transpose": lambda x, node: x.transpose(signed(node._saved_dim0), signed(node._saved_dim1)),
    "T": lambda x, _: x.t(),
    "Permute": lambda x, node: x.permute([signed(saved_dim) for saved_dim in node._saved_dims]),
    "Alias": lambda x, _: x,
    "Clone": lambda x, _: x,
}
# The same for functions that change the shape only.
_SHAPES = ("View", "UnsafeView", "ReshapeAlias", "Squeeze", "Unsqueeze")
# Functions of two arguments, and under which names constant ones are saved.
_OF_TWO: dict[str, tuple[Callable[..., Tensor], tuple[str, str]]] = {
    "Mul": (torch.mul, ("self", "other")),
    "Div": (torch.div, ("", "other")),
    "Mm": (torch.mm, ("self", "mat2")),
    "Bmm": (torch.bmm, ("self", "mat2")),
    "Mv": (torch.mv, ("self", "vec")),
    "Add": (torch.add, ("", "")),
    "Sub": (torch.sub, ("", "")),
}
_JOINS: dict[str, Callable[..., Tensor]] = {"Stack": torch.stack, "Cat": torch.cat}


class Recomputed(NamedTuple):
    """A value that follows from the outputs of a model.

    Attributes:
        value: the value, detached.
        rows: number of rows of these outputs.
        direct: whether it is an output of the model, perhaps in another shape.
    """

    value: Tensor
    rows: int
    direct: bool


def recomputed(node: Any, place: int = 0) -> Recomputed | None:
    """Return the value of a result of an autograd node that follows from outputs of the model.

    Args:
        node: the node, or None; `mark_outputs` was called with the outputs of the model.
        place: number of the result among those of its function.

    Returns:
        None if the value does not follow from the outputs alone, or not in a few functions.
    """
    return _Values().of(node, place)


def without_constant(node: Any, place: int = 0) -> Recomputed | None:
    """Return the same as `recomputed`, less a constant that may have been added last.

    Args:
        node: the node, or None.
        place: number of the result among those of its function.
    """
    found = recomputed(node, place)
    if found is not None or node is None:
        return found
    function = node.name().partition("Backward")[0]
    origins = list(node.next_functions)
    given = [origin for origin in origins if origin[0] is not None]
    if function not in ("Add", "Sub", "Rsub") or len(given) != 1 or node._saved_alpha != 1:
        return None
    found = recomputed(*given[0])
    if found is None or tuple(found.value.shape) != result_shape(node, place):
        return None
    negative = function == "Rsub" or (function == "Sub" and origins[0][0] is None)
    return found._replace(value=-found.value if negative else found.value, direct=False)


def result_shape(node: Any, place: int = 0) -> tuple[int, ...]:
    """Return the shape of a result of an autograd node."""
    return tuple(node._input_metadata[place].shape)


class _Values:
    """Computes values once each."""

    def __init__(self) -> None:
        self._found: dict[tuple[Any, int], Recomputed | None] = {}

    def of(self, node: Any, place: int) -> Recomputed | None:
        """See `recomputed`."""
        if node is None:
            return None
        key = node, place
        if key not in self._found:
            if len(self._found) >= _MOST_NODES:
                return None
            self._found[key] = None
            self._found[key] = self._computed(node, place)
        return self._found[key]

    def _computed(self, node: Any, place: int) -> Recomputed | None:
        output = marked_output(node, place)
        if output is not None:
            return Recomputed(output, len(output) if output.ndim else 0, direct=True)
        function = node.name().partition("Backward")[0]
        if function in _OF_TWO:
            found = self._of_two(node, function)
        elif function in _JOINS:
            found = self._joined(node, _JOINS[function])
        else:
            found = self._of_one(node, function, place)
        if found is None or tuple(found.value.shape) != result_shape(node, place):
            return None
        return found

    def _of_one(self, node: Any, function: str, place: int) -> Recomputed | None:
        if function not in (*_OF_ONE, *_SHAPES, *_OTHERS):
            return None
        given = self.of(*node.next_functions[0])
        if given is None:
            return None
        value, wanted = given.value, result_shape(node, place)
        if function in _SHAPES:
            if value.numel() != torch.Size(wanted).numel():
                return None
            return given._replace(value=value.reshape(wanted))
        if function in _OTHERS:
            result = _OTHERS[function](value, node, place)
        else:
            result = _OF_ONE[function](value, node)
        return None if result is None else given._replace(value=result, direct=False)

    def _of_two(self, node: Any, function: str) -> Recomputed | None:
        """Return a product, quotient, sum or difference."""
        if len(node.next_functions) < 2:
            return self._of_number(node, function)
        (first, _), (second, _) = node.next_functions[:2]
        found = [self.of(*next_function) for next_function in node.next_functions[:2]]
        known = [one for one in found if one is not None]
        if len(known) < (first is not None) + (second is not None) or not known:
            return None
        operation, names = _OF_TWO[function]
        values = [
            saved(node, name) if one is None and name else one and one.value
            for one, name in zip(found, names, strict=True)
        ]
        if any(value is None for value in values):
            return None
        if not any(names):
            values[1] = node._saved_alpha * values[1]
        return Recomputed(operation(*values), max(one.rows for one in known), direct=False)

    def _of_number(self, node: Any, function: str) -> Recomputed | None:
        """Return a product with, or quotient by, a number that is no tensor."""
        number = getattr(node, "_saved_other", None)
        given = self.of(*node.next_functions[0])
        if number is None or given is None:
            return None
        value = _OF_TWO[function][0](given.value, number)
        return given._replace(value=value, direct=False)

    def _joined(self, node: Any, join: Callable[..., Tensor]) -> Recomputed | None:
        if len(node.next_functions) > _MOST_NODES:
            return None
        found = [self.of(*function) for function in node.next_functions]
        known = [one for one in found if one is not None]
        if not known or len(known) < len(found):
            return None
        values = join([one.value for one in known], dim=signed(node._saved_dim))
        return Recomputed(values, max(one.rows for one in known), direct=False)


def _sliced(value: Tensor, node: Any, _: int) -> Tensor:
    axis = signed(node._saved_dim) % value.ndim
    chosen = slice(signed(node._saved_start), signed(node._saved_end), node._saved_step)
    return value[(slice(None),) * axis + (chosen,)]


def _summed(value: Tensor, node: Any, _: int) -> Tensor:
    axes = getattr(node, "_saved_dim", None)
    if axes is None:
        return value.sum()
    return value.sum([signed(axis) for axis in axes], keepdim=node._saved_keepdim)


def _averaged(value: Tensor, node: Any, _: int) -> Tensor:
    axes = getattr(node, "_saved_dim", None)
    if axes is None:
        return value.mean()
    return value.mean([signed(axis) for axis in axes], keepdim=node._saved_keepdim)


def _expanded(value: Tensor, node: Any, place: int) -> Tensor:
    return value.expand(result_shape(node, place))


def _split(value: Tensor, node: Any, place: int) -> Tensor:
    parts: tuple[Tensor, ...] = value.split(node._saved_split_size, signed(node._saved_dim))
    return parts[place]


def _unbound(value: Tensor, node: Any, place: int) -> Tensor:
    return value.unbind(signed(node._saved_dim))[place]


def _converted(value: Tensor, node: Any, place: int) -> Tensor:
    return value.to(node._input_metadata[place].dtype)


def _gathered(value: Tensor, node: Any, _: int) -> Tensor | None:
    index = saved(node, "index")
    return None if index is None else value.gather(signed(node._saved_dim), index)


# Functions of one argument that need the number of the result, too, or another saved tensor.
_OTHERS: dict[str, Callable[[Tensor, Any, int], Tensor | None]] = {
    "Slice": _sliced,
    "Sum": _summed,
    "Mean": _averaged,
    "Expand": _expanded,
    "Split": _split,
    "Unbind": _unbound,
    "ToCopy": _converted,
    "Gather": _gathered,
}
