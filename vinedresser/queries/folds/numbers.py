"""Folds of numbers, which need bounded memory for windows of any length."""

from __future__ import annotations

import math
import random
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vinedresser.errors import ConfigError, did_you_mean
from vinedresser.queries.language.reducing import MOST_BINS, MOST_TOP, largest
from vinedresser.queries.language.syntax import Call, Number
from vinedresser.queries.language.values import Histogram

__all__ = [
    "EXACT",
    "FOLDS",
    "Bins",
    "Count",
    "Entry",
    "Extreme",
    "Fold",
    "Largest",
    "Last",
    "Mean",
    "Quantile",
    "Samples",
    "Spread",
    "Sum",
    "fold_maker",
]

# Numbers that a quantile keeps. Up to here it is exact; of more numbers it keeps a uniform sample,
# whose quantiles are within 1.1 % of the wanted rank with probability 1 - 1e-6 (Dvoretzky, Kiefer
# and Wolfowitz, 1956).
EXACT = 65_536


class Entry(NamedTuple):
    """A number of a window.

    Attributes:
        value: the number; NaN makes the results of most folds NaN.
        weight: its weight in a mean.
        at: its label, which `top` reports.
        step: its step, likewise.
    """

    value: float
    weight: float = 1.0
    at: str = ""
    step: int = 0


class Samples(NamedTuple):
    """Numbers of the samples of an event.

    Attributes:
        values: float64 [samples].
    """

    values: NDArray[np.float64]
    step: int


class Fold(ABC):
    """Reduces numbers, one at a time."""

    @property
    def kept(self) -> int:
        """Number of numbers that it keeps, if these grow with the window."""
        return 0

    @abstractmethod
    def add(self, entry: Entry) -> None:
        """Add a number."""

    def extend(self, samples: Samples) -> None:
        """Add the numbers of samples."""
        for place, value in enumerate(samples.values.tolist()):
            self.add(Entry(value, at=f"[{place}]", step=samples.step))

    @abstractmethod
    def result(self) -> Any:
        """Return the result for the numbers so far: a number, or as described by the subclass."""


class Sum(Fold):
    """The sum, compensated as by Neumaier (1974)."""

    def __init__(self) -> None:
        self._sum = self._rest = 0.0

    def add(self, entry: Entry) -> None:
        """See `Fold.add`."""
        value = entry.value
        total = self._sum + value
        if math.isfinite(total):
            large, small = (
                (self._sum, value) if abs(self._sum) >= abs(value) else (value, self._sum)
            )
            self._rest += (large - total) + small
        self._sum = total

    def result(self) -> float:
        """See `Fold.result`."""
        return self._sum + self._rest


class Mean(Fold):
    """The weighted mean."""

    def __init__(self) -> None:
        self._sum = Sum()
        self._weight = 0.0

    def add(self, entry: Entry) -> None:
        """See `Fold.add`."""
        if entry.weight:
            self._sum.add(Entry(entry.value * entry.weight))
            self._weight += entry.weight

    def extend(self, samples: Samples) -> None:
        """See `Fold.extend`."""
        with np.errstate(all="ignore"):
            self._sum.add(Entry(float(samples.values.sum())))
        self._weight += samples.values.size

    def result(self) -> float:
        """See `Fold.result`."""
        return self._sum.result() / self._weight if self._weight else math.nan


class Spread(Fold):
    """The population variance (ddof 0) or its root; Welford's update (1962).

    Args:
        root: the standard deviation.
    """

    def __init__(self, *, root: bool) -> None:
        self._root = root
        self._count = 0
        self._mean = self._squares = 0.0

    def add(self, entry: Entry) -> None:
        """See `Fold.add`."""
        self._count += 1
        delta = entry.value - self._mean
        self._mean += delta / self._count
        self._squares += delta * (entry.value - self._mean)

    def result(self) -> float:
        """See `Fold.result`."""
        if not self._count:
            return math.nan
        variance = self._squares / self._count
        return math.sqrt(variance) if self._root else variance


class Extreme(Fold):
    """The smallest or largest number; NaN if there is one."""

    def __init__(self, *, smaller: bool) -> None:
        self._smaller = smaller
        self._found = math.nan
        self._empty = True

    def add(self, entry: Entry) -> None:
        """See `Fold.add`."""
        value = entry.value
        if self._empty or math.isnan(value):
            self._found, self._empty = value, False
        elif (value < self._found) if self._smaller else (value > self._found):
            self._found = value

    def result(self) -> float:
        """See `Fold.result`."""
        return self._found


class Count(Fold):
    """The number of numbers."""

    def __init__(self) -> None:
        self._count = 0

    def add(self, entry: Entry) -> None:  # noqa: ARG002 (only counted)
        """See `Fold.add`."""
        self._count += 1

    def result(self) -> float:
        """See `Fold.result`."""
        return float(self._count)


class Last(Fold):
    """The last number."""

    def __init__(self) -> None:
        self._last = math.nan

    def add(self, entry: Entry) -> None:
        """See `Fold.add`."""
        self._last = entry.value

    def result(self) -> float:
        """See `Fold.result`."""
        return self._last


class Quantile(Fold):
    """A quantile with linear interpolation, exact for up to `EXACT` numbers.

    Args:
        share: from 0 to 1.
    """

    def __init__(self, share: float) -> None:
        self._share = share
        self._kept = array("d")
        self._seen = 0
        # A generator of its own: the training's is not touched.
        self._random = random.Random(0)  # noqa: S311 (no secret)

    @property
    def kept(self) -> int:
        """See `Fold.kept`."""
        return len(self._kept)

    def add(self, entry: Entry) -> None:
        """See `Fold.add`."""
        self._seen += 1
        if len(self._kept) < EXACT:
            self._kept.append(entry.value)
        else:
            # Algorithm R (Vitter, 1985).
            place = self._random.randrange(self._seen)
            if place < EXACT:
                self._kept[place] = entry.value

    def extend(self, samples: Samples) -> None:
        """See `Fold.extend`."""
        room = max(EXACT - len(self._kept), 0)
        self._kept.frombytes(samples.values[:room].tobytes())
        self._seen += len(samples.values[:room])
        super().extend(Samples(samples.values[room:], samples.step))

    def result(self) -> float:
        """See `Fold.result`."""
        with np.errstate(all="ignore"):
            return float(np.quantile(self._kept, self._share)) if self._kept else math.nan


class Largest(Fold):
    """The largest numbers with their labels and steps, as a list of entries.

    Args:
        count: how many.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._kept: list[Entry] = []

    def add(self, entry: Entry) -> None:
        """See `Fold.add`."""
        self._kept.append(entry)
        if len(self._kept) >= 4 * self._count + 64:
            self._kept = self.result()

    def result(self) -> list[Entry]:
        """Return the largest so far, largest first; the earlier of equals first."""
        return largest(self._kept, self._count)


class Bins(Fold):
    """A histogram between fixed edges; numbers outside and NaN do not count.

    Args:
        low: lowest edge.
        high: highest edge.
    """

    def __init__(self, bins: int, low: float, high: float) -> None:
        self._limits = (low, high)
        self._counts = np.zeros(bins)

    def add(self, entry: Entry) -> None:
        """See `Fold.add`."""
        self.extend(Samples(np.array([entry.value]), entry.step))

    def extend(self, samples: Samples) -> None:
        """See `Fold.extend`."""
        finite = samples.values[np.isfinite(samples.values)]
        self._counts += np.histogram(finite, len(self._counts), self._limits)[0]

    def result(self) -> Histogram:
        """See `Fold.result`."""
        edges = np.linspace(*self._limits, len(self._counts) + 1)
        return Histogram(edges, self._counts.copy(), fixed=True)


_PLAIN: dict[str, Callable[[], Fold]] = {
    "mean": Mean,
    "min": lambda: Extreme(smaller=True),
    "max": lambda: Extreme(smaller=False),
    "sum": Sum,
    "count": Count,
    "last": Last,
    "std": lambda: Spread(root=True),
    "var": lambda: Spread(root=False),
}
FOLDS = (*_PLAIN, "quantile", "top", "histogram")


def fold_maker(reduce: Call) -> Callable[[], Fold]:
    """Return what makes the fold of a `reduce` clause.

    Args:
        reduce: ``max`` or ``quantile(0.9)`` as a call.

    Raises:
        ConfigError: there is no such fold, or its numbers are wrong.
    """
    name = reduce.function
    numbers = [operand.value for operand in reduce.operands if isinstance(operand, Number)]
    if name in _PLAIN and not numbers:
        return _PLAIN[name]
    if name == "quantile" and len(numbers) == 1 and 0 <= numbers[0] <= 1:
        return lambda: Quantile(numbers[0])
    if name == "top" and len(numbers) == 1 and _whole(numbers[0], MOST_TOP):
        return lambda: Largest(int(numbers[0]))
    if name == "histogram" and _edges(numbers):
        return lambda: Bins(int(numbers[0]), numbers[1], numbers[2])
    raise ConfigError(f"reduce {reduce}: {_usage(name)}")


def _whole(value: float, most: int) -> bool:
    return not value % 1 and 1 <= value <= most


def _edges(numbers: Sequence[float]) -> bool:
    return len(numbers) == 3 and _whole(numbers[0], MOST_BINS) and numbers[1] < numbers[2]


def _usage(name: str) -> str:
    usages = {
        "quantile": "quantile(0.9)",
        "top": f"top(number), at most {MOST_TOP}",
        "histogram": f"histogram(bins, low, high), at most {MOST_BINS:,} bins",
        **{word: f"{word} without numbers" for word in _PLAIN},
    }
    if name in usages:
        return f"{usages[name]} is expected"
    return "no such fold" + (did_you_mean(name, FOLDS) or f"; there are {', '.join(FOLDS)}")
