"""The tensors in whatever modules are called with and return, each under a name of its own."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence

from vinedresser.capture.adapters.nesting import inside

__all__ = ["argument_leaves", "leaves"]


def leaves(value: Any, name: str = "") -> Iterable[tuple[str, torch.Tensor]]:
    """Return the tensors in a value, each with a name that tells it apart.

    Args:
        value: a tensor, or any nesting of tuples, lists, mappings and dataclasses; whatever else it
            holds is passed over.
        name: of the value itself; what is inside has the place added, such as "[hidden]". The data
            of a packed sequence have the name itself.
    """
    if isinstance(value, torch.Tensor):
        return ((name, value),)
    if isinstance(value, PackedSequence):
        return itertools.chain([(name, value.data)], leaves(_packing(value), name))
    parts = (leaves(item, f"{name}[{key}]") for key, item in inside(value))
    return itertools.chain.from_iterable(parts)


def argument_leaves(
    args: tuple[Any, ...], kwargs: Mapping[str, Any], name: str
) -> Iterable[tuple[str, torch.Tensor]]:
    """Return the tensors that something is called with, each with a name that tells it apart.

    Args:
        args: by position. Where tensors are in the first one only, it has the name itself; else
            each has its number added: "[0]", "[1]".
        kwargs: by keyword, which is added: "[mask]".
        name: of the call.
    """
    if len(args) == 1 and not kwargs:
        # What most modules are called with.
        return leaves(args[0], name)
    found = [list(leaves(argument, f"{name}[{place}]")) for place, argument in enumerate(args)]
    alone = bool(args) and not any(found[1:])
    positional = leaves(args[0], name) if alone else itertools.chain.from_iterable(found)
    return itertools.chain(positional, leaves(kwargs, name))


def _packing(value: PackedSequence) -> dict[str, Any]:
    """Return what tells how the data of a packed sequence are packed."""
    fields = value._asdict()
    del fields["data"]
    return fields
