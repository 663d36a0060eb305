"""Evaluations that come with every step, and so are saved every so often."""

from __future__ import annotations

from vinedresser.capture.config.capture_config import Due

__all__ = ["DueEvaluations"]


class DueEvaluations:
    """Narrows what is due in an evaluation to the steps that its save configs name.

    Evaluations elsewhere are rare, and each of them is saved. A library that evaluates after every
    round makes as many of them as there are train steps, so there ``every`` counts for them too.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[bool, ...], Due] = {}
        self._of: Due | None = None

    def at(self, due: Due, step: int) -> Due:
        """Return what of it is due at a train step."""
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
