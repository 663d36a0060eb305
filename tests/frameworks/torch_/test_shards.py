"""Shards of distributed tensors."""

from __future__ import annotations

import pytest
import torch

from vinedresser.frameworks.torch_.codec import TorchCodec
from vinedresser.frameworks.torch_.shards import Shard, whole
from vinedresser.snapshots.trees import HostArray


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
