"""Capture trainings with hooks, and read the captured runs."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vinedresser.capture.config.capture_config import CaptureConfig as CaptureConfig
    from vinedresser.capture.hook.hook import Hook as Hook
    from vinedresser.capture.recording.stopping import TrainingStopped as TrainingStopped
    from vinedresser.snapshots.settings import SnapshotSettings as SnapshotSettings
    from vinedresser.store.collections.collection import Collection as Collection
    from vinedresser.store.collections.schedule import SaveConfig as SaveConfig
    from vinedresser.store.finding import Finding as Finding
    from vinedresser.store.reading.reader import Run as Run
    from vinedresser.store.reading.reader import open_run as open_run
    from vinedresser.store.reading.series import Column as Column
    from vinedresser.store.reading.series import Columns as Columns
    from vinedresser.store.reading.step import Step as Step
    from vinedresser.store.reading.tensor_view import TensorView as TensorView
    from vinedresser.store.status import Status as Status
    from vinedresser.store.step_record import HostTensor as HostTensor
    from vinedresser.store.step_record import StepRecord as StepRecord
    from vinedresser.store.writing.writer import RunWriter as RunWriter

# The module of each public name, imported on first use: a training script needs no reader, and a
# reader no hook.
_HOMES = {
    "CaptureConfig": "capture.config.capture_config",
    "Collection": "store.collections.collection",
    "Column": "store.reading.series",
    "Columns": "store.reading.series",
    "Finding": "store.finding",
    "Hook": "capture.hook.hook",
    "HostTensor": "store.step_record",
    "Run": "store.reading.reader",
    "RunWriter": "store.writing.writer",
    "SaveConfig": "store.collections.schedule",
    "SnapshotSettings": "snapshots.settings",
    "Status": "store.status",
    "Step": "store.reading.step",
    "StepRecord": "store.step_record",
    "TensorView": "store.reading.tensor_view",
    "TrainingStopped": "capture.recording.stopping",
    "open_run": "store.reading.reader",
}

__all__ = [
    "CaptureConfig",
    "Collection",
    "Column",
    "Columns",
    "Finding",
    "Hook",
    "HostTensor",
    "Run",
    "RunWriter",
    "SaveConfig",
    "SnapshotSettings",
    "Status",
    "Step",
    "StepRecord",
    "TensorView",
    "TrainingStopped",
    "open_run",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"vinedresser.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
