"""What a hook hands to the writer when a step has ended."""

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
    """A tensor in host memory that nobody will change any more.

    Attributes:
        dtype: its type in safetensors' spelling, such as "F32", "BF16", "I64", "BOOL".
        shape: its shape.
        data: its elements, best C-contiguous, else they are copied; of any numpy type of the same
            item size, since numpy has no bfloat16 or float8 of its own.
    """

    dtype: str
    shape: tuple[int, ...]
    data: NDArray[np.generic]


@dataclass
class StepRecord:
    """Everything captured in one step of one mode on one rank.

    Attributes:
        mode: "train", "eval" or "predict".
        step: of a train step, its number from 0; of an evaluation or prediction, the number of
            optimizer steps done before it, so that all modes share one axis.
        time: when the step ended, seconds since the epoch.
        tensors: full tensors by name; what is here under several names is stored once.
        scalars: scalars by name (losses, metrics).
        reductions: for a tensor's name, its statistics by the reduction's name.
        deferred: for a tensor's name, statistics that are still to be computed, or are several
            numbers each.
        arriving: each waits for what is still being copied from a device, or reads what was only
            written down, and completes the record.
        arriving_bytes: of host memory that these hold until then.
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
        """Return the host memory of its tensors and of what is still to come, bytes; each once."""
        tensors = {id(tensor.data): tensor.data.nbytes for tensor in self.tensors.values()}
        deferred = {id(one): one.nbytes for one in self.deferred.values()}
        return sum(tensors.values()) + sum(deferred.values()) + self.arriving_bytes

    def settle(self) -> dict[str, Exception]:
        """Complete what is deferred: numbers become reductions, vectors become tensors.

        Returns:
            Why a statistic could not be computed, by what it is; all others are there.
        """
        lost: dict[str, Exception] = {}
        arriving, self.arriving = self.arriving, []
        try:
            for complete in arriving:
                complete(self)
        except RuntimeError as failure:
            # The device has failed: what it was to send is not here.
            for part in (self.tensors, self.reductions, self.deferred):
                part.clear()
            lost["all"] = failure
        deferred, self.deferred = self.deferred, {}
        # What one tensor has under several names is stored once.
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
    """A train step of which numbers alone were captured, as most are: less than a record to make.

    Attributes:
        step: see `StepRecord`.
        time: see there.
        scalars: see there; nobody will change them any more.
    """

    step: int
    time: float
    scalars: dict[str, float]

    def to_record(self) -> StepRecord:
        """Return it as a record."""
        return StepRecord("train", self.step, self.time, scalars=self.scalars)
