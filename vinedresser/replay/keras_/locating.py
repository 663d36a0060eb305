"""Finding the operation of TensorFlow that makes a step's loss or gradients non-finite."""

from __future__ import annotations

import linecache
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from tensorflow.python.framework import op_callbacks

from vinedresser.frameworks.keras_.names import Names
from vinedresser.frameworks.methods import replace
from vinedresser.replay.results import Located, Place

_PACKAGE = str(Path(__file__).parents[2])
_LIBRARIES = (str(Path(tf.__file__).parent), str(Path(keras.__file__).parent), _PACKAGE)
# Inputs whose values are shown.
_MOST_INPUTS = 3
_FLOATS = (tf.float16, tf.bfloat16, tf.float32, tf.float64)
_NOWHERE = Place("", "", 0, "")


class _Scan:
    """Follows non-finite values from the operation that makes them, in eager execution.

    A value that is infinite because the program says so, as in a mask, has no origin, and neither
    has one that is absorbed, as by a softmax.

    Args:
        modules: paths of the layers in progress, outermost first.
    """

    def __init__(self, modules: list[str]) -> None:
        self._modules = modules
        self._origins: dict[int, Located] = {}
        # Places of the forward operations by the id of each of their inputs and outputs.
        self._places: dict[tuple[str, int], Place] = {}
        # Ids are those of tensors that are kept alive.
        self._kept: list[Any] = []
        self._number = -1

    def origin(self, tensor: Any) -> Located | None:
        """Return where the non-finite values of a tensor come from; None if that is unknown."""
        return self._origins.get(id(tensor))

    def __call__(
        self, op_type: Any, inputs: Any, _: Any, outputs: Any, *__: Any, **___: Any
    ) -> None:
        """Look at an operation; called by TensorFlow after it."""
        if not tf.executing_eagerly():
            # Traced, as for a function of `tf.data`: it has no values.
            return
        self._number += 1
        name = op_type.decode() if isinstance(op_type, bytes) else str(op_type)
        backward, place = self._place()
        inputs = [one for one in inputs if isinstance(one, tf.Tensor)]
        outputs = [output for output in outputs if isinstance(output, tf.Tensor)]
        self._kept += [*inputs, *outputs]
        if not backward:
            for one in (*inputs, *outputs):
                self._places.setdefault((name, id(one)), place)
        for output in outputs:
            if output.dtype in _FLOATS:
                self._judge(name, backward, place, [each for each in inputs if _real(each)], output)

    def _judge(
        self, name: str, backward: str, place: Place, given: Sequence[Any], result: Any
    ) -> None:
        """Note where the non-finite values of a result come from."""
        array = _array(result)
        if np.isfinite(array).all():
            return
        bad = [one for one in given if not np.isfinite(_array(one)).all()]
        known = [one for one in map(self.origin, bad) if one is not None]
        if known:
            self._origins[id(result)] = min(known, key=lambda one: one.number)
            return
        # Values that the program itself made infinite are constants, which are inputs.
        undefined = np.isnan(array).any() and not any(np.isnan(_array(one)).any() for one in bad)
        if (bad or not given) and not undefined:
            return
        index = [int(one[0]) for one in np.nonzero(~np.isfinite(array))] if array.ndim else []
        where = f" at {index}" if index else ""
        self._origins[id(result)] = Located(
            name,
            "backward" if backward else "forward",
            backward,
            place,
            f"{_kind(array)} is {float(array[tuple(index)]):g}{where}",
            [_described(_array(one), array, index) for one in given[:_MOST_INPUTS]],
            self._number,
        )

    def _place(self) -> tuple[str, Place]:
        """Return the name of the derivative that is computed now, "" in the forward; its place."""
        for frame, _ in traceback.walk_stack(sys._getframe(1)):
            if frame.f_code.co_name == "_gradient_function":
                own = frame.f_locals
                name = str(own.get("op_name"))
                tensors = [*(own.get("outputs") or ()), *(own.get("inputs") or ())]
                places = (self._places.get((name, id(tensor))) for tensor in tensors)
                return f"{name}Grad", next((place for place in places if place), _NOWHERE)
        return "", _caller(self._modules[-1] if self._modules else "")


@contextmanager
def locate_in(models: Mapping[str, Any]) -> Iterator[_Scan]:
    """Follow non-finite values in the eager computations of a block.

    Args:
        models: the models by name.
    """
    stack: list[str] = []
    paths = {id(one): path for each in models.values() for path, one in Names(each).layers()}
    scan = _Scan(stack)

    def located(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            stack.append(paths.get(id(self), stack[-1] if stack else ""))
            try:
                return original(self, *args, **kwargs)
            finally:
                stack.pop()

        return call

    restore = replace(keras.layers.Layer, "__call__", located)
    op_callbacks.add_op_callback(scan)
    try:
        yield scan
    finally:
        op_callbacks.remove_op_callback(scan)
        restore()


def _caller(module: str) -> Place:
    """Return the innermost line of the program that is neither a library's nor this package's."""
    for frame, line in traceback.walk_stack(sys._getframe(2)):
        file = frame.f_code.co_filename
        if not file.startswith((*_LIBRARIES, "<")):
            return Place(module, file, line, linecache.getline(file, line).strip())
    return Place(module, "", 0, "")


def _real(tensor: Any) -> bool:
    return tensor.dtype in _FLOATS


def _array(tensor: Any) -> NDArray[Any]:
    found: NDArray[Any] = np.asarray(tensor.numpy())
    return found


def _described(given: NDArray[Any], result: NDArray[Any], index: Sequence[int]) -> str:
    """Return an input's element at an index, or its range if it has another shape."""
    if not given.size:
        return f"{_kind(given)}: empty"
    if given.shape == result.shape:
        return f"{_kind(given)}: {float(given[tuple(index)]):g} there"
    if given.size == 1:
        return f"{_kind(given)}: {float(given.reshape(())):g}"
    return f"{_kind(given)}: from {float(given.min()):g} to {float(given.max()):g}"


def _kind(array: NDArray[Any]) -> str:
    return f"{array.dtype.name} {list(array.shape)}"
