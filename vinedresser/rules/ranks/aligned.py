"""The same step of all ranks, and the base of the rules that compare it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar

from vinedresser.rules.applicability import RANKS_OF_TORCH
from vinedresser.rules.base import OnceRule
from vinedresser.rules.bounds import require_at_least
from vinedresser.store.finding import Finding, Severity
from vinedresser.store.reading.step import Step
from vinedresser.store.records import RunRecord

__all__ = ["Aligned", "RankRule", "deviating", "told"]

# Maximum number of steps with missing ranks.
_MOST_OPEN = 64
_Value = TypeVar("_Value")


class Aligned(Generic[_Value]):
    """Collects a value of each rank at each step until all ranks have one."""

    def __init__(self) -> None:
        self._open: dict[int, dict[int, _Value]] = {}

    def add(self, step: Step, value: _Value, world: int) -> list[_Value] | None:
        """Add the value of a step's rank; return those of all ranks once they are complete.

        Args:
            world: number of ranks.

        Returns:
            The values by rank.
        """
        ranks = self._open.setdefault(step.step, {})
        ranks[step.rank] = value
        if len(ranks) < world:
            if len(self._open) > _MOST_OPEN:
                del self._open[next(iter(self._open))]
            return None
        del self._open[step.step]
        return [ranks[rank] for rank in sorted(ranks)]


class RankRule(OnceRule):
    """Compares the ranks of a training, and makes one finding at most.

    Args:
        patience: number of consecutive checks.
        every: train steps between checks.

    Attributes:
        world: number of ranks.
    """

    severity: Severity = "warning"
    inapplicable = RANKS_OF_TORCH
    left_out_of: ClassVar[tuple[str, ...]] = ("boosted_trees",)

    def __init__(self, patience: int, every: int = 1) -> None:
        require_at_least(1, patience=patience)
        self.patience = patience
        self.every = every
        self.world = 1

    def begin(self, info: RunRecord) -> None:
        """Read the number of ranks."""
        self.world = info.world_size

    def update(self, step: Step) -> Finding | None:
        """See `Rule.update`."""
        return self._once(self.watch(step)) if self.is_due(step) and not self._done else None

    def is_due(self, step: Step) -> bool:
        """Return whether the ranks are compared at a step."""
        return self.world > 1 and step.mode == "train" and step.step % self.every == 0


def deviating(values: Sequence[Any]) -> list[int]:
    """Return the ranks whose values differ from that of most ranks; [] if most have none."""
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
