"""A train step in which only numbers are due."""

from __future__ import annotations

from vinedresser.capture.config.capture_config import NOTHING_DUE, Due

__all__ = ["PlainStep"]


class PlainStep:
    """A cheap substitute for the `Recording` of a step in which only numbers are due.

    Most steps are such steps. A full recording replaces it as soon as anything but a number is
    captured. One object serves all steps.

    Attributes:
        due: what is due in the step.
        begun: part of the step was seen, so a recording would have been opened.
        explicit: see `Recording.explicit`.
        several: the step has several forwards.
        scalars: means of the numbers so far, by name.
    """

    __slots__ = ("_weights", "begun", "due", "explicit", "scalars", "several")

    def __init__(self) -> None:
        self.due: Due = NOTHING_DUE
        self.begun = False
        self.explicit = False
        self.several = False
        self.scalars: dict[str, float] = {}
        # The number of values in each mean of more than one value.
        self._weights: dict[str, float] = {}

    def add(self, name: str, value: float) -> None:
        """Add a number to the mean of its name; see `Recording.add_scalar`."""
        self.begun = True
        if name in self.scalars:
            weight = self._weights.get(name, 1.0)
            value = (self.scalars[name] * weight + value) / (weight + 1.0)
            self._weights[name] = weight + 1.0
        self.scalars[name] = value

    def means(self) -> dict[str, tuple[float, float]]:
        """Return each mean with its number of values, by name."""
        return {name: (mean, self._weights.get(name, 1.0)) for name, mean in self.scalars.items()}

    def begin(self, due: Due) -> None:
        """Begin the next step, given what is due in it."""
        self.due = due
        self.begun = self.explicit = self.several = False
        # The previous step's dict belongs to its receiver.
        self.scalars = {}
        if self._weights:
            self._weights = {}
