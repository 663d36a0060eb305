"""Nested values of a step are stored and read back exactly, and nothing else is built."""

from __future__ import annotations

import io
import json
import math
from collections import namedtuple
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from vinedresser.errors import CorruptData
from vinedresser.frameworks.torch_.codec import TorchCodec
from vinedresser.snapshots.tensor_file import file_parts, read_tensors
from vinedresser.snapshots.trees import HostArray, LeftOut, Packer, unpack

Pair = namedtuple("Pair", ["first", "second"])


@dataclass
class Batch:
    images: torch.Tensor
    names: list[str]


def again(value: Any) -> tuple[Any, Packer]:
    """Return a value after a round trip through JSON and a safetensors file."""
    packer = Packer(TorchCodec())
    tree = json.loads(json.dumps(packer.pack(value, "it"), allow_nan=False))
    tensors = read_tensors(b"".join(bytes(part) for part in file_parts(packer.tensors)))
    return unpack(tree, tensors.__getitem__, TorchCodec()), packer


def test_plain_values_are_the_same() -> None:
    value = {
        "a": [1, True, None, "text", 0.1, (2, {"b": {3}})],
        5: -0.0,
        "big": 2**70,
        (1, 2): torch.float16,
        "where": torch.device("cpu"),
    }
    found, packer = again(value)
    assert found == value
    assert math.copysign(1, found[5]) == -1
    assert packer.left_out == {}


def test_floats_that_json_lacks() -> None:
    found, _ = again([math.inf, -math.inf, math.nan, 5e-324])
    assert found[:2] == [math.inf, -math.inf]
    assert math.isnan(found[2])
    assert found[3] == 5e-324


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(6.0).reshape(2, 3),
        torch.tensor(3.5),
        torch.zeros(0, 4, dtype=torch.int64),
        torch.tensor([[True], [False]]),
        torch.tensor([1.0, math.nan, math.inf], dtype=torch.bfloat16),
        torch.randn(3, dtype=torch.complex64).conj(),
        torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        torch.arange(12).reshape(3, 4).t()[1:],
    ],
)
def test_tensors_keep_bits_and_layout(tensor: torch.Tensor) -> None:
    found, _ = again(tensor)
    assert found.dtype == tensor.dtype
    assert torch.equal(found.nan_to_num(7), tensor.nan_to_num(7))
    if tensor.is_contiguous(memory_format=torch.channels_last) and tensor.dim() == 4:
        assert found.stride() == tensor.stride()


def test_arrays_named_values_and_packed_sequences() -> None:
    array = np.arange(4, dtype=np.int16).reshape(2, 2)
    packed = pack_sequence([torch.ones(2), torch.zeros(1)])
    found, _ = again([Pair(1, array), Batch(torch.ones(1), ["x"]), packed])
    assert (found[0].first, found[1].names) == (1, ["x"])
    np.testing.assert_array_equal(found[0][1], array)
    assert isinstance(found[2], PackedSequence)
    assert torch.equal(found[2].data, packed.data)
    with pytest.raises(AttributeError, match="has no third; it has first, second"):
        _ = found[0].third


def test_a_tensor_with_two_places_is_stored_once() -> None:
    tensor = torch.ones(3)
    found, packer = again({"one": tensor, "other": (tensor,)})
    assert list(packer.tensors) == ["it.one"]
    assert torch.equal(found["other"][0], found["one"])


def test_what_cannot_be_stored_is_left_out_by_name() -> None:
    found, packer = again({"x": torch.ones(1), "file": io.StringIO(), "more": [iter([1])]})
    assert found["file"] == LeftOut("a _io.StringIO cannot be stored")
    assert list(packer.left_out) == ["it.file", "it.more.0"]


def test_values_that_look_like_secrets_are_masked() -> None:
    found, _ = again({"api_key": "sk-123456789", "name": "x"})
    assert found == {"api_key": "***", "name": "x"}


@pytest.mark.parametrize(
    "tree",
    [
        [],
        {},
        {"call": ["os.system", "true"]},
        {"tensor": "missing"},
        {"float": "0x1p9999"},
        {"float": 3},
        {"constant": ["dtype", "nn"]},
        {"constant": ["module", "os"]},
        {"constant": ["dtype"]},
        {"dict": [[{"list": []}, 1]]},
        {"dict": [1]},
        {"tensor": "it", "strides": [1, 1]},
        {"tensor": "it", "strides": [10**9, 1]},
        {"fields": [["a"]]},
    ],
)
def test_other_trees_are_refused(tree: Any) -> None:
    packer = Packer(TorchCodec())
    packer.pack(torch.ones(2, 2), "it")
    with pytest.raises(CorruptData):
        unpack(tree, packer.tensors.__getitem__, TorchCodec())


def test_deep_trees_are_refused() -> None:
    tree: Any = 1
    for _ in range(300):
        tree = {"list": [tree]}
    with pytest.raises(CorruptData, match="not a stored value"):
        unpack(tree, dict[str, HostArray]().__getitem__, TorchCodec())
