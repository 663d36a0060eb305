"""The order in which streams wait for each other, on a simulated device.

`test_torch_gpu` does the same on a real one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch

from vinedresser.capture.config.capture_config import CaptureConfig
from vinedresser.capture.recording.recording import Recording
from vinedresser.capture.torch_.copies.device_copies import DeviceCopies
from vinedresser.capture.torch_.copies.reductions import begin_transfers, take_later
from vinedresser.store.collections.schedule import SaveConfig
from vinedresser.store.step_record import StepRecord

CPU = torch.device("cpu")


class Queue:
    def __init__(self, name: str, log: list[str]) -> None:
        self._name, self._log = name, log

    def wait_stream(self, other: Queue) -> None:
        self._log.append(f"{self._name} waits for {other._name}")


class Device:
    """Simulates `torch.cuda`: records calls and uses host memory."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.done = False
        self.capturing = False
        self._compute = Queue("compute", self.log)

    def Stream(self, device: torch.device) -> Queue:  # noqa: N802 (torch's name)
        return Queue("side", self.log)

    def current_stream(self, device: torch.device) -> Queue:
        return self._compute

    def is_current_stream_capturing(self) -> bool:
        return self.capturing

    @contextmanager
    def stream(self, stream: Queue) -> Iterator[None]:
        self.log.append(f"in {stream._name}")
        yield

    def Event(self, *, blocking: bool = False) -> Any:  # noqa: N802 (torch's name)
        device = self

        class Event:
            def record(self, stream: Queue) -> None:
                device.log.append(f"event in {stream._name}")

            def query(self) -> bool:
                return device.done

            def synchronize(self) -> None:
                device.log.append("host waits")

        return Event()


class Tensor(torch.Tensor):
    """A tensor whose copies may belong to another stream."""

    def record_stream(self, stream: Any) -> None:
        stream._log.append(f"kept for {stream._name}")


def on_device(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float32).as_subclass(Tensor)


def test_a_staged_copy_blocks_nothing() -> None:
    device = Device()
    copies = DeviceCopies(cuda=device)
    source, target = on_device(1, 2, 3), torch.zeros(3)
    copies.begin(source, target)
    source.zero_()
    assert target.tolist() == [1, 2, 3]
    assert device.log == ["side waits for compute", "in side", "kept for side", "event in side"]


def test_without_room_the_device_waits_but_not_the_host() -> None:
    device = Device()
    copies = DeviceCopies(most_staged=20, cuda=device)
    for _ in range(2):
        copies.begin(on_device(1, 2, 3), torch.zeros(3))
    assert device.log[4:] == ["side waits for compute", "in side", "compute waits for side"]
    # Completed copies make room.
    device.done = True
    device.log.clear()
    copies.begin(on_device(1, 2, 3), torch.zeros(3))
    assert "kept for side" in device.log


def test_a_tensor_beyond_the_limit_is_copied_directly() -> None:
    device = Device()
    DeviceCopies(most_staged=8, cuda=device).begin(on_device(1, 2, 3), torch.zeros(3))
    assert device.log[-1] == "compute waits for side"


def test_the_arrival_follows_all_started_copies() -> None:
    device = Device()
    copies = DeviceCopies(cuda=device)
    assert copies.arrival() == []
    copies.began(CPU)
    (event,) = copies.arrival()
    assert device.log == ["side waits for compute", "event in side"]
    event.synchronize()
    assert device.log[-1] == "host waits"
    # A step without new copies may still wait for earlier ones.
    assert copies.arrival()


def test_no_copy_enters_a_captured_graph() -> None:
    device = Device()
    device.capturing = True
    with pytest.raises(TypeError, match="CUDA graph"):
        DeviceCopies(cuda=device).begin(on_device(1), torch.zeros(1))
    assert device.log == []


def test_statistics_of_several_tensors_arrive_in_one_copy() -> None:
    words = frozenset({"l2", "channel_mean", "nonfinite"})
    tensors = [torch.randn(3, 4), torch.randn(2, 5)]
    taken = [take_later(tensor, words, 0) for tensor in tensors]
    (one,) = begin_transfers(later for _, later in taken if later is not None)
    one.take()
    for tensor, (statistics, _) in zip(tensors, taken, strict=True):
        exact = tensor.double()
        assert statistics.scalars["l2"] == pytest.approx(exact.norm().item())
        np.testing.assert_allclose(statistics.vectors["channel_mean"], exact.mean(1))


def recording() -> Recording:
    due = CaptureConfig.of({"losses": SaveConfig(every=1)}).due(0, "train")
    return Recording("train", 0, due)


def test_a_record_is_completed_where_it_is_settled() -> None:
    made = recording()
    made.awaited.add("losses/late")
    made.add_scalar("losses/here", 1.0)
    assert made.names() == {"losses/late", "losses/here"}

    def complete(record: StepRecord) -> None:
        made.add_scalar("losses/late", 2.0)
        record.scalars = made.scalars()

    made.arriving.append(complete)
    record = made.to_record()
    assert record.scalars == {"losses/here": 1.0}
    assert record.settle() == {}
    assert record.scalars == {"losses/here": 1.0, "losses/late": 2.0}


def test_a_failing_device_loses_its_data_and_is_reported() -> None:
    made = recording()
    made.add_scalar("losses/here", 1.0)
    made.reductions["weights/w"] = {"l2": 0.0}

    def complete(record: StepRecord) -> None:
        raise RuntimeError("device-side assert triggered")

    made.arriving.append(complete)
    record = made.to_record()
    (lost,) = record.settle().values()
    assert "device-side assert" in str(lost)
    assert (record.tensors, record.reductions) == ({}, {})
    assert record.scalars == {"losses/here": 1.0}
