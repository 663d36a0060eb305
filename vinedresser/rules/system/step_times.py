"""Signal: durations of the train steps, in blocks."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from vinedresser.rules.need import Need
from vinedresser.rules.signals.base import Signal
from vinedresser.rules.system.input_stages import PREFIX
from vinedresser.store.reading.step import Step

# Caches fill, kernels are compiled and workers start in the first steps.
_WARM_UP = 20


class StepTimes(Signal):
    """Durations of rank 0's train steps, in blocks, without the first 20 steps.

    Args:
        block: steps per block.

    Attributes:
        full: whether the last step completed a block.
        steps: step numbers of the last full block, int64 [block].
        seconds: step durations in seconds, float64 [block].
        waits: seconds before the forward pass, float64 [block]; NaN if unknown.
        stages: mean seconds per step of each stage of data sets (`STAGES`), by its name without
            prefix; {} without a data set.
    """

    needs = (Need("timing", required=False),)

    def __init__(self, block: int) -> None:
        self.block = block
        self.full = False
        self.steps: NDArray[np.int64] = np.zeros(0, np.int64)
        self.seconds: NDArray[np.float64] = np.zeros(0)
        self.waits: NDArray[np.float64] = np.zeros(0)
        self.stages: dict[str, float] = {}
        self._stages: dict[str, float] = {}
        self._seen = 0
        self._pending: list[tuple[int, float, float]] = []

    def update(self, step: Step) -> None:
        """See `Signal.update`."""
        if step.rank != 0:
            return
        self.full = False
        seconds = step.scalars.get("timing/step")
        if step.mode != "train" or seconds is None or not math.isfinite(seconds):
            return
        self._seen += 1
        if self._seen <= _WARM_UP:
            return
        self._pending.append((step.step, seconds, step.scalars.get("timing/wait", math.nan)))
        for name, value in step.scalars.items():
            if name.startswith(PREFIX):
                stage = name.removeprefix(PREFIX)
                self._stages[stage] = self._stages.get(stage, 0.0) + value / self.block
        if len(self._pending) < self.block:
            return
        steps, took, waited = zip(*self._pending, strict=True)
        self.steps, self.seconds, self.waits = np.array(steps), np.array(took), np.array(waited)
        self.stages, self._stages, self._pending = self._stages, {}, []
        self.full = True
