"""Counting the checks in a row at which a rule sees its symptom."""

from __future__ import annotations

from vinedresser.errors import ConfigError


class Patience:
    """A count of consecutive checks at which a symptom was seen.

    Args:
        checks: number of checks in a row until a rule may fire.

    Attributes:
        count: consecutive checks up to the last one.
        since: step of the first of these.

    Raises:
        ConfigError: ``checks`` is below 1.
    """

    def __init__(self, checks: int) -> None:
        if checks < 1:
            raise ConfigError(f"patience = {checks}: must be at least 1 check")
        self.count = 0
        self.since = 0
        self._enough = checks
        self._kind: object = None

    @property
    def exhausted(self) -> bool:
        """Whether the symptom was seen often enough."""
        return self.count >= self._enough

    def add(self, step: int, *, seen: bool, kind: object = None) -> bool:
        """Count a check; return whether the symptom was seen often enough.

        Args:
            seen: the symptom was seen; otherwise the count starts again.
            kind: what was seen, if that varies; the count starts again with another kind.
        """
        if not seen:
            self.count = 0
            return False
        if not self.count or kind != self._kind:
            self.count, self.since, self._kind = 0, step, kind
        self.count += 1
        return self.exhausted
