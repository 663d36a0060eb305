"""Schedules of evaluations that follow every train step."""

from __future__ import annotations

from vinedresser.capture.config.capture_config import Due

__all__ = ["DueEvaluations"]


class DueEvaluations:
    """Applies ``every`` of save configs to evaluations.

    Usually, every evaluation is saved, since evaluations are rare. For a library that evaluates
    after every round, ``every`` applies to evaluations as well.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[bool, ...], Due] = {}
        self._of: Due | None = None

    def at(self, due: Due, step: int) -> Due:
        """Return the parts of a `Due` whose schedules name a train step."""
        if due is not self._of:
            self._of, self._known = due, {}
        key = tuple(
            step in save.steps or bool(save.every and (step - save.start) % save.every == 0)
            for _, save in due.parts
        )
        if key not in self._known:
            parts = (part for part, met in zip(due.parts, key, strict=True) if met)
            self._known[key] = Due(tuple(parts))
        return self._known[key]
