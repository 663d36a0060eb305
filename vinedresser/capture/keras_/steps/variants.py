"""Which of the second functions of a step does the one that comes now."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from vinedresser.capture.config.capture_config import Due
from vinedresser.capture.keras_.steps.asking import Asks, asks_of
from vinedresser.capture.keras_.steps.traced import Traced

__all__ = ["Variants"]

T = TypeVar("T", bound=Traced)

# Of one step. From there on one that returns more than is asked for is as good.
_MANY = 4


class Variants(Generic[T]):
    """The traced functions of one step, one for each set of tensors that is asked for.

    Args:
        method: what step it is, such as "train_step"; see `asks_of`.
        make: makes one of what it is asked.
    """

    def __init__(self, method: str, make: Callable[[Asks], T]) -> None:
        self._method = method
        self._make = make
        # The keys are held, so that none of them comes again for something else.
        self._by_key: dict[tuple[Due | None, bool], T] = {}
        self._made: list[T] = []

    def choose(self, due: Due | None, *, later: bool = False) -> T:
        """Return the function that returns what is due.

        Args:
            due: the collections; None: nothing.
            later: it is not the first batch of its step or evaluation, of which less is taken.
        """
        key = (due, later)
        found = self._by_key.get(key)
        if found is None:
            asks = asks_of(self._method, due, later=later)
            found = self._fitting(asks)
            if found is None:
                found = self._make(asks)
                self._made.append(found)
            self._by_key[key] = found
        return found

    def _fitting(self, asks: Asks) -> T | None:
        """Return one made before that returns the same, or, of many, hardly more."""
        traced = [one for one in self._made if one.seen]
        wanted = {name for one in traced for name in one.seen if asks(name)}
        enough = [one for one in traced if wanted <= one.taken | one.unreachable]
        best = min(enough, key=lambda one: len(one.taken), default=None)
        if best is not None and best.taken - wanted and len(traced) < _MANY:
            return None
        return best
