"""Capture what a training does, and read it: hooks, collections, the run store."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vinedresser.capture.collections import Collection as Collection
    from vinedresser.capture.config import CaptureConfig as CaptureConfig
    from vinedresser.capture.finding import Finding as Finding
    from vinedresser.capture.hook import Hook as Hook
    from vinedresser.capture.schedule import SaveConfig as SaveConfig
    from vinedresser.capture.stopping import TrainingStopped as TrainingStopped
    from vinedresser.capture.store.reader import Run as Run
    from vinedresser.capture.store.reader import open_run as open_run
    from vinedresser.capture.store.series import Column as Column
    from vinedresser.capture.store.series import Columns as Columns
    from vinedresser.capture.store.status import Status as Status
    from vinedresser.capture.store.step import Step as Step
    from vinedresser.capture.store.step_record import HostTensor as HostTensor
    from vinedresser.capture.store.step_record import StepRecord as StepRecord
    from vinedresser.capture.store.tensor_view import TensorView as TensorView
    from vinedresser.capture.store.writer import RunWriter as RunWriter

# Where each public name lives. Loaded on first use: a training script needs no reader, and a
# reader no hook.
_HOMES = {
    "CaptureConfig": "config",
    "Collection": "collections",
    "Column": "store.series",
    "Columns": "store.series",
    "Finding": "finding",
    "Hook": "hook",
    "HostTensor": "store.step_record",
    "Run": "store.reader",
    "RunWriter": "store.writer",
    "SaveConfig": "schedule",
    "Status": "store.status",
    "Step": "store.step",
    "StepRecord": "store.step_record",
    "TensorView": "store.tensor_view",
    "TrainingStopped": "stopping",
    "open_run": "store.reader",
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
    return getattr(import_module(f"vinedresser.capture.{_HOMES[name]}"), name)
