"""The order of a model's weights in its forward, and whether it is linear, from autograd."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from torch import Tensor

from vinedresser.capture.torch_.losses.losses import is_loss
from vinedresser.frameworks.torch_.losses.saved_tensors import saved

__all__ = ["ModelGraph", "has_redundant_weights", "model_graph"]

# Of larger graphs, such as those of loops over many time steps, nothing is known.
_MOST_NODES = 3000
# A parameter of another model.
_OTHER = "another"
_LEAF = "torch::autograd::AccumulateGrad"
# Products of two arguments; one of them may be a weight.
_PRODUCTS = frozenset(
    f"{name}Backward0"
    for name in ("Mm", "Addmm", "Bmm", "Baddbmm", "Mv", "Addmv", "Dot", "Linear", "Convolution")
)
# Functions that are linear in all their arguments with a gradient.
_LINEAR = frozenset(
    f"{name}Backward{number}"
    for name in (
        *("View", "UnsafeView", "ReshapeAlias", "Squeeze", "Unsqueeze", "Select", "Slice"),
        *("Permute", "Transpose", "T", "Clone", "ToCopy", "Alias", "Expand", "Repeat"),
        *("Split", "SplitWithSizes", "Unbind", "Cat", "Stack", "Rsub", "Neg", "Sum", "Mean"),
        *("AvgPool1D", "AvgPool2D", "AvgPool3D", "AdaptiveAvgPool2D", "AdaptiveAvgPool3D"),
        *("ConstantPadNd", "Roll", "Flip", "NativeDropout", "NativeBatchNorm", "CudnnBatchNorm"),
        *("Embedding",),
    )
    for number in (0, 1)
)
# Sums of two arguments. One without a gradient may be the rest of an activation that passes its
# gradient straight through.
_SUMS = frozenset({"AddBackward0", "SubBackward0"})
# Products with a number or a tensor.
_BY_TENSORS = frozenset({"MulBackward0", "DivBackward0"})


class ModelGraph(NamedTuple):
    """What the graph of a loss tells about a model.

    Attributes:
        order: names of the parameters in the order of the forward, those without a gradient left
            out.
        linear: names of the weights that a linear model multiplies its inputs by, one after
            another, the first one first; () if any activation is between two weights, or anything
            that may be one, if there is only one weight, or if one is that of another model.
    """

    order: tuple[str, ...]
    linear: tuple[str, ...]


class _Result(NamedTuple):
    """What is known of a result.

    Attributes:
        weights: the longest series of weights that it is a linear function of.
        bent: whether a function that may not be linear was applied to what weights computed.
        constant: the parameter that it is, perhaps transposed; "" if it depends on data.
    """

    weights: tuple[str, ...] = ()
    bent: bool = False
    constant: str = ""


def model_graph(tensors: Iterable[Any], names: Mapping[int, str]) -> ModelGraph | None:
    """Return what the graph of the losses of a backward pass tells about a model.

    A weight is a parameter that data are multiplied by: of a dense layer or a convolution. Of what
    comes after the last weight, everything may be an activation or a part of the loss.

    Args:
        tensors: what the backward pass begins with.
        names: names of the model's parameters by their id.

    Returns:
        None if the graph does not reach the model, or is too large.
    """
    walk = _Walk(names)
    for loss in filter(is_loss, tensors):
        if loss.grad_fn is not None and not walk.visit(loss.grad_fn):
            return None
    if not walk.order:
        return None
    alone = len(walk.longest) > 1 and _OTHER not in walk.longest
    return ModelGraph(tuple(walk.order), walk.longest if walk.linear and alone else ())


def has_redundant_weights(series: Sequence[Tensor]) -> bool:
    """Return whether a linear model would be as able with fewer weights.

    Two weights in a row are one, unless there are fewer units between them than inputs and outputs:
    then they are a matrix of low rank, as of adapters and linear autoencoders.

    Args:
        series: weights that are applied one after another, [outputs, inputs, ...] or, if that does
            not fit, [inputs, outputs].
    """
    return not all(_is_low_rank(*pair) for pair in pairwise(series))


def _is_low_rank(first: Tensor, second: Tensor) -> bool:
    if first.ndim < 2 or second.ndim < 2:
        return False
    (hidden, inputs), (outputs, given) = first.shape[:2], second.shape[:2]
    if hidden != given:
        (inputs, hidden), (given, outputs) = (hidden, inputs), (outputs, given)
    return hidden == given and hidden < min(inputs * first[0, 0].numel(), outputs)


class _Walk:
    """A walk through a graph, from the leaves to the loss.

    Attributes:
        order: names of the parameters so far.
        linear: whether no weight so far was applied to the result of what may be an activation.
        longest: the longest series of weights so far.
    """

    def __init__(self, names: Mapping[int, str]) -> None:
        self.order: dict[str, None] = {}
        self.linear = True
        self.longest: tuple[str, ...] = ()
        self._names = names
        self._results: dict[Any, _Result] = {}

    def visit(self, root: Any) -> bool:
        """Walk through the graph of a node; return False if it is too large."""
        waiting = [root]
        while waiting:
            node = waiting[-1]
            if node in self._results:
                waiting.pop()
                continue
            # The first argument first.
            open_ = [one for one, _ in node.next_functions if one and one not in self._results]
            if open_:
                waiting.extend(reversed(open_))
            else:
                self._results[waiting.pop()] = self._result(node)
            if len(self._results) + len(waiting) > _MOST_NODES:
                return False
        return True

    def _result(self, node: Any) -> _Result:
        """Return what is known of the result of a node, after those of its arguments."""
        name = node.name()
        if name == _LEAF:
            return _Result(constant=self._names.get(id(node.variable), _OTHER))
        arguments = [self._results[one] for one, _ in node.next_functions if one is not None]
        constants = [argument.constant for argument in arguments if argument.constant]
        data = [argument for argument in arguments if not argument.constant]
        if name not in _PRODUCTS and len(constants) == len(arguments) == 1 and _renames(name):
            return arguments[0]
        weights = max((one.weights for one in data), key=len, default=())
        bent = any(one.bent for one in data)
        self.order |= dict.fromkeys(
            constant for constant in constants if constant in self._names.values()
        )
        if name in _PRODUCTS:
            return self._product(node, data, _Result(weights, bent))
        if name in _LINEAR or (name in _SUMS and len(arguments) == 2):
            return _Result(weights, bent)
        if name in _BY_TENSORS and len(data) <= 1 and (constants or _masks(node)):
            return _Result(weights, bent)
        return _Result(weights, bent or bool(weights or constants))

    def _product(self, node: Any, data: list[_Result], result: _Result) -> _Result:
        """Return the result of a product, given that of its arguments without the weight."""
        weight = self._weight(node)
        if not weight:
            # Of two results of weights it is no linear function.
            return result if len(data) <= 1 else result._replace(bent=True)
        self.linear &= not result.bent
        series = (*result.weights, weight)
        self.longest = max(self.longest, series, key=len)
        return result._replace(weights=series)

    def _weight(self, node: Any) -> str:
        """Return the parameter that a product multiplies by; "" if none."""
        # The bias of a convolution is the last argument, that of a dense layer the first.
        name, arguments = node.name(), [one for one, _ in node.next_functions]
        factors = arguments[1:] if name.startswith(("Add", "Badd")) else arguments[:2]
        found = [self._results[factor].constant for factor in factors if factor is not None]
        return next((one for one in found if one), "")


def _renames(name: str) -> bool:
    """Return whether a function passes a parameter on, perhaps transposed or converted."""
    return name in ("TBackward0", "TransposeBackward0", "PermuteBackward0", "ViewBackward0") or (
        name in ("ToCopyBackward0", "CloneBackward0", "UnsqueezeBackward0", "SqueezeBackward1")
    )


def _masks(node: Any) -> bool:
    """Return whether a product is by a number, or by the mask of a dropout.

    That has zeros and numbers above 1; a mask of zeros and ones may be that of a relu.
    """
    other = saved(node, "other")
    if other is None or other.device.type != "cpu":
        return False
    kept = other[other != 0]
    return other.numel() == 1 or bool((kept == kept[:1]).all() and (kept > 1).all())
