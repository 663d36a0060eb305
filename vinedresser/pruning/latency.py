"""Latency of models, compared under the same load."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vinedresser.pruning.backends import backend_of

__all__ = ["Latency", "Share", "compared_latency", "measured_latency"]

_WARM_UP = 3
# Seconds of a measurement.
_BUDGET = 0.5


# Interval of a share, in percent of the resamples; their number; the parts of a measurement that
# are drawn as a whole, since other load lasts for some turns; and the widest interval that tells
# something, relative to the share.
_LEVEL, _RESAMPLES, _PARTS = 95, 500, 12
_WIDEST = 0.2
# A measurement that is not clear is made longer, each time twofold.
_EXTENSIONS = 3


@dataclass(frozen=True)
class Share:
    """A latency as a share of another one, measured in turns with it.

    Attributes:
        low: lower bound of its 95 % interval; None if the spread is not known.
        high: upper bound.
    """

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def is_clear(self) -> bool:
        """Whether the interval is no wider than a fifth of the share, or not known."""
        if self.low is None or self.high is None:
            return True
        return self.high - self.low <= _WIDEST * self.value

    def __str__(self) -> str:
        """Return the share in percent with its interval, or that it cannot be told."""
        if self.low is None or self.high is None:
            return f"{100 * self.value:.3g} %"
        interval = f"{100 * self.low:.3g} to {100 * self.high:.3g} %"
        return (
            f"{100 * self.value:.3g} % ({interval})"
            if self.is_clear
            else f"cannot tell ({interval})"
        )


@dataclass(frozen=True)
class Latency:
    """Latency of a model before and after a removal, measured in turns on one machine.

    Attributes:
        before: seconds of a forward pass of the model before it.
        after: seconds of a forward pass of the model after it.
        measurements: number of measurements until this removal was found and confirmed.
        low: lower bound of the 95 % interval of the share; None if it was not measured.
        high: upper bound.
    """

    before: float
    after: float
    measurements: int
    low: float | None = None
    high: float | None = None

    @property
    def share(self) -> float:
        """The latency after the removal, as a share of the one before it."""
        return self.after / self.before

    @property
    def shown(self) -> Share:
        """The share with its interval."""
        return Share(self.share, self.low, self.high)


def compared_latency(model: Any, original: Any, example: Any, *, turns: int = 33) -> Latency:
    """Measure the time of a forward pass of a model in turns with the unpruned one.

    The interval is that of a bootstrap over parts of the measurement (block bootstrap, Künsch
    1989). As long as it is wider than a fifth of the share, the measurement is made longer, up to
    eightfold.

    Args:
        model: the model after a removal.
        original: the model before it.
        example: see `measured_latency`.
        turns: see `measured_latency`.

    Raises:
        PruningError: see `measured_latency`.
    """
    timers = _timers((original, model), example)
    times = np.zeros((2, 0))
    for extension in range(_EXTENSIONS + 1):
        budget = _BUDGET * 2 ** max(0, extension - 1)
        times = np.concatenate([times, _in_turns(timers, turns, budget)], axis=1)
        before, after = np.quantile(times, 0.25, axis=1).tolist()
        low, high = _interval(times)
        found = Latency(before, after, 1, low, high)
        if found.shown.is_clear:
            break
    return found


def _interval(times: NDArray[np.float64]) -> tuple[float, float]:
    """Return the interval of the ratio of lower quartiles.

    Args:
        times: float64 [2, turns]: seconds before and after.
    """
    rng = np.random.default_rng(0)
    parts = np.array_split(np.arange(times.shape[1]), _PARTS)
    drawn = rng.integers(_PARTS, size=(_RESAMPLES, _PARTS))
    ratios = []
    for chosen in drawn:
        before, after = np.quantile(
            times[:, np.concatenate([parts[one] for one in chosen])], 0.25, axis=1
        )
        ratios.append(after / before)
    low, high = np.percentile(ratios, [(100 - _LEVEL) / 2, (100 + _LEVEL) / 2]).tolist()
    return low, high


def measured_latency(
    models: Sequence[Any], example: Any, *, turns: int = 11, budget: float = _BUDGET
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
    times = _in_turns(_timers(models, example), turns, budget)
    return tuple(np.quantile(times, 0.25, axis=1).tolist())


def _timers(models: Sequence[Any], example: Any) -> list[Callable[[], float]]:
    """Return functions that time a pass of each model, warmed up."""
    timers = [backend_of(model).forward_timer(model, example) for model in models]
    for timer in timers:
        # The first passes allocate memory, choose algorithms and trace graphs.
        for _ in range(_WARM_UP):
            timer()
    return timers


def _in_turns(
    timers: Sequence[Callable[[], float]], turns: int, budget: float
) -> NDArray[np.float64]:
    """Return float64 [timers, turns]: seconds of each pass."""
    times: list[list[float]] = [[] for _ in timers]
    end = time.perf_counter() + budget
    turn = 0
    while turn < turns or time.perf_counter() < end:
        for place in range(len(timers)):
            chosen = (turn + place) % len(timers)
            times[chosen].append(timers[chosen]())
        turn += 1
    return np.array(times)
