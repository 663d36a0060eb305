"""The verdict of a check."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["FINE", "SUSPICIOUS", "UNCHECKED", "Verdict", "fine", "suspicious", "unchecked"]

FINE, SUSPICIOUS, UNCHECKED = "fine", "suspicious", "could not be checked"
_STATES = (FINE, SUSPICIOUS, UNCHECKED)


@dataclass(frozen=True)
class Verdict:
    """The verdict of a check.

    Attributes:
        check: name of the check.
        state: `FINE`, `SUSPICIOUS` or `UNCHECKED`.
        evidence: what was seen, or why it could not be checked.
    """

    check: str
    state: str
    evidence: str

    @classmethod
    def from_json(cls, table: Any) -> Verdict:
        """Return the verdict of a table.

        Raises:
            ValueError: it is not a verdict.
        """
        texts = [table.get(key) for key in ("check", "state", "evidence")]
        if not all(type(text) is str for text in texts) or texts[1] not in _STATES:
            raise ValueError(f"not a verdict: {table!r}")
        return cls(*texts)


def fine(evidence: str) -> tuple[str, str]:
    """Return the state and evidence of a check that found nothing wrong."""
    return FINE, evidence


def suspicious(evidence: str) -> tuple[str, str]:
    """Return the state and evidence of a check that found a fault."""
    return SUSPICIOUS, evidence


def unchecked(why: str) -> tuple[str, str]:
    """Return the state and reason of a check that says nothing."""
    return UNCHECKED, why
