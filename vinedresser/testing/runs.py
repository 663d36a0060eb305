"""Runs without a training: records written by the real writer to a real store."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vinedresser.objects import open_storage
from vinedresser.store.dtypes import dtype_name
from vinedresser.store.reading.reader import Run, open_run
from vinedresser.store.records import ExitCause, ExitRecord, RunRecord, write_record
from vinedresser.store.step_record import HostTensor, Mode, StepRecord
from vinedresser.store.writing.writer import RunWriter

__all__ = ["end_run", "host_tensor", "make_run", "start_run", "step_record"]


def host_tensor(values: NDArray[Any]) -> HostTensor:
    """Return an array as the tensor that a hook passes to the writer.

    Args:
        values: any shape; any dtype of numpy or `ml_dtypes`.
    """
    return HostTensor(dtype_name(values.dtype), values.shape, np.ascontiguousarray(values))


def step_record(
    step: int,
    *,
    mode: Mode = "train",
    tensors: Mapping[str, NDArray[Any]] | None = None,
    scalars: Mapping[str, float] | None = None,
    reductions: Mapping[str, Mapping[str, float]] | None = None,
    at: float | None = None,
) -> StepRecord:
    """Return a record of a step.

    Args:
        step: the optimizer step.
        mode: "train", "eval" or "predict".
        tensors: full tensors by name.
        scalars: scalars by name.
        reductions: scalar statistics by tensor name and reduction.
        at: end of the step, seconds since the epoch; None: now.
    """
    return StepRecord(
        mode,
        step,
        time.time() if at is None else at,
        {name: host_tensor(values) for name, values in (tensors or {}).items()},
        dict(scalars or {}),
        {name: dict(statistics) for name, statistics in (reductions or {}).items()},
    )


def start_run(location: str | os.PathLike[str], **fields: Any) -> RunRecord:
    """Write run.json like a launcher or a hook.

    Args:
        location: the run's directory or URL.
        fields: fields of `RunRecord`, such as ``world_size`` or ``capture``.
    """
    defaults = {"id": uuid.uuid4().hex, "name": "made", "created": time.time()}
    record = RunRecord(**{**defaults, **fields})
    write_record(open_storage(location), record, exclusive=True)
    return record


def end_run(location: str | os.PathLike[str], cause: ExitCause = "finished") -> None:
    """Write exit.json like a supervisor."""
    write_record(open_storage(location), ExitRecord(cause, "", time.time()))


def make_run(location: str | os.PathLike[str], *ranks: Iterable[StepRecord], **fields: Any) -> Run:
    """Create a finished run, and open it.

    Args:
        location: directory or URL for the run, which must not exist.
        ranks: the records of each rank.
        fields: fields of `RunRecord`, such as ``capture``.
    """
    start_run(location, world_size=max(1, len(ranks)), **fields)
    for rank, records in enumerate(ranks):
        writer = RunWriter(open_storage(location), rank)
        for record in records:
            writer.add(record)
        writer.close()
    end_run(location)
    return open_run(location)
