"""Capture what a training does, and read it: hooks, collections, the run store."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vinedresser.capture.collections import Collection as Collection
    from vinedresser.capture.config import CaptureConfig as CaptureConfig
    from vinedresser.capture.finding import Finding as Finding
    from vinedresser.capture.hook import Hook as Hook
    from vinedresser.capture.reader import Run as Run
    from vinedresser.capture.reader import open_run as open_run
    from vinedresser.capture.schedule import SaveConfig as SaveConfig
    from vinedresser.capture.series import Column as Column
    from vinedresser.capture.series import Columns as Columns
    from vinedresser.capture.status import Status as Status
    from vinedresser.capture.step import Step as Step
    from vinedresser.capture.step_record import HostTensor as HostTensor
    from vinedresser.capture.step_record import StepRecord as StepRecord
    from vinedresser.capture.stopping import TrainingStopped as TrainingStopped
    from vinedresser.capture.tensor_view import TensorView as TensorView
    from vinedresser.capture.writer import RunWriter as RunWriter

# Where each public name lives. Loaded on first use: a training script needs no reader, and a
# reader no hook.
_HOMES = {
    "CaptureConfig": "config",
    "Collection": "collections",
    "Column": "series",
    "Columns": "series",
    "Finding": "finding",
    "Hook": "hook",
    "HostTensor": "step_record",
    "Run": "reader",
    "RunWriter": "writer",
    "SaveConfig": "schedule",
    "Status": "status",
    "Step": "step",
    "StepRecord": "step_record",
    "TensorView": "tensor_view",
    "TrainingStopped": "stopping",
    "open_run": "reader",
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
