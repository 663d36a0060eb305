"""Whether a model acts between its updates, as an agent does that chooses its actions."""

from __future__ import annotations

from typing import Any

from vinedresser.frameworks.torch_.nesting import leaves

# Minimum number of rows with which a model that acts is trained.
_BATCH = 4
# Maximum number of shapes that are remembered between two updates.
_SHAPES = 8


class Acting:
    """Tells calls of a model for a single row from those for the batch that it is trained on."""

    def __init__(self) -> None:
        # Shapes of the inputs of the calls since the last update, and of the last one.
        self._shapes: set[tuple[int, ...]] = set()
        self._last: tuple[int, ...] = ()

    def called(self, args: Any, kwargs: Any) -> None:
        """Note a call of the model that is not an evaluation.

        Args:
            args: its positional arguments, a nesting of tensors [batch, ...] or of one row [...].
        """
        shape = next((tuple(one.shape) for _, one in leaves((args, kwargs)) if one.ndim), ())
        if len(self._shapes) < _SHAPES:
            self._shapes.add(shape)
        self._last = shape

    def end(self) -> bool:
        """Return whether the model acted before the update that ends now, and begin again."""
        shapes, batch = self._shapes, self._last
        self._shapes, self._last = set(), ()
        if len(batch) < 2 or batch[0] < _BATCH:
            return False
        return batch[1:] in shapes or (1, *batch[1:]) in shapes
