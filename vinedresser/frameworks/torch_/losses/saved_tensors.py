"""Tensors that nodes of the autograd graph have saved."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

__all__ = ["saved", "signed"]


def saved(node: Any, name: str) -> Tensor | None:
    """Return a tensor that an autograd node saved; None if it cannot be read without harm.

    Args:
        name: name of the argument or "result".
    """
    # Unpacking may run the user's code, such as the recomputation of a checkpoint.
    raw = getattr(node, f"_raw_saved_{name}", None)
    if raw is None or raw.unpack_hook is not None:
        return None
    try:
        found = getattr(node, f"_saved_{name}")
    except RuntimeError:
        # Freed by an earlier backward pass, or overwritten since.
        return None
    return found.detach() if isinstance(found, torch.Tensor) else None


def signed(number: int) -> int:
    """Return a number that an autograd node saved, such as an axis.

    Args:
        number: as saved; a negative one is saved as an unsigned number of 64 bits.
    """
    return (number + 2**63) % 2**64 - 2**63
