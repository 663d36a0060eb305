"""A train step of which only numbers are due."""

from __future__ import annotations

from vinedresser.capture.config.capture_config import NOTHING_DUE, Due

__all__ = ["PlainStep"]


class PlainStep:
    """What comes together in a train step of which only numbers are due, which most steps are.

    A `Recording` has room for far more, and costs more than the numbers do. So none is made before
    something comes that is no number, or comes in another way. One object serves all steps.

    Attributes:
        due: what is due in the step.
        begun: something of the step was seen, so that a recording of it would be there.
        explicit: see `Recording.explicit`.
        several: it has several forwards.
        scalars: the means of the numbers that are here, by name.
    """

    __slots__ = ("_weights", "begun", "due", "explicit", "scalars", "several")

    def __init__(self) -> None:
        self.due: Due = NOTHING_DUE
        self.begun = False
        self.explicit = False
        self.several = False
        self.scalars: dict[str, float] = {}
        # How many numbers a mean is of, where these are several.
        self._weights: dict[str, float] = {}

    def add(self, name: str, value: float) -> None:
        """Take a number into the mean of all numbers of its name, as `Recording.add_scalar`."""
        self.begun = True
        if name in self.scalars:
            weight = self._weights.get(name, 1.0)
            value = (self.scalars[name] * weight + value) / (weight + 1.0)
            self._weights[name] = weight + 1.0
        self.scalars[name] = value

    def means(self) -> dict[str, tuple[float, float]]:
        """Return the means, and how many numbers each is of."""
        return {name: (mean, self._weights.get(name, 1.0)) for name, mean in self.scalars.items()}

    def begin(self, due: Due) -> None:
        """Begin the next step.

        Args:
            due: what is due in it.
        """
        self.due = due
        self.begun = self.explicit = self.several = False
        # Who has the numbers of the step before keeps them.
        self.scalars = {}
        if self._weights:
            self._weights = {}
