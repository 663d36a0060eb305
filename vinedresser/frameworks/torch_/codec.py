"""Tensors and other values of torch in snapshots."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from vinedresser.frameworks.torch_.environment import present_device
from vinedresser.frameworks.torch_.shards import Shard, is_distributed, shard_place
from vinedresser.frameworks.torch_.views import host_view
from vinedresser.snapshots.arrays import ArrayCodec, array_of
from vinedresser.snapshots.trees import Fields, HostArray, LeftOut, Packed, array_digest
from vinedresser.store.dtypes import SPELLINGS

__all__ = ["TorchCodec", "digest", "host_array", "tensor_of"]

_DTYPES = {name: getattr(torch, word) for word, name in SPELLINGS.items() if hasattr(torch, word)}


class TorchCodec:
    """See `vinedresser.snapshots.trees.Codec`.

    Args:
        on_host: leave tensors that were on another device on the CPU.
    """

    _arrays = ArrayCodec()

    def __init__(self, *, on_host: bool = False) -> None:
        self._on_host = on_host

    def pack(self, value: Any) -> Packed:
        """See `Codec.pack`."""
        if isinstance(value, Tensor):
            return _packed(value)
        if isinstance(value, torch.dtype):
            return "dtype", str(value).removeprefix("torch.")
        if isinstance(value, torch.device):
            return "device", str(value)
        return self._arrays.pack(value)

    def unpack(self, array: HostArray, properties: Mapping[str, Any]) -> Any:
        """See `Codec.unpack`."""
        if properties.get("is") == "array":
            return array_of(array)
        tensor = tensor_of(array)
        strides = properties.get("strides")
        if strides is not None:
            if not _is_dense(array.shape, strides):
                raise ValueError(f"strides {strides} do not fit the shape {list(array.shape)}")
            tensor = torch.empty_strided(array.shape, strides, dtype=tensor.dtype).copy_(tensor)
        if "device" in properties and not self._on_host:
            tensor = tensor.to(present_device(properties["device"]))
        match properties.get("shard"):
            case None:
                return tensor.requires_grad_() if properties.get("grad") is True else tensor
            case [int() as axis, int() as number, int() as parts] if -1 < axis < tensor.ndim:
                return Shard(tensor, axis, number, parts)
            case other:
                raise ValueError(f"{other} is not the place of a shard")

    def constant(self, kind: str, text: str) -> Any:
        """See `Codec.constant`."""
        if kind == "device":
            return present_device(text)
        found = {str(one): one for one in _DTYPES.values()}.get(f"torch.{text}")
        if kind != "dtype" or found is None:
            raise ValueError(f"{text!r} is not a {kind} of torch")
        return found

    def named(self, kind: str, values: Fields) -> Any:
        """See `Codec.named`."""
        if kind == "PackedSequence" and values._fields == PackedSequence._fields:
            return PackedSequence(*values)
        return values


def host_array(tensor: Tensor) -> HostArray:
    """Return the elements of a dense tensor in host memory, copied only if necessary.

    Args:
        tensor: any shape, on any device, of a dtype that safetensors has.
    """
    plain = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
    data = host_view(plain.reshape(-1).view(torch.uint8)).data if plain.numel() else b""
    return HostArray(SPELLINGS[_word(tensor)], tuple(tensor.shape), data)


def tensor_of(array: HostArray) -> Tensor:
    """Return a tensor with a copy of the elements, contiguous and on the CPU.

    Raises:
        ValueError: torch has no such dtype.
    """
    dtype = _DTYPES.get(array.dtype)
    if dtype is None:
        raise ValueError(f"torch has no dtype {array.dtype}")
    if not math.prod(array.shape):
        return torch.empty(array.shape, dtype=dtype)
    return torch.frombuffer(bytearray(array.data), dtype=dtype).reshape(array.shape)


def digest(tensor: Tensor) -> str:
    """Return the SHA-256 of a tensor's dtype, shape and elements, 64 hexadecimal digits.

    Args:
        tensor: any shape and dtype; a sparse one counts as dense, of a distributed one this rank's
            shard.
    """
    if hasattr(tensor, "to_local"):
        tensor = tensor.to_local()
    return array_digest(host_array(tensor.detach().to_dense() if tensor.is_sparse else tensor))


def _packed(tensor: Tensor) -> Packed:
    if is_distributed(tensor):
        return _packed_shard(tensor)
    dense = tensor.layout == torch.strided and not tensor.is_nested and not tensor.is_quantized
    if not dense or tensor.is_meta or _word(tensor) not in SPELLINGS:
        return LeftOut(f"a tensor of {tensor.dtype}, {tensor.layout} cannot be stored")
    properties: dict[str, Any] = {}
    if not tensor.is_contiguous() and _is_dense(tensor.shape, tensor.stride()):
        # Such as channels_last, for which kernels add in another order.
        properties["strides"] = list(tensor.stride())
    if tensor.requires_grad and tensor.is_leaf:
        properties["grad"] = True
    if not tensor.is_cpu:
        properties["device"] = str(tensor.device)
    return host_array(tensor), properties


def _packed_shard(tensor: Any) -> Packed:
    """Pack this rank's part of a distributed tensor."""
    try:
        place = shard_place(tensor)
    except ValueError as error:
        return LeftOut(str(error))
    packed = _packed(tensor.to_local())
    if place is not None and isinstance(packed, tuple) and isinstance(packed[1], dict):
        packed[1]["shard"] = place
    return packed


def _word(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _is_dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Return whether strides are a permutation of those of a contiguous tensor."""
    if len(shape) != len(strides) or not all(type(one) is int and one > 0 for one in strides):
        return False
    expected = 1
    for stride, size in sorted(zip(strides, shape, strict=True)):
        if size != 1:
            if stride != expected:
                return False
            expected *= size
    return True
