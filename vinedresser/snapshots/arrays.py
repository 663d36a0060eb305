"""Numpy arrays in snapshots."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vinedresser.snapshots.trees import Fields, HostArray, LeftOut, Packed
from vinedresser.store.dtypes import SPELLINGS, dtype_name, numpy_dtype

__all__ = ["ArrayCodec", "array_of", "host_array_of"]


class ArrayCodec:
    """See `vinedresser.snapshots.trees.Codec`; adds nothing but arrays."""

    def pack(self, value: Any) -> Packed:
        """See `Codec.pack`."""
        if not isinstance(value, np.ndarray | np.generic) or isinstance(value, float):
            return None
        if value.dtype.name not in SPELLINGS:
            return LeftOut(f"an array of {value.dtype} cannot be stored")
        return host_array_of(np.asarray(value)), {"is": "array"}

    def unpack(self, array: HostArray, properties: Mapping[str, Any]) -> Any:  # noqa: ARG002
        """See `Codec.unpack`."""
        return array_of(array)

    def constant(self, kind: str, text: str) -> Any:  # noqa: ARG002
        """See `Codec.constant`."""
        raise ValueError(f"{kind!r} is not a constant of numpy")

    def named(self, kind: str, values: Fields) -> Any:  # noqa: ARG002
        """See `Codec.named`."""
        return values


def host_array_of(array: NDArray[Any]) -> HostArray:
    """Return the elements of an array, copied only if it is not C-contiguous.

    Args:
        array: any shape, of a dtype that safetensors has.
    """
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data if array.size else b""
    return HostArray(dtype_name(array.dtype), array.shape, data)


def array_of(array: HostArray) -> NDArray[Any]:
    """Return a writable numpy array with a copy of the elements."""
    data = np.frombuffer(bytearray(array.data), numpy_dtype(array.dtype))
    return data.reshape(array.shape)
