"""Choice among the second functions of a step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from vinedresser.capture.config.capture_config import Due
from vinedresser.capture.keras_.graphs.traced import Traced
from vinedresser.capture.keras_.observation.due_filter import DueFilter, due_filter

T = TypeVar("T", bound=Traced)

# With this many functions of a step, one that returns more than is due is reused. If tracing one
# took seconds, two have to do: that of the first step, in which most is due, and that of the plain
# steps; compiling each takes longer still.
_MAX_EXACT = 4
_MAX_SLOW = 2
_SLOW = 1.0


class Variants(Generic[T]):
    """The traced functions of one step, one for each set of due tensors.

    Args:
        method: the model's method, such as "train_step"; see `due_filter`.
        make: returns a new function for a filter.
    """

    def __init__(self, method: str, make: Callable[[DueFilter], T]) -> None:
        self._method = method
        self._make = make
        # Holding the keys keeps their ids in use.
        self._by_key: dict[tuple[Due | None, bool], T] = {}
        self._made: list[T] = []

    def choose(self, due: Due | None, *, later: bool = False) -> T:
        """Return the function that returns the due tensors.

        Args:
            due: the due collections; None if nothing is due.
            later: whether the batch is not the first of its step or evaluation.
        """
        key = (due, later)
        found = self._by_key.get(key)
        if found is None:
            is_due = due_filter(self._method, due, later=later)
            found = self._reusable(is_due)
            if found is None:
                found = self._make(is_due)
                self._made.append(found)
            self._by_key[key] = found
        return found

    def _reusable(self, is_due: DueFilter) -> T | None:
        """Return an existing function that returns the same, or, of many, the least more."""
        traced = [one for one in self._made if one.available]
        wanted = {name for one in traced for name in one.available if is_due(name)}
        enough = [one for one in traced if wanted <= one.returned | one.unreachable]
        best = min(enough, key=lambda one: len(one.returned), default=None)
        most = _MAX_SLOW if any(one.seconds > _SLOW for one in traced) else _MAX_EXACT
        if best is not None and best.returned - wanted and len(traced) < most:
            return None
        return best
