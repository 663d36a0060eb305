"""Notice models that join a training after its first steps."""

from __future__ import annotations

from vinedresser.store.reading.step import Step

__all__ = ["Newcomers"]


class Newcomers:
    """The weights of a run that were captured so far.

    A script may train one model after another, such as an encoder and then a classifier on it. The
    record of the run describes a model from its first step on.
    """

    def __init__(self) -> None:
        self._known: set[str] = set()

    def have_joined(self, step: Step) -> bool:
        """Note the weights of the next step; return whether any is new."""
        if step.mode != "train":
            return False
        new = {name for name in step.measured_names if name.startswith("weights/")} - self._known
        self._known |= new
        return bool(new)
