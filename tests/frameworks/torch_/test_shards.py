"""Shards of distributed tensors."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor import Shard as Sharded
from torch.testing._internal.distributed.fake_pg import FakeStore

from vinedresser.frameworks.torch_.codec import TorchCodec
from vinedresser.frameworks.torch_.shards import Shard, whole
from vinedresser.snapshots.trees import HostArray, LeftOut


@pytest.fixture
def rank_1_of_4() -> Iterator[None]:
    """Make this process one of several, without the others."""
    dist.init_process_group("fake", rank=1, world_size=4, store=FakeStore())
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("rank_1_of_4")
def test_a_shard_is_stored_if_all_ranks_have_one() -> None:
    part, inner = torch.ones(2), init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))["b"]
    packed = TorchCodec().pack(
        DTensor.from_local(part, init_device_mesh("cpu", (4,)), [Sharded(0)])
    )
    assert isinstance(packed, tuple)
    assert packed[1] == {"shard": [0, 1, 4]}
    # As of one stage of a pipeline: the other ranks have other parameters.
    assert TorchCodec().pack(DTensor.from_local(part, inner, [Sharded(0)])) == LeftOut(
        "a tensor that is distributed as (S(0)) among 2 of 4 ranks cannot be stored"
    )
    packed = TorchCodec().pack(DTensor.from_local(part, inner, [Replicate()], run_check=False))
    assert isinstance(packed, tuple)
    assert packed[1] == {}


def test_the_whole_is_on_the_device_of_the_first() -> None:
    # As on cuda:1 and cuda:0.
    first = Shard(torch.ones(2, 3, device="meta"), 0, 1, 2)
    other = Shard(torch.ones(3, 3), 0, 0, 2)
    joined = whole([{"weight": [first]}, {"weight": [other]}])["weight"][0]
    assert (joined.device.type, joined.shape) == ("meta", (5, 3))


@pytest.mark.parametrize("numbers", [(0,), (0, 0), (0, 2), (0, 1, 2)])
def test_what_is_not_all_shards_is_refused(numbers: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="not the 2 shards of a tensor"):
        whole([Shard(torch.ones(1), 0, number, 2) for number in numbers])


def test_a_peer_needs_no_device_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    array = HostArray("F32", (1,), bytes(4))
    assert TorchCodec(on_host=True).unpack(array, {"device": "cuda:1"}).is_cpu
    with pytest.raises(ValueError, match="there is no device cuda:1"):
        TorchCodec().unpack(array, {"device": "cuda:1"})
