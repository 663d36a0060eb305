"""The tensors in nested inputs and outputs of modules, with unique names."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence

from vinedresser.frameworks.nesting import inside

__all__ = ["argument_leaves", "leaves"]


def leaves(value: Any, name: str = "") -> Iterable[tuple[str, torch.Tensor]]:
    """Return names and tensors of a value.

    Args:
        value: a tensor, or a nesting of tuples, lists, mappings and dataclasses; everything else in
            it is ignored.
        name: name of the value; items have their key appended, such as "[hidden]", except the data
            of a packed sequence.
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
    """Return names and tensors of the arguments of a call.

    Args:
        args: positional arguments. If only the first one contains tensors, it has the name of the
            call; otherwise the index is appended: "[0]", "[1]".
        kwargs: keyword arguments; the keyword is appended: "[mask]".
    """
    if len(args) == 1 and not kwargs:
        # The most frequent case.
        return leaves(args[0], name)
    found = [list(leaves(argument, f"{name}[{place}]")) for place, argument in enumerate(args)]
    alone = bool(args) and not any(found[1:])
    positional = leaves(args[0], name) if alone else itertools.chain.from_iterable(found)
    return itertools.chain(positional, leaves(kwargs, name))


def _packing(value: PackedSequence) -> dict[str, Any]:
    """Return the fields of a packed sequence except its data."""
    fields = value._asdict()
    del fields["data"]
    return fields
