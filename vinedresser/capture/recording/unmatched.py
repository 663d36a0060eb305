"""Warnings about collections that match nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from vinedresser.capture.recording.recording import Recording
from vinedresser.errors import did_you_mean
from vinedresser.store.collections.collection import BUILT_IN, Collection
from vinedresser.store.collections.modules import module_of

# Collections of built-in rules for values that not every training has.
_OF_SOME_TRAININGS = (
    *("learning_rate", "loss_scale", "scheduler"),
    *("rank_data", "rank_gradients", "rank_gradient_norms", "replicas", "synchronised_statistics"),
)


class Unmatched:
    """Finds custom collections that captured nothing when they were first due.

    Evaluations lack many tensors of a train step, so the first train step counts, unless a
    collection is for evaluations only.

    Args:
        names: return the names of all tensors available for capture.
    """

    def __init__(self, names: Callable[[], Iterable[str]]) -> None:
        self._names = names
        self._known: set[str] = set()
        self._pending: set[str] = set()

    def expect(self, collections: Iterable[Collection]) -> None:
        """Add custom collections to check."""
        fresh = {
            collection.name
            for collection in collections
            if collection.selects
            and collection.name not in BUILT_IN
            and collection.name not in _OF_SOME_TRAININGS
        }
        self._pending |= fresh - self._known
        self._known |= fresh

    def complaints(self, recording: Recording) -> list[str]:
        """Return a message for each collection that was due for the first time and is empty."""
        if not self._pending:
            return []
        fresh = [
            collection
            for name, collection in recording.due.collections().items()
            if name in self._pending and (recording.mode == "train" or not _trains(collection))
        ]
        self._pending.difference_update(collection.name for collection in fresh)
        captured = recording.names()
        empty = [one for one in fresh if not any(one.holds(name) for name in captured)]
        return [self._complaint(collection, recording) for collection in empty]

    def _complaint(self, collection: Collection, recording: Recording) -> str:
        names = sorted({*self._names(), *recording.names()})
        if collection.regex is None:
            paths = sorted({path for path in map(module_of, names) if path})
            asked = [*collection.modules, *collection.types]
            near = did_you_mean(str(asked[0]), paths)
            there = ", ".join(paths[:8]) + (", …" if len(paths) > 8 else "")
            return (
                f"collection {collection.name} matched nothing at step {recording.step} "
                f"({recording.mode}): {', '.join(map(str, asked))}: no such modules with the "
                f"requested tensors{near or f'; modules: {there}'}"
            )
        # Compare the names with the pattern without its special characters.
        plain = re.sub(r"\\[a-zA-Z]|[^\w/.]", "", collection.regex or "")
        near = did_you_mean(plain, names) or did_you_mean(
            plain, [name.rpartition("/")[2] for name in names]
        )
        there = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
        return (
            f"collection {collection.name} matched nothing at step {recording.step} "
            f"({recording.mode}): no name contains its regex {collection.regex!r}"
            f"{near or f'; names: {there}'}"
        )


def _trains(collection: Collection) -> bool:
    return any("train" in save.modes for save in collection.saves)
