"""What the tensors of a loss depend on: outputs of the model, data, trained variables."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Flag, auto
from functools import reduce
from operator import or_
from typing import Any

from vinedresser.capture.keras_.backends.operations import Operations

__all__ = ["SAME_ELEMENTS", "Origin", "Origins"]

SAME_ELEMENTS = frozenset({"Identity", "Reshape", "Squeeze", "ExpandDims", "Cast"})
"""Operations that change nothing but the shape or the type of a tensor."""
# A loss is a few operations away from the output of the model.
_MOST_TENSORS = 200
# Operations of whose inputs the first is the tensor, and others say how it is read.
_OF_FIRST = SAME_ELEMENTS | {
    *("Mean", "Sum", "Max", "Min", "Prod", "Cumsum", "ArgMax"),
    *("StridedSlice", "Slice", "Transpose", "Tile", "Pad", "PadV2", "BroadcastTo"),
}
# Operations whose result does not depend on the values of their inputs.
_OF_SHAPES = frozenset({"Shape", "ShapeN", "Size", "Rank", "ZerosLike", "OnesLike"})
_RANDOM = ("Stateless", "Random", "TruncatedNormal")
# Operations by which a program computes the number of elements from a shape.
_COUNTS = frozenset({"Cast", "StridedSlice", "Prod", "Identity"})
_MOST_COUNTS = 8


class Origin(Flag):
    """What a tensor depends on; NOTHING are constants of the program."""

    NOTHING = 0
    OUTPUT = auto()
    DATA = auto()
    TRAINED = auto()


class Origins:
    """Finds what tensors depend on.

    Args:
        outputs: outputs of the model, tensors.
        operations: the operations since they were computed.
    """

    def __init__(self, outputs: Sequence[Any], operations: Operations) -> None:
        self._operations = operations
        self._outputs = {id(output) for output in outputs}
        self._known = dict.fromkeys(self._outputs, Origin.OUTPUT)
        self._lengths = {output.shape[0] for output in outputs if len(output.shape)}
        self._left = _MOST_TENSORS

    def of(self, tensor: Any) -> Origin:
        """Return what a tensor depends on; everything if there is too much to look at."""
        if id(tensor) not in self._known:
            if self._left <= 0:
                return Origin.OUTPUT | Origin.DATA | Origin.TRAINED
            self._left -= 1
            self._known[id(tensor)] = self._of(tensor)
        return self._known[id(tensor)]

    def _of(self, tensor: Any) -> Origin:
        operation = self._operations.of(tensor)
        if operation is None:
            return self._of_leaf(tensor)
        kind, inputs = operation
        if kind in _OF_SHAPES or kind == "Const":
            rows = len(tensor.shape) > 0 and tensor.shape[0] in self._lengths
            # Data that a function refers to become constants of its graph.
            data = kind == "Const" and rows and self._operations.varies(tensor)
            return Origin.DATA if data else Origin.NOTHING
        if kind == "ReadVariableOp":
            return Origin.TRAINED
        # Whatever reads no tensor, such as a placeholder, has data.
        if not inputs or kind.startswith(_RANDOM):
            return Origin.DATA
        read = inputs[:1] if kind in _OF_FIRST else inputs
        return reduce(or_, map(self.of, read))

    def _of_leaf(self, tensor: Any) -> Origin:
        if self._operations.is_trained(tensor):
            return Origin.TRAINED
        return Origin.DATA if len(tensor.shape) else Origin.NOTHING

    def is_output(self, tensor: Any) -> bool:
        """Return whether a tensor is an output of the model."""
        return id(tensor) in self._outputs

    def predicted(self, tensor: Any) -> bool:
        """Return whether a tensor has a row for each of an output, and follows from these alone."""
        rows = len(tensor.shape) > 0 and tensor.shape[0] in self._lengths
        return rows and self.of(tensor) == Origin.OUTPUT

    def are_data(self, tensor: Any) -> bool:
        """Return whether a tensor certainly depends on data alone."""
        return len(tensor.shape) > 0 and self.of(tensor) == Origin.DATA

    def are_weighted(self, tensor: Any) -> bool:
        """Return whether a tensor depends both on outputs and on data."""
        return Origin.OUTPUT | Origin.DATA in self.of(tensor)

    def sign(self, tensor: Any) -> int:
        """Return the sign of a constant scalar, or of a number of elements; 0 if unknown."""
        if len(tensor.shape):
            return 0
        value = self._operations.constant(tensor)
        if value is not None and self.of(tensor) == Origin.NOTHING:
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
