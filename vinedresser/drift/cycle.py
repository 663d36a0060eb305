"""A cycle of requests, such as a week: given, or found in the order of rows."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from vinedresser.drift.evidence.bins import BINS
from vinedresser.drift.evidence.dependence import SCORES

__all__ = ["Cycle", "find_cycle"]

# Of a cycle that is looked for: its rows at least, and how often the baseline has it.
_LEAST_ROWS, _LEAST_CYCLES = 32, 4
# Rows, the last ones, and columns of scores in which a cycle is looked for.
_MOST_ROWS, _MOST_SCORES = 1 << 16, 8
# Numbers of phases: of a week and of a day, these are days, hours, or equal parts of them.
_PHASES = (168, 84, 56, 28, 14, 7)
# Rows of a sample in each of them, on average and at least.
_ROWS_PER_PHASE, _LEAST_PER_PHASE = 20, 8
# Of a cycle that is looked for, phases, lengths that are tried, and how often they are shuffled.
_PARTS, _CANDIDATES, _SHUFFLES = 28, 6, 100
# Standard errors that are no chance, though the best of many lengths is taken; of a cycle of fewer
# rows than that; and if rows are known to depend on each other over many rows.
_ERRORS, _SHORT, _ERRORS_SHORT, _ERRORS_DEPENDENT = 5.5, 400, 8.0, 2.5
# Share of what the best length explains that a shorter one has to explain to be the cycle.
_AS_MUCH = 0.95


@dataclass(frozen=True)
class Cycle:
    """A cycle of requests.

    With times, requests are compared with the rows of the baseline in the same phase. Without, it
    is not known where in a cycle requests are, as the number of requests in it varies: there is one
    phase, and only whole cycles are compared.

    Args:
        length: seconds, or rows.
        phases: number of phases of equal length.
        timed: whether it is of times.
    """

    length: float
    phases: int
    timed: bool

    @property
    def whole(self) -> float:
        """Rows of a cycle of which only whole ones are compared; 0.0 if each row is."""
        return 0.0 if self.timed else self.length

    def phase(self, at: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the phases of times, or of rows, int64, of the shape of `at`."""
        share = np.mod(at, self.length) / self.length
        return np.minimum((share * self.phases).astype(np.int64), self.phases - 1)

    def with_phases(self, *samples: NDArray[np.float64]) -> Cycle:
        """Return it with as many phases as samples of a baseline allow, at least 7.

        Args:
            samples: float64 [rows], times of the rows of each.
        """
        for phases in _PHASES:
            found = replace(self, phases=phases)
            counts = [np.bincount(found.phase(sample), minlength=phases) for sample in samples]
            if all(
                count.mean() >= _ROWS_PER_PHASE and count.min() >= _LEAST_PER_PHASE
                for count in counts
            ):
                return found
        return found


def find_cycle(bins: NDArray[np.uint8], *, dependent: bool = False) -> Cycle | None:
    """Look for a cycle in the order of the rows of a baseline.

    Args:
        bins: uint8 [rows, streams], less than BINS, of the rows among themselves.
        dependent: whether rows are known to depend on each other over many rows.

    Returns:
        The cycle, of one phase; None if the rows do not repeat themselves.
    """
    known = bins[-_MOST_ROWS:]
    # Location and spread; constant ones tell nothing.
    assert known.max(initial=0) < BINS
    scores = SCORES[:2][:, known].transpose(1, 0, 2).reshape(len(known), -1).astype(np.float64)
    scores = scores[:, scores.std(0) > 1e-3]
    if scores.shape[1] == 0 or len(known) < _LEAST_CYCLES * _LEAST_ROWS:
        return None
    scores = (scores - scores.mean(0)) / scores.std(0)
    random = np.random.default_rng(0)
    found = []
    for length in _candidates(scores):
        size, error = _repeated(scores, length, random)
        errors = _ERRORS_DEPENDENT if dependent else _ERRORS
        if size > (errors if length >= _SHORT else _ERRORS_SHORT) * error:
            found.append((length, size))
    if not found:
        return None
    most = max(size for _, size in found)
    length = min(length for length, size in found if size > _AS_MUCH * most)
    return Cycle(float(length), 1, timed=False)


def _candidates(scores: NDArray[np.float64]) -> list[int]:
    """Return numbers of rows after which rows are alike, more than after half as many.

    Args:
        scores: float64 [rows, scores], of mean 0 and variance 1.
    """
    rows = len(scores)
    spectrum = np.fft.rfft(scores, 2 * rows, axis=0)
    lags = np.fft.irfft((spectrum.real**2 + spectrum.imag**2).sum(1))[:rows]
    sums = np.concatenate([[0.0], np.cumsum(lags / (rows - np.arange(rows)))])
    length = np.arange(_LEAST_ROWS, rows // _LEAST_CYCLES + 1)
    # Phases last a while, so neighbouring lags count, too.
    half = length // 24
    contrast = np.zeros(len(length))
    for multiple in range(1, _LEAST_CYCLES):
        for sign, times in ((1, multiple), (-1, multiple - 0.5)):
            centre = np.rint(times * length).astype(int)
            last = np.minimum(centre + half + 1, rows)
            contrast += sign * (sums[last] - sums[centre - half]) / (last - centre + half)
    found: list[int] = []
    while len(found) < _CANDIDATES and contrast.max() > 0:
        best = int(length[contrast.argmax()])
        found.append(best)
        contrast[abs(length - best) <= best / 10] = 0
    return found


def _repeated(
    scores: NDArray[np.float64], length: int, random: np.random.Generator
) -> tuple[float, float]:
    """Return how much repeats itself after a number of rows, and the standard error of chance.

    By chance is: if each cycle began at another phase. So it does not matter how much rows depend
    on each other within a cycle.
    """
    profiles = _profiles(scores, length)
    profiles -= profiles.mean(1, keepdims=True)
    cycle, phase = np.arange(len(profiles))[:, None], np.arange(_PARTS)
    shuffled = []
    for _ in range(_SHUFFLES):
        begins = random.integers(_PARTS, size=cycle.shape)
        shuffled.append(_product(profiles[cycle, (phase + begins) % _PARTS]))
    return _product(profiles) - float(np.mean(shuffled)), float(np.std(shuffled))


def _profiles(scores: NDArray[np.float64], length: int) -> NDArray[np.float64]:
    """Return the means in each phase of each whole cycle, float64 [cycles, phases, scores]."""
    cycles = len(scores) // length
    at = np.arange(cycles * length) * _PARTS // length
    counts = np.bincount(at)[:, None]
    sums = np.column_stack([np.bincount(at, one) for one in scores[: cycles * length].T])
    return (sums / counts).reshape(cycles, _PARTS, -1)


def _product(profiles: NDArray[np.float64]) -> float:
    """Return the mean product of different cycles: the variance between phases.

    It is that of the scores that repeat themselves the most.
    """
    cycles, phases, _ = profiles.shape
    sums = profiles.sum(0)
    energy = (sums**2).sum(0)
    # Those that do not repeat themselves would only add noise.
    most = np.argsort(-energy)[:_MOST_SCORES]
    most = most[energy[most] > energy[most[0]] / 3]
    products = (sums[:, most] ** 2).sum() - (profiles[..., most] ** 2).sum()
    return float(products / (cycles * (cycles - 1) * phases))
