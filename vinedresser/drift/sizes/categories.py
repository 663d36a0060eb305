"""How far the shares of categories have moved."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vinedresser.drift.sizes.change import Change, missing_change, share_change

# Categories that are counted one by one: the most frequent ones of the baseline, and new ones.
_KNOWN, _NEW = 48, 16
_ROWS, _MISSING, _OTHER = range(3)
_REST = "all other categories"


class CategorySizes:
    """Sums from which changes of a column of categories are described.

    Args:
        sample: its values in the baseline, object [rows]; None is missing.
    """

    size = 3 + _KNOWN + _NEW
    """Number of sums."""

    def __init__(self, name: str, sample: NDArray[Any]) -> None:
        self._name = name
        counts = Counter(one for one in sample.tolist() if one is not None)
        self._counted = {*counts}
        # In the order of their counts; names decide between equal ones.
        ordered = sorted(counts, key=lambda count: (-counts[count], count))
        self.frequent = ordered[:2]
        """The two most frequent categories of the baseline, or fewer."""
        self._places = {one: 3 + place for place, one in enumerate(ordered[:_KNOWN])}
        self.new: list[str] = []
        """New categories that are counted, in the order in which they came."""
        self._baseline = self.sums(sample)

    def sums(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """Return the sums over values, float64 [size]; new categories get a place."""
        counts = Counter(values.tolist())
        found = np.zeros(self.size)
        found[_ROWS] = len(values)
        for one, count in counts.most_common():
            if one is None:
                found[_MISSING] = count
                continue
            if one not in self._counted and len(self.new) < _NEW:
                self.learn([one])
            found[self._places.get(one, _OTHER)] += count
        return found

    def learn(self, names: list[str]) -> None:
        """Count new categories from now on."""
        for name in names:
            self._places[name] = 3 + _KNOWN + len(self.new)
            self._counted.add(name)
            self.new.append(name)

    def change(
        self,
        before: NDArray[np.float64],
        after: NDArray[np.float64],
        bins: tuple[NDArray[np.float64], NDArray[np.float64]],
    ) -> Change:
        """Return the clearest change; see `NumberSizes.change`."""
        before = before + self._baseline
        counts = float(bins[0].sum()), max(float(bins[1].sum()), 1.0)
        missing = [float(one[_MISSING] / max(one[_ROWS], 1)) for one in (before, after)]
        found = [missing_change(self._name, (missing[0], counts[0]), (missing[1], counts[1]))]
        known = [one[_ROWS] - one[_MISSING] for one in (before, after)]
        if min(known) >= 1:
            rows = [n * (1 - one) for n, one in zip(counts, missing, strict=True)]
            for name, place in [*self._places.items(), (_REST, _OTHER)]:
                if before[place] + after[place] == 0:
                    continue
                new = "" if before[place] or place == _OTHER else ", which is new,"
                shown = name if place == _OTHER else repr(name)
                found.append(
                    share_change(
                        "share",
                        (f"{self._name}: {shown}{new} in ", " of the rows"),
                        (float(before[place] / known[0]), rows[0]),
                        (float(after[place] / known[1]), rows[1]),
                    )
                )
        return max(found, key=lambda one: one.errors)
