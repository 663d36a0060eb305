"""Putting recorded values in the place of a script's own, with the types that the script uses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from vinedresser.frameworks.nesting import rebuilt
from vinedresser.snapshots.trees import Fields, LeftOut

__all__ = ["NotAlike", "fitted"]


class NotAlike(Exception):
    """The structures of two values differ, so one cannot replace the other."""


def fitted(own: Any, recorded: Any, *, keep: bool = False, wider: bool = False) -> Any:
    """Return a recorded value with the containers of the script's own.

    A tensor of the script that is equal bit for bit stays the one that it is, with its views.

    Args:
        own: value of the script, a nesting of tuples, lists, mappings, named tuples and data
            classes.
        recorded: value of the snapshot, a nesting of the same structure; tensors may have another
            length.
        keep: whether tensors that the script has computed with a gradient stay, too: those that
            another model returns have other values if something is changed.
        wider: whether tensors of the script may have a wider dtype, in which a step is run.

    Raises:
        NotAlike: the structures, or the dtypes of tensors, differ.
    """
    if isinstance(recorded, LeftOut):
        raise NotAlike(recorded.why)
    if isinstance(own, Tensor):
        return own if keep and own.grad_fn is not None else _fitted_tensor(own, recorded, wider)
    if isinstance(own, np.ndarray):
        if not isinstance(recorded, np.ndarray) or own.dtype != recorded.dtype:
            raise NotAlike(f"an array of {own.dtype} in place of a {type(recorded).__name__}")
        return recorded.copy()
    if isinstance(own, PackedSequence):
        if not isinstance(recorded, PackedSequence):
            raise NotAlike(f"a packed sequence in place of a {type(recorded).__name__}")
        return recorded
    inner = partial(fitted, keep=keep, wider=wider)
    return _fitted_nesting(own, recorded, inner)


def _fitted_tensor(own: Tensor, recorded: Any, wider: bool) -> Tensor:
    if not isinstance(recorded, Tensor):
        raise NotAlike(f"a tensor in place of a {type(recorded).__name__}")
    wide = (
        wider
        and own.is_floating_point()
        and own.dtype == torch.promote_types(own.dtype, recorded.dtype)
    )
    if (own.dtype != recorded.dtype and not wide) or own.dim() != recorded.dim():
        raise NotAlike(
            f"{own.dtype} {list(own.shape)} in place of {recorded.dtype} {list(recorded.shape)}"
        )
    same = own.shape == recorded.shape and own.stride() == recorded.stride()
    if same and torch.equal(own.detach(), recorded.detach().to(own)):
        return own
    made = recorded.detach().clone().to(own)
    return made.requires_grad_() if recorded.requires_grad else made


def _fitted_nesting(own: Any, recorded: Any, inner: Callable[[Any, Any], Any]) -> Any:
    if is_dataclass(own) and not isinstance(own, type | Mapping) and isinstance(recorded, Fields):
        found = {name: getattr(recorded, name) for name in recorded._fields}
        return rebuilt(own, {key: inner(getattr(own, key), one) for key, one in found.items()})
    if isinstance(own, Mapping):
        if not isinstance(recorded, dict) or own.keys() != recorded.keys():
            raise NotAlike(f"a {type(own).__name__} with other keys")
        return rebuilt(own, {key: inner(own[key], one) for key, one in recorded.items()})
    if isinstance(own, tuple | list):
        return _fitted_sequence(own, recorded, inner)
    if type(own) is not type(recorded):
        raise NotAlike(f"a {type(own).__name__} in place of a {type(recorded).__name__}")
    return recorded


def _fitted_sequence(own: Any, recorded: Any, inner: Callable[[Any, Any], Any]) -> Any:
    if not isinstance(recorded, tuple | list):
        raise NotAlike(f"a {type(own).__name__} in place of a {type(recorded).__name__}")
    if all(isinstance(one, str) for one in (*own, *recorded)) and isinstance(own, list):
        # Texts, one for each sample.
        return list(recorded)
    if len(own) != len(recorded):
        raise NotAlike(f"{len(own)} values in place of {len(recorded)}")
    parts = [inner(one, other) for one, other in zip(own, recorded, strict=True)]
    return rebuilt(own, dict(enumerate(parts)))
