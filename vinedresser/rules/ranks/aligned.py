"""The same step of all ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from vinedresser.store.records import RunRecord

__all__ = ["Aligned", "deviating", "told"]

# Maximum number of steps with missing ranks.
_MOST_OPEN = 64
_Value = TypeVar("_Value")


class Aligned(Generic[_Value]):
    """Collects a value of each rank at each step until all ranks have one.

    Attributes:
        world: number of ranks.
    """

    def __init__(self) -> None:
        self.world = 1
        self._open: dict[int, dict[int, _Value]] = {}

    def begin(self, info: RunRecord) -> None:
        """Read the number of ranks."""
        self.world = info.world_size

    def add(self, step: int, rank: int, value: _Value) -> list[_Value] | None:
        """Add the value of a rank; return those of all ranks, by rank, once they are complete."""
        ranks = self._open.setdefault(step, {})
        ranks[rank] = value
        if len(ranks) < self.world:
            if len(self._open) > _MOST_OPEN:
                del self._open[next(iter(self._open))]
            return None
        del self._open[step]
        return [ranks[one] for one in sorted(ranks)]


def deviating(values: Sequence[Any]) -> list[int]:
    """Return the ranks whose values differ from that of most ranks; [] if most have none.

    Args:
        values: one for each rank.
    """
    (usual, count), *_ = Counter(values).most_common(1)
    if 2 * count <= len(values):
        return []
    return [rank for rank, value in enumerate(values) if value != usual]


def told(ranks: Iterable[int] | Mapping[int, str]) -> str:
    """Return ranks in words: ``rank 1``, ``ranks 0 and 3``, or ``rank 0: 0.1, rank 1: 0.2``."""
    if isinstance(ranks, Mapping):
        return ", ".join(f"rank {rank}: {text}" for rank, text in ranks.items())
    *most, last = map(str, ranks)
    return f"ranks {', '.join(most)} and {last}" if most else f"rank {last}"
