"""Host memory is reused, but never shared."""

from __future__ import annotations

import gc

import numpy as np
import pytest
import torch

from vinedresser.capture.torch_.copies.buffers import BufferPool


def test_a_buffer_comes_back_for_a_tensor_of_its_kind() -> None:
    pool = BufferPool()
    first = pool.copy(torch.ones(3, 4))
    second = pool.copy(torch.zeros(3, 4))
    assert first.data is not second.data
    pool.release([first])
    assert pool.copy(torch.full((3, 4), 2.0)).data is first.data
    assert (first.data == 2).all()
    assert pool.copy(torch.zeros(4, 3)).data is not first.data


def test_a_buffer_that_is_released_twice_is_handed_out_once() -> None:
    pool = BufferPool()
    host = pool.copy(torch.ones(5))
    pool.release([host, host])
    pool.release([host])
    assert pool.copy(torch.ones(5)).data is not pool.copy(torch.ones(5)).data


@pytest.mark.thorough
def test_copies_create_no_objects_for_the_garbage_collector() -> None:
    pool, tensors = BufferPool(), [torch.zeros(3, 4)] * 500
    pool.release([pool.copy(tensor) for tensor in tensors])
    held: list[object] = [None] * len(tensors)
    gc.collect()
    gc.disable()
    try:
        before = len(gc.get_objects())
        for place, tensor in enumerate(tensors):
            held[place] = pool.copy(tensor)
        came = len(gc.get_objects()) - before
    finally:
        gc.enable()
    assert came < len(tensors) / 10


def test_idle_memory_is_bounded_and_the_least_used_kind_goes_first() -> None:
    pool = BufferPool(most_idle=1000)
    old, new = pool.copy(torch.zeros(100)), pool.copy(torch.zeros(2, 100))
    pool.release([old])
    pool.release([new])
    assert pool.copy(torch.zeros(2, 100)).data is new.data
    assert pool.copy(torch.zeros(100)).data is not old.data


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(12.0).reshape(3, 4).t(),
        torch.randn(2, 3, 4, 4).contiguous(memory_format=torch.channels_last),
        torch.tensor(True),
        torch.empty(0, 3),
        torch.arange(5, dtype=torch.int16),
    ],
    ids=["transposed", "channels_last", "zero_dimensional", "empty", "int16"],
)
def test_a_copy_is_in_row_major_order(tensor: torch.Tensor) -> None:
    host = BufferPool().copy(tensor)
    assert host.shape == tuple(tensor.shape)
    assert host.data.flags.c_contiguous
    np.testing.assert_array_equal(host.data, tensor.numpy())
