"""What a recipe prints at its end: its losses, a digest of its weights, and its times."""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Iterable
from statistics import median
from typing import Any

import numpy as np

__all__ = ["Journal", "steps"]

# Steps that are not timed: the first ones of a training load libraries.
_WARM_UP = 20


def steps(default: int) -> int:
    """Return the number of steps: the first argument of the script, or a default."""
    return int(sys.argv[1]) if len(sys.argv) > 1 else default


class Journal:
    """Losses and times of a training."""

    def __init__(self) -> None:
        self._losses: dict[str, list[float]] = {}
        self._evaluations: list[float] = []
        self._steps = 0
        self._began = self._now()
        # CPU seconds of each timed step, and of the process at the end of the last one.
        self._each: list[float] = []
        self._last = self._began[1]

    def step(self, **losses: float) -> None:
        """Note the losses of a step."""
        for name, value in losses.items():
            self._losses.setdefault(name, []).append(float(value))
        self._steps += 1
        if self._steps == _WARM_UP:
            self._began = self._now()
        now = time.process_time()
        if self._steps > _WARM_UP:
            self._each.append(now - self._last)
        self._last = now

    def evaluated(self, loss: float) -> None:
        """Note the loss of an evaluation."""
        self._evaluations.append(float(loss))

    def finish(self, weights: Iterable[Any]) -> None:
        """Print everything as one line of JSON.

        Args:
            weights: final weights, tensors or arrays or bytes.
        """
        wall, cpu = (now - began for now, began in zip(self._now(), self._began, strict=True))
        digest = hashlib.sha256()
        for weight in weights:
            digest.update(weight if isinstance(weight, bytes) else np.asarray(weight).tobytes())
        timed = max(self._steps - _WARM_UP, 1) if self._steps > _WARM_UP else self._steps
        printed = {
            "losses": self._losses,
            "evaluations": self._evaluations,
            "digest": digest.hexdigest(),
            "wall": wall / timed,
            "cpu": cpu / timed,
            "usual": median(self._each) if self._each else cpu / timed,
        }
        print(json.dumps(printed))

    @staticmethod
    def _now() -> tuple[float, float]:
        return time.perf_counter(), time.process_time()
