"""Inputs in the form that a model takes."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["as_input", "plain_inputs"]


def as_input(model: Any, values: Any) -> Any:
    """Return inputs as a model takes them: tensors of its precision and device, if it is torch's.

    Args:
        values: an array [N, ...] of a request's or a baseline's inputs, or anything else, which is
            returned as it is.
    """
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(model, torch.nn.Module):
        return values
    tensor = torch.as_tensor(values)
    parameter = next(model.parameters(), None)
    if parameter is None:
        return tensor
    dtype = parameter.dtype if tensor.is_floating_point() else tensor.dtype
    return tensor.to(parameter.device, dtype)


def plain_inputs(values: NDArray[Any]) -> NDArray[Any]:
    """Return captured inputs in a dtype that every framework knows: float64, or int64.

    Args:
        values: any real dtype, including those of `ml_dtypes`.
    """
    return values.astype(np.int64 if values.dtype.kind in "iu" else np.float64)
