"""Counting the looks in a row at which a rule sees its symptom."""

from __future__ import annotations

from vinedresser.errors import ConfigError


class Patience:
    """A count of consecutive looks at which a symptom was seen.

    Args:
        looks: number of looks in a row until a rule may fire.

    Attributes:
        looks: consecutive looks up to the last one.
        since: step of the first of these.

    Raises:
        ConfigError: ``looks`` is below 1.
    """

    def __init__(self, looks: int) -> None:
        if looks < 1:
            raise ConfigError(f"patience = {looks}: must be at least 1 look")
        self.looks = 0
        self.since = 0
        self._enough = looks

    @property
    def over(self) -> bool:
        """Whether the symptom was seen often enough."""
        return self.looks >= self._enough

    def add(self, step: int, *, seen: bool) -> bool:
        """Count a look; return whether the symptom was seen often enough.

        Args:
            step: step of the look.
            seen: the symptom was seen; otherwise the count starts again.
        """
        if not seen:
            self.looks = 0
            return False
        if not self.looks:
            self.since = step
        self.looks += 1
        return self.over
