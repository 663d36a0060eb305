"""Names of element types in safetensors and in numpy."""

from __future__ import annotations

from functools import cache
from types import MappingProxyType
from typing import Any

import numpy as np

__all__ = ["ITEM_BYTES", "SPELLINGS", "dtype_name", "host_dtype", "numpy_dtype"]

_NATIVE = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "I16": "int16",
    "U16": "uint16",
    "F16": "float16",
    "I32": "int32",
    "U32": "uint32",
    "F32": "float32",
    "C64": "complex64",
    "F64": "float64",
    "I64": "int64",
    "U64": "uint64",
}
# Provided by ml_dtypes, which is imported when one of them is read.
_ML_DTYPES = {
    "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
}
# Safetensors' name of each dtype, by its name in numpy, ml_dtypes and torch.
SPELLINGS = MappingProxyType({word: name for name, word in (_NATIVE | _ML_DTYPES).items()})

# Bytes per element, by safetensors' name of the dtype.
ITEM_BYTES = MappingProxyType(
    {name: np.dtype(word).itemsize for name, word in _NATIVE.items()}
    | {name: 2 if name == "BF16" else 1 for name in _ML_DTYPES}
)


@cache
def numpy_dtype(name: str) -> np.dtype[Any]:
    """Return the numpy dtype (of `ml_dtypes` for bfloat16 and float8) for safetensors' name.

    Raises:
        KeyError: the dtype is unknown or narrower than a byte.
    """
    if name in _ML_DTYPES:
        import ml_dtypes

        found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, _ML_DTYPES[name]))
        return found
    return np.dtype(_NATIVE[name])


def host_dtype(name: str) -> np.dtype[Any]:
    """Return numpy's own dtype for safetensors' name, or unsigned integers of the same size."""
    return np.dtype(_NATIVE.get(name, f"u{ITEM_BYTES[name]}"))


@cache
def dtype_name(dtype: np.dtype[Any]) -> str:
    """Return safetensors' name of a numpy or `ml_dtypes` dtype.

    Raises:
        KeyError: safetensors has no such dtype.
    """
    return SPELLINGS[dtype.name]
