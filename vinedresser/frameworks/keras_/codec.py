"""Tensors of TensorFlow and PyTorch under Keras in snapshots, which are read as numpy arrays."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray

from vinedresser.frameworks import nesting
from vinedresser.snapshots.arrays import ArrayCodec, host_array_of
from vinedresser.snapshots.trees import LeftOut, Packed, array_digest
from vinedresser.store.dtypes import SPELLINGS

__all__ = [
    "KerasCodec",
    "digest",
    "host_value",
    "is_tensor",
    "mapped",
    "nonfinite_entries",
]


class KerasCodec(ArrayCodec):
    """See `vinedresser.snapshots.trees.Codec`."""

    def pack(self, value: Any) -> Packed:
        """See `Codec.pack`."""
        if not is_tensor(value):
            return None
        try:
            array = host_value(value)
        except (TypeError, ValueError, NotImplementedError) as error:
            return LeftOut(f"a {type(value).__name__} cannot be stored: {error}")
        if array.dtype == object or array.dtype.kind in "SU":
            return _packed_text(array)
        if array.dtype.name not in SPELLINGS:
            return LeftOut(f"a tensor of {array.dtype} cannot be stored")
        kind = "array" if isinstance(value, np.ndarray | np.generic) else "tensor"
        return host_array_of(array), {"is": kind}

    def constant(self, kind: str, text: str) -> Any:
        """See `Codec.constant`."""
        if kind != "text":
            raise ValueError(f"{kind!r} is not a constant of Keras")
        content = json.loads(text)
        values = [one.encode("latin-1") for one in content["values"]]
        return np.array(values, dtype=object).reshape(content["shape"])


def is_tensor(value: Any) -> bool:
    """Return whether a value is an array, or a tensor or variable of the backend in use."""
    return (
        isinstance(value, np.ndarray | np.generic | keras.Variable)
        or keras.ops.is_tensor(value)
        or type(value).__name__ in ("SparseTensor", "RaggedTensor")
    ) and not isinstance(value, float)


def host_value(value: Any) -> NDArray[Any]:
    """Return the elements of a dense tensor, array or variable in host memory.

    Args:
        value: any shape and dtype.

    Raises:
        TypeError: it is sparse or ragged.
    """
    if isinstance(value, keras.Variable):
        value = value.value
    if type(value).__name__ in ("SparseTensor", "RaggedTensor"):
        raise TypeError("it is not dense")
    if isinstance(value, np.ndarray | np.generic):
        return np.asarray(value, order="C")
    return np.ascontiguousarray(keras.ops.convert_to_numpy(value)).reshape(tuple(value.shape))


def digest(value: Any) -> str:
    """Return the SHA-256 of a tensor's dtype, shape and elements, 64 hexadecimal digits.

    Args:
        value: a dense tensor or array of any shape, and of a dtype that safetensors has.
    """
    return array_digest(host_array_of(host_value(value)))


def nonfinite_entries(value: Any) -> int:
    """Return the number of entries of a tensor or variable that are NaN or infinite."""
    array = host_value(value)
    if array.dtype.kind not in "fcV":
        return 0
    return int(array.size - np.isfinite(array).sum())


def mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return a nesting with each tensor replaced; see `nesting.mapped`.

    Args:
        change: returns what replaces a tensor.
    """
    return nesting.mapped(value, lambda one: change(one) if is_tensor(one) else one)


def _packed_text(array: NDArray[Any]) -> Packed:
    """Return an array of strings as a constant: safetensors has none."""
    raw = [one if isinstance(one, bytes) else str(one).encode() for one in array.reshape(-1)]
    content = {"shape": list(array.shape), "values": [one.decode("latin-1") for one in raw]}
    return "text", json.dumps(content)
