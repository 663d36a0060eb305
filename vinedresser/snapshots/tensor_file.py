"""The tensors of a snapshot as one safetensors file, written and read without trust."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

from vinedresser.errors import CorruptData
from vinedresser.objects.base import Buffer
from vinedresser.snapshots.trees import HostArray
from vinedresser.store.dtypes import ITEM_BYTES
from vinedresser.store.json_values import DAMAGE, checker, parse_json, shown

__all__ = ["file_parts", "read_tensors"]

_METADATA = "__metadata__"
_ARE_INTEGERS = checker(list[int])


def file_parts(tensors: Mapping[str, HostArray]) -> Iterator[Buffer]:
    """Yield the contents of a safetensors file without joining them.

    Args:
        tensors: the tensors by name.
    """
    entries: dict[str, Any] = {_METADATA: {"format": "vinedresser.snapshot.1"}}
    offset = 0
    # Wide elements first, so that all are aligned.
    ordered = sorted(tensors.items(), key=lambda one: -ITEM_BYTES[one[1].dtype])
    for name, tensor in ordered:
        size = prod(tensor.shape) * ITEM_BYTES[tensor.dtype]
        entries[name] = {
            "dtype": tensor.dtype,
            "shape": list(tensor.shape),
            "data_offsets": [offset, offset + size],
        }
        offset += size
    header = json.dumps(entries, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    yield len(header).to_bytes(8, "little") + header
    for _, tensor in ordered:
        yield tensor.data


def read_tensors(content: bytes) -> dict[str, HostArray]:
    """Return the tensors of a file as views of its contents.

    Args:
        content: the whole file, from any source.

    Raises:
        CorruptData: it is not a safetensors file whose tensors lie inside it.
    """
    length = int.from_bytes(content[:8], "little")
    if len(content) < 8 or length > len(content) - 8:
        raise CorruptData("not a safetensors file: its header is longer than the file")
    try:
        header = parse_json(content[8 : 8 + length])
    except DAMAGE as error:
        raise CorruptData(f"not a safetensors file: its header is not JSON: {error}") from error
    if not isinstance(header, dict):
        raise CorruptData("not a safetensors file: its header is not an object")
    data = memoryview(content)[8 + length :]
    return {name: _tensor(name, entry, data) for name, entry in header.items() if name != _METADATA}


def _tensor(name: str, entry: Any, data: memoryview) -> HostArray:
    if not isinstance(entry, dict):
        raise CorruptData(f"{name}: {shown(entry)} does not describe a tensor")
    dtype: Any = entry.get("dtype")
    shape: Any = entry.get("shape")
    span: Any = entry.get("data_offsets")
    if dtype not in ITEM_BYTES:
        raise CorruptData(f"{name}: dtype is {shown(dtype)}, which is unknown")
    if not _ARE_INTEGERS(shape) or any(one < 0 for one in shape):
        raise CorruptData(f"{name}: shape is {shown(shape)}")
    if not _ARE_INTEGERS(span) or len(span) != 2 or not 0 <= span[0] <= span[1] <= len(data):
        raise CorruptData(f"{name}: data_offsets is {shown(span)}, not inside the file")
    if span[1] - span[0] != prod(shape) * ITEM_BYTES[dtype]:
        raise CorruptData(f"{name}: its size does not match its shape")
    return HostArray(dtype, tuple(shape), data[span[0] : span[1]])
