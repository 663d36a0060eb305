"""The samples of a recorded step, and those that break it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from vinedresser.replay.bisecting import Smallest, smallest
from vinedresser.replay.results import Bisection

__all__ = ["any_sample", "breaking", "inexact_layers", "numbered", "with_samples"]

_Sample = tuple[int, int]
_Batch = TypeVar("_Batch")


def numbered(sizes: Iterable[int | None]) -> list[_Sample]:
    """Return the number of the batch and row of each sample.

    Args:
        sizes: number of samples of each batch; 0 or None if they cannot be told apart, which makes
            the result [].
    """
    found: list[_Sample] = []
    for number, size in enumerate(sizes):
        if not size:
            return []
        found += [(number, row) for row in range(size)]
    return found


def with_samples(
    batches: Sequence[_Batch],
    samples: Iterable[_Sample],
    selected: Callable[[_Batch, list[int]], _Batch],
) -> list[_Batch]:
    """Return the parts of batches that consist of some samples.

    Args:
        samples: number of the batch and row of each sample.
        selected: returns the part of a batch with some rows.
    """
    rows: dict[int, list[int]] = {}
    for number, row in samples:
        rows.setdefault(number, []).append(row)
    return [selected(batches[number], some) for number, some in rows.items()]


def any_sample(samples: Sequence[_Sample], batches: int, spoiled: str) -> Bisection:
    """Return that samples break a step whose state is not finite before it.

    Args:
        batches: see `Bisection`.
        spoiled: see `Bisection`.
    """
    return Bisection(Smallest([], 0, complete=True), len(samples), batches, [], "", spoiled)


def inexact_layers(names: Iterable[str]) -> list[str]:
    """Return why a part of a batch computes something else than the whole, in words.

    Args:
        names: class names of the layers.
    """
    reasons = {
        "BatchNorm": "batch normalization computes other statistics",
        "Dropout": "dropout draws other masks",
    }
    seen = set(names)
    return [why for part, why in reasons.items() if any(part in name for name in seen)]


def breaking(
    samples: Sequence[_Sample],
    breaks: Callable[[Sequence[_Sample]], bool],
    *,
    batches: int,
    inexact: list[str],
) -> Bisection:
    """Find the samples that break a step, which all of them together do.

    Args:
        samples: all samples, at least one.
        breaks: returns whether the step breaks with some of them; may fail with a `ValueError`, a
            `RuntimeError` or an `IndexError`, such as for a batch of one in batch normalization or
            for a fixed size in a view.
        batches: see `Bisection`.
        inexact: see `Bisection`.
    """
    refused: list[str] = []

    def tried(some: Sequence[_Sample]) -> bool:
        try:
            return breaks(some)
        except (ValueError, RuntimeError, IndexError) as error:
            refused.append(str(error))
            return False

    found = smallest(samples, tried)
    return Bisection(found, len(samples), batches, inexact, refused[0] if refused else "")
