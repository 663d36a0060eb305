"""Losses that a loop computes itself by elementary operations: what they compare."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Flag, auto
from functools import cache, reduce
from operator import or_
from typing import Any, NamedTuple

from vinedresser.capture.keras_.backends.operations import Operation, Operations
from vinedresser.capture.keras_.observation.comparisons import Comparison, LossFunction

__all__ = ["Written", "follows_from", "written_loss"]

_MOST_TERMS = 32
_SQUARE, _ABSOLUTE = "mean_squared_error", "mean_absolute_error"
_BINARY, _CLASSES = "binary_crossentropy", "categorical_crossentropy"
_SOFTMAX = "softmax_cross_entropy_with_logits"
_SUMS = frozenset({"AddV2", "Add", "AddN", "Sub"})
_SECOND_POWER = 2.0
# A binary cross-entropy has two terms.
_TWO = 2
# Operations by which probabilities are kept from 0, whose other inputs are constants.
_BOUNDS = frozenset({"AddV2", "Add", "Maximum", "Minimum", "ClipByValue", "Identity"})
_MOST_BOUNDS = 4

_function = cache(LossFunction)
_SAME_ELEMENTS = frozenset({"Identity", "Reshape", "Squeeze", "ExpandDims", "Cast"})
"""Operations that change nothing but the shape or the type of a tensor."""
# A loss is a few operations away from the output of the model.
_MOST_TENSORS = 200
# Operations of whose inputs the first is the tensor, and others say how it is read.
_OF_FIRST = _SAME_ELEMENTS | {
    *("Mean", "Sum", "Max", "Min", "Prod", "Cumsum", "ArgMax"),
    *("StridedSlice", "Slice", "Transpose", "Tile", "Pad", "PadV2", "BroadcastTo"),
}
# Operations whose result does not depend on the values of their inputs.
_OF_SHAPES = frozenset({"Shape", "ShapeN", "Size", "Rank", "ZerosLike", "OnesLike"})
_RANDOM = ("Stateless", "Random", "TruncatedNormal")
# Operations by which a program computes the number of elements from a shape.
_COUNTS = frozenset({"Cast", "StridedSlice", "Prod", "Identity"})
_MOST_COUNTS = 8


class Written(NamedTuple):
    """What a loss compares.

    Attributes:
        comparison: the function that computes the same, apart from constant factors and other
            terms, and what it compares.
        negated: whether the loss decreases where the function increases.
    """

    comparison: Comparison
    negated: bool


class _Logarithm(NamedTuple):
    """A product of labels y and logarithms of probabilities p.

    Attributes:
        argument: p without bounds, or the argument of a softmax.
        softmax: whether it is that.
        sign: -1 if the product is negated, else 1.
    """

    labels: Any
    argument: Any
    softmax: bool
    sign: int


def written_loss(
    loss: Any, outputs: Sequence[Any], operations: Operations, called: Comparison | None = None
) -> Written | None:
    """Return what a loss compares, if it is certain from its operations.

    Looked for are terms of the loss, which may be sums, means and multiples with constants:

    - squared and absolute differences of values [rows, ...] that follow from outputs of the model
      alone, and data that do not depend on any,
    - likelihoods y log p + (1 - y) log(1 - p), and y log p of probabilities of classes,
    - the value of a function that the loop calls.

    Args:
        loss: scalar tensor.
        outputs: outputs of the only forward pass of the model.
        operations: the operations since then.
        called: the only call of a loss function since then.

    Returns:
        None if nothing is found, or several things, or if other terms of the loss weight outputs
        with data, as policy gradients do with advantages.
    """
    if not outputs or not operations.known(loss):
        return None
    search = _Search(outputs, operations)
    found: list[Written] = []
    for tensor, sign in search.terms(loss, None if called is None else called.value):
        of_call = called is not None and tensor is called.value
        one = Written(called, negated=False) if of_call and called else search.compared(tensor)
        if not sign or (one is None and search.origins.are_weighted(tensor)):
            return None
        if one is not None:
            found.append(one._replace(negated=one.negated != (sign < 0)))
    labels = {id(one.comparison.labels) for one in found}
    return found[0] if len(labels) == 1 else None


def follows_from(tensor: Any, outputs: Sequence[Any], operations: Operations) -> bool:
    """Return whether a tensor is computed from outputs of the model and constants alone."""
    known = bool(outputs) and operations.known(tensor)
    return known and _Origins(outputs, operations).predicted(tensor)


class _Search:
    def __init__(self, outputs: Sequence[Any], operations: Operations) -> None:
        self._operations = operations
        self.origins = _Origins(outputs, operations)

    def terms(self, loss: Any, value: Any) -> Iterator[tuple[Any, int]]:
        """Yield the terms of a loss, and the sign of its derivative by each; 0 if unknown.

        Args:
            value: a tensor that is no sum of terms.
        """
        waiting = [(loss, 1)]
        for _ in range(_MOST_TERMS):
            if not waiting:
                return
            tensor, sign = waiting.pop(0)
            ends = tensor is value or self.origins.is_output(tensor)
            operation = None if ends else self._operations.of(tensor)
            below = None if operation is None else self._below(operation)
            if below is None:
                yield tensor, sign
            else:
                waiting.extend((one, sign * direction) for one, direction in below)
        yield from ((one, 0) for one, _ in waiting)

    def _below(self, operation: Operation) -> list[tuple[Any, int]] | None:
        """Return the arguments of a linear operation, or of a root, with their signs; or None."""
        kind, inputs = operation
        if kind in _SAME_ELEMENTS or kind in ("Mean", "Sum", "Sqrt"):
            return [(inputs[0], 1)]
        if kind == "Neg":
            return [(inputs[0], -1)]
        if kind in _SUMS and self._binary(None, operation) is None:
            signs = (1, -1) if kind == "Sub" else (1,) * len(inputs)
            return list(zip(inputs, signs, strict=True))
        if kind in ("Mul", "RealDiv", "DivNoNan"):
            first, second = inputs
            if kind == "Mul" and self.origins.sign(first):
                first, second = second, first
            sign = self.origins.sign(second)
            return [(first, sign)] if sign else None
        return None

    def compared(self, tensor: Any) -> Written | None:
        """Return what a term compares; None if nothing certain."""
        operation = self._operations.of(tensor)
        if operation is None or self.origins.is_output(tensor):
            return None
        kind, inputs = operation
        if kind == "SquaredDifference":
            return self._pair(tensor, _SQUARE, inputs)
        if kind == "Square" or (kind == "Mul" and inputs[0] is inputs[1]):
            return self._difference(tensor, _SQUARE, inputs[0])
        if kind == "Pow" and self._operations.constant(inputs[1]) == _SECOND_POWER:
            return self._difference(tensor, _SQUARE, inputs[0])
        if kind == "Abs":
            return self._difference(tensor, _ABSOLUTE, inputs[0])
        return self._classes(tensor) if kind == "Mul" else self._binary(tensor, operation)

    def _difference(self, value: Any, function: str, tensor: Any) -> Written | None:
        operation = self._operations.of(tensor)
        subtracts = operation is not None and operation.kind == "Sub"
        return self._pair(value, function, operation.inputs) if operation and subtracts else None

    def _pair(self, value: Any, function: str, pair: tuple[Any, ...]) -> Written | None:
        """Return the comparison of two tensors if one is predicted, and the other one is data."""
        labels, predictions = pair[::-1] if self.origins.predicted(pair[0]) else pair
        if not self.origins.predicted(predictions) or not self.origins.are_data(labels):
            return None
        return _written(function, value, labels, predictions)

    def _classes(self, value: Any) -> Written | None:
        """Return what y log p compares if y and p are certainly probabilities of classes."""
        found = self._logarithm(value)
        certain = self._operations.are_probabilities
        if found is None or not certain(found.labels):
            return None
        if not found.softmax and not certain(found.argument):
            return None
        function = _SOFTMAX if found.softmax else _CLASSES
        return _written(function, value, found.labels, found.argument, negated=found.sign > 0)

    def _binary(self, value: Any, operation: Operation) -> Written | None:
        """Return what y log p + (1 - y) log(1 - p) compares, or the negative."""
        kind, inputs = operation
        if kind not in _SUMS or len(inputs) != _TWO:
            return None
        first, second = (self._logarithm(one) for one in inputs)
        if first is None or second is None or first.softmax or second.softmax:
            return None
        if kind == "Sub":
            second = second._replace(sign=-second.sign)
        yes, no = (second, first) if self._one_minus(first.labels) is not None else (first, second)
        complement = self._one_minus(no.argument)
        if complement is None or self._one_minus(no.labels) is not yes.labels:
            return None
        if self._unbounded(complement) is not yes.argument or yes.sign != no.sign:
            return None
        if not self.origins.predicted(yes.argument):
            return None
        return _written(_BINARY, value, yes.labels, yes.argument, negated=yes.sign > 0)

    def _logarithm(self, tensor: Any) -> _Logarithm | None:
        """Return the factors of a tensor if it is a product of data and logarithms of outputs."""
        sign, operation = 1, self._operations.of(tensor)
        if operation is not None and operation.kind == "Neg":
            sign, operation = -1, self._operations.of(operation.inputs[0])
        if operation is None or operation.kind != "Mul":
            return None
        labels, factor = operation.inputs
        if self.origins.of(labels) != _Origin.DATA:
            labels, factor = factor, labels
        before = self._operations.of(labels)
        if before is not None and before.kind == "Neg":
            sign, labels = -sign, before.inputs[0]
        computed = self._operations.of(factor)
        if computed is None or computed.kind not in ("Log", "LogSoftmax"):
            return None
        softmax = computed.kind == "LogSoftmax"
        argument = computed.inputs[0] if softmax else self._unbounded(computed.inputs[0])
        if not self.origins.are_data(labels) or self.origins.of(argument) != _Origin.OUTPUT:
            return None
        return _Logarithm(labels, argument, softmax, sign)

    def _unbounded(self, tensor: Any) -> Any:
        """Return a tensor before constants were added to it, or limits were applied."""
        for _ in range(_MOST_BOUNDS):
            operation = None if self.origins.is_output(tensor) else self._operations.of(tensor)
            if operation is None or operation.kind not in _BOUNDS:
                break
            others = [one for one in operation.inputs if self.origins.of(one) != _Origin.NOTHING]
            if len(others) != 1:
                break
            tensor = others[0]
        return tensor

    def _one_minus(self, tensor: Any) -> Any:
        """Return x if a tensor is 1 - x, or None."""
        operation = self._operations.of(tensor)
        if operation is None or operation.kind != "Sub":
            return None
        return operation.inputs[1] if self._operations.constant(operation.inputs[0]) == 1 else None


def _written(
    function: str, value: Any, labels: Any, predictions: Any, *, negated: bool = False
) -> Written:
    comparison = Comparison(_function(function, ()), value, labels, predictions)
    return Written(comparison, negated)


class _Origin(Flag):
    """What a tensor depends on; NOTHING are constants of the program."""

    NOTHING = 0
    OUTPUT = auto()
    DATA = auto()
    TRAINED = auto()


class _Origins:
    """Finds what tensors depend on.

    Args:
        outputs: outputs of the model, tensors.
        operations: the operations since they were computed.
    """

    def __init__(self, outputs: Sequence[Any], operations: Operations) -> None:
        self._operations = operations
        self._outputs = {id(output) for output in outputs}
        self._known = dict.fromkeys(self._outputs, _Origin.OUTPUT)
        self._lengths = {output.shape[0] for output in outputs if len(output.shape)}
        self._left = _MOST_TENSORS

    def of(self, tensor: Any) -> _Origin:
        """Return what a tensor depends on; everything if there is too much to look at."""
        if id(tensor) not in self._known:
            if self._left <= 0:
                return _Origin.OUTPUT | _Origin.DATA | _Origin.TRAINED
            self._left -= 1
            self._known[id(tensor)] = self._of(tensor)
        return self._known[id(tensor)]

    def _of(self, tensor: Any) -> _Origin:
        operation = self._operations.of(tensor)
        if operation is None:
            return self._of_leaf(tensor)
        kind, inputs = operation
        if kind in _OF_SHAPES or kind == "Const":
            rows = len(tensor.shape) > 0 and tensor.shape[0] in self._lengths
            # Data that a function refers to become constants of its graph.
            data = kind == "Const" and rows and self._operations.varies(tensor)
            return _Origin.DATA if data else _Origin.NOTHING
        if kind == "ReadVariableOp":
            return _Origin.TRAINED
        # Whatever reads no tensor, such as a placeholder, has data.
        if not inputs or kind.startswith(_RANDOM):
            return _Origin.DATA
        read = inputs[:1] if kind in _OF_FIRST else inputs
        return reduce(or_, map(self.of, read))

    def _of_leaf(self, tensor: Any) -> _Origin:
        if self._operations.is_trained(tensor):
            return _Origin.TRAINED
        return _Origin.DATA if len(tensor.shape) else _Origin.NOTHING

    def is_output(self, tensor: Any) -> bool:
        """Return whether a tensor is an output of the model."""
        return id(tensor) in self._outputs

    def predicted(self, tensor: Any) -> bool:
        """Return whether a tensor has a row for each of an output, and follows from these alone."""
        rows = len(tensor.shape) > 0 and tensor.shape[0] in self._lengths
        return rows and self.of(tensor) == _Origin.OUTPUT

    def are_data(self, tensor: Any) -> bool:
        """Return whether a tensor certainly depends on data alone."""
        return len(tensor.shape) > 0 and self.of(tensor) == _Origin.DATA

    def are_weighted(self, tensor: Any) -> bool:
        """Return whether a tensor depends both on outputs and on data."""
        return _Origin.OUTPUT | _Origin.DATA in self.of(tensor)

    def sign(self, tensor: Any) -> int:
        """Return the sign of a constant scalar, or of a number of elements; 0 if unknown."""
        if len(tensor.shape):
            return 0
        value = self._operations.constant(tensor)
        if value is not None and self.of(tensor) == _Origin.NOTHING:
            return (value > 0) - (value < 0)
        return int(self._counts(tensor))

    def _counts(self, tensor: Any) -> bool:
        """Return whether a tensor is a number of elements."""
        for _ in range(_MOST_COUNTS):
            operation = self._operations.of(tensor)
            if operation is None:
                return False
            # Of a tensor whose shape is known, the shape is a constant.
            shape = operation.kind == "Const" and len(tensor.shape) == 1
            if shape or operation.kind in ("Shape", "Size"):
                return True
            if operation.kind not in _COUNTS:
                return False
            tensor = operation.inputs[0]
        return False
