"""Finding the samples that break a step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

__all__ = ["Smallest", "smallest"]

_Sample = tuple[int, int]


@dataclass(frozen=True)
class Smallest:
    """The smallest set of samples found that breaks a step.

    Attributes:
        samples: number of the batch and row of each.
        runs: number of runs of the step.
        complete: whether leaving out any one of them was tried, or there is only one.
    """

    samples: list[_Sample]
    runs: int
    complete: bool


def smallest(
    samples: Sequence[_Sample], breaks: Callable[[Sequence[_Sample]], bool], most: int = 200
) -> Smallest:
    """Find a small set of samples that breaks a step, which all of them together do.

    First by halving, which finds a single sample among n in log2(n) + 1 runs, then by delta
    debugging (Zeller and Hildebrandt, Simplifying and Isolating Failure-Inducing Input, IEEE
    Transactions on Software Engineering 28(2), 2002, figure 4, ddmin).

    Args:
        samples: all samples, at least one.
        breaks: return whether the step breaks with some of them.
        most: maximum number of runs.
    """
    runs = 0

    def tried(some: Sequence[_Sample]) -> bool:
        nonlocal runs
        runs += 1
        return breaks(some)

    left = list(samples)
    while len(left) > 1:
        middle = len(left) // 2
        # If there is one bad sample, it is in the other half.
        left = left[:middle] if tried(left[:middle]) else left[middle:]
    if len(samples) == 1 or tried(left):
        return Smallest(left, runs, complete=True)
    left, parts = list(samples), 2
    while len(left) > 1 and runs < most:
        size = -(-len(left) // parts)
        chunks = [left[at : at + size] for at in range(0, len(left), size)]
        rests = [[one for one in left if one not in chunk] for chunk in chunks]
        candidates = [*chunks, *(rests if len(chunks) > 2 else [])]
        found = next(
            (candidate for candidate in candidates if runs < most and tried(candidate)), None
        )
        if found is not None:
            parts = max(parts - 1, 2) if len(found) > size else 2
            left = found
        elif parts >= len(left):
            return Smallest(left, runs, complete=True)
        else:
            parts = min(2 * parts, len(left))
    return Smallest(left, runs, complete=len(left) == 1)
