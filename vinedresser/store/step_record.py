"""The record of one step, which a hook passes to the writer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vinedresser.store.reductions import Statistics, derived_name

__all__ = ["MODES", "HostTensor", "Mode", "ScalarStep", "StepRecord"]

Mode = Literal["train", "eval", "predict"]
MODES: tuple[Mode, ...] = ("train", "eval", "predict")


class HostTensor(NamedTuple):
    """A tensor in host memory that is no longer modified.

    Attributes:
        dtype: element type as spelled by safetensors, such as "F32", "BF16", "I64", "BOOL".
        data: the elements, in any numpy dtype of the same item size (numpy has no bfloat16 or
            float8). Copied if they are not C-contiguous.
    """

    dtype: str
    shape: tuple[int, ...]
    data: NDArray[np.generic]


@dataclass
class StepRecord:
    """Everything captured in one step of one mode on one rank.

    Attributes:
        mode: "train", "eval" or "predict".
        step: number of a train step, from 0; for an evaluation or prediction, the number of
            optimizer steps before it, so that all modes share one axis.
        time: end of the step, seconds since the epoch.
        tensors: full tensors by name; a tensor with several names is stored once.
        scalars: scalars by name (losses, metrics).
        reductions: scalar statistics by tensor name and reduction.
        deferred: pending or vector statistics by tensor name.
        arriving: functions that complete the record: each waits for a copy from a device, or reads
            data that was only noted.
        arriving_bytes: host memory held by `arriving`.
    """

    mode: Mode
    step: int
    time: float
    tensors: dict[str, HostTensor] = field(default_factory=dict)
    scalars: dict[str, float] = field(default_factory=dict)
    reductions: dict[str, dict[str, float]] = field(default_factory=dict)
    deferred: dict[str, Statistics] = field(default_factory=dict)
    arriving: list[Callable[[StepRecord], None]] = field(default_factory=list)
    arriving_bytes: int = 0

    def nbytes(self) -> int:
        """Return the host memory of its tensors and pending parts in bytes, each counted once."""
        tensors = {id(tensor.data): tensor.data.nbytes for tensor in self.tensors.values()}
        deferred = {id(one): one.nbytes for one in self.deferred.values()}
        return sum(tensors.values()) + sum(deferred.values()) + self.arriving_bytes

    def settle(self) -> dict[str, Exception]:
        """Complete the record: scalar statistics become reductions, vectors become tensors.

        Returns:
            The errors of statistics that could not be computed, by their description.
        """
        lost: dict[str, Exception] = {}
        arriving, self.arriving = self.arriving, []
        try:
            for complete in arriving:
                complete(self)
        except RuntimeError as failure:
            # The device has failed, and its data did not arrive.
            for part in (self.tensors, self.reductions, self.deferred):
                part.clear()
            lost["all"] = failure
        deferred, self.deferred = self.deferred, {}
        # A tensor with several names is stored once.
        hosts: dict[int, HostTensor] = {}
        for name, statistics in deferred.items():
            for word, why in statistics.settle().items():
                lost[f"{word} of {name}"] = why
            if statistics.scalars:
                self.reductions[name] = statistics.scalars
            for word, vector in statistics.vectors.items():
                host = HostTensor("F64", vector.shape, np.ascontiguousarray(vector))
                self.tensors[derived_name(name, word)] = hosts.setdefault(id(vector), host)
        return lost


class ScalarStep(NamedTuple):
    """A train step with only scalars, the most common kind; cheaper to create than a `StepRecord`.

    Attributes:
        step: see `StepRecord`.
        time: see `StepRecord`.
        scalars: see `StepRecord`; no longer modified.
    """

    step: int
    time: float
    scalars: dict[str, float]

    def to_record(self) -> StepRecord:
        """Return the step as a `StepRecord`."""
        return StepRecord("train", self.step, self.time, scalars=self.scalars)
