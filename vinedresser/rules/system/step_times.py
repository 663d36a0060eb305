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
        resumed: whether an evaluation came before a step, bool [block]: what surrounds it, such as
            the restart of data loader workers at the end of an epoch, is part of that step.
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
        self.resumed: NDArray[np.bool_] = np.zeros(0, np.bool_)
        self.waits: NDArray[np.float64] = np.zeros(0)
        self.stages: dict[str, float] = {}
        self._stages: dict[str, float] = {}
        self._seen = 0
        self._pending: list[tuple[int, float, float, bool]] = []
        self._evaluated = False

    def update(self, step: Step) -> None:
        """See `Signal.update`."""
        if step.rank != 0:
            return
        self.full = False
        seconds = step.scalars.get("timing/step")
        self._evaluated |= step.mode == "eval"
        if step.mode != "train" or seconds is None or not math.isfinite(seconds):
            return
        resumed, self._evaluated = self._evaluated, False
        self._seen += 1
        if self._seen <= _WARM_UP:
            return
        wait = step.scalars.get("timing/wait", math.nan)
        self._pending.append((step.step, seconds, wait, resumed))
        for name, value in step.scalars.items():
            if name.startswith(PREFIX):
                stage = name.removeprefix(PREFIX)
                self._stages[stage] = self._stages.get(stage, 0.0) + value / self.block
        if len(self._pending) < self.block:
            return
        steps, took, waited, resumptions = zip(*self._pending, strict=True)
        self.steps, self.seconds, self.waits = np.array(steps), np.array(took), np.array(waited)
        self.resumed = np.array(resumptions)
        self.stages, self._stages, self._pending = self._stages, {}, []
        self.full = True
