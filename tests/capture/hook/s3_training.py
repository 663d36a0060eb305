"""A loop with known values, for tests that kill it.

Usage: python tests/capture/hook/s3_training.py URL STEPS PAUSE.

It says on stdout which step has ended. STEPS 0: for ever.
"""

from __future__ import annotations

import itertools
import sys
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vinedresser.capture import Hook
from vinedresser.store.collections.schedule import SaveConfig

__all__ = ["batch", "check_steps"]


def batch(step: int) -> NDArray[np.float32]:
    """Return the 1 MiB array captured at a step."""
    return np.random.default_rng(step).standard_normal((256, 1024), np.float32)


def check_steps(run: Any) -> int:
    """Check all captured steps of a run; return their number."""
    steps = run.steps().tolist()
    assert steps == list(range(len(steps)))
    for step in steps:
        assert np.array_equal(run.tensor("inputs/batch").value(step), batch(step))
    assert run.problems == []
    return len(steps)


def _main(url: str, steps: int, pause: float) -> None:
    hook = Hook(url, collections={"inputs": SaveConfig(every=1)})
    for step in itertools.islice(itertools.count(), steps or None):
        hook.step(inputs=batch(step), loss=step / 2)
        print(step, flush=True)  # noqa: T201 (this is the answer)
        time.sleep(pause)
    hook.close()


if __name__ == "__main__":
    _main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
