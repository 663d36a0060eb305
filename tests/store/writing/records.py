"""Records shared by the tests of the writer."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from vinedresser.objects import LocalStorage
from vinedresser.objects.base import Buffer
from vinedresser.store.records import (
    Heartbeat,
    heartbeat_key,
    read_record,
)
from vinedresser.store.step_record import StepRecord
from vinedresser.testing.runs import step_record

__all__ = ["GatedStorage", "heartbeat", "index_records", "record_of", "wait_for"]


def wait_for(condition: Callable[[], object], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def record_of(step: int, size: int = 1000) -> StepRecord:
    """Return a record with a tensor of some size in bytes."""
    return step_record(step, tensors={"x": np.full(size, step % 256, np.uint8)})


def index_records(storage: LocalStorage, rank: int = 0) -> list[dict[str, Any]]:
    keys = storage.list(f"index/{rank}/")
    return [json.loads(storage.get(key))["record"] for key in keys]


def heartbeat(storage: LocalStorage, rank: int = 0) -> Heartbeat:
    beat = read_record(storage, Heartbeat, key=heartbeat_key(rank))
    assert beat is not None
    return beat


class GatedStorage(LocalStorage):
    """A local storage whose puts of segments wait until they are let through."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.gate = threading.Event()
        self.reached = threading.Event()

    def put(self, key: str, parts: Iterable[Buffer], *, exclusive: bool = False) -> None:
        if key.startswith("segments/"):
            self.reached.set()
            assert self.gate.wait(30)
        super().put(key, parts, exclusive=exclusive)
