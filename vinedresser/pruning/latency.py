"""Latency of models, compared under the same load."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import quantiles
from typing import Any

from vinedresser.pruning.backends import backend_of

__all__ = ["Latency", "measured_latency"]

_WARM_UP = 3


@dataclass(frozen=True)
class Latency:
    """Latency of a model before and after a removal, on one machine.

    Attributes:
        before: seconds of a forward pass of the model before it.
        after: seconds of a forward pass of the model after it.
        measurements: number of measurements until this removal was found and confirmed.
    """

    before: float
    after: float
    measurements: int

    @property
    def share(self) -> float:
        """The latency after the removal, as a share of the one before it."""
        return self.after / self.before


def measured_latency(
    models: Sequence[Any], example: Any, *, turns: int = 11, budget: float = 0.5
) -> tuple[float, ...]:
    """Measure the time of one forward pass of models, in evaluation mode and without gradients.

    The models take turns in changing order, so that other load and the clock of the processor
    affect all of them equally: ratios are more reliable than the times themselves. On a GPU, a pass
    ends when its results are there. The models stay as they are, and so does the random state.

    Args:
        models: torch.nn.Module or keras.Model, on the device of the example; Keras models run
            as graphs with the TensorFlow backend.
        example: arguments for each of them; see `vinedresser.pruning.prune`.
        turns: least number of turns, at least 2.
        budget: seconds to spend on turns; there are more if there is time.

    Returns:
        The lower quartile of each model's times, in seconds. Other load only adds to times: on a
        busy machine, ratios of lower quartiles vary a quarter as much as those of medians.

    Raises:
        PruningError: a model is not supported, or does not run on the example.
    """
    timers = [backend_of(model).forward_timer(model, example) for model in models]
    for timer in timers:
        # The first passes allocate memory, choose algorithms and trace graphs.
        for _ in range(_WARM_UP):
            timer()
    times: list[list[float]] = [[] for _ in timers]
    end = time.perf_counter() + budget
    turn = 0
    while turn < turns or time.perf_counter() < end:
        for place in range(len(timers)):
            chosen = (turn + place) % len(timers)
            times[chosen].append(timers[chosen]())
        turn += 1
    return tuple(quantiles(one, n=4, method="inclusive")[0] for one in times)
