"""Limits of a pre-flight check, as its process is told."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

__all__ = ["RESULT", "PreflightSettings"]

# Name of the file with the verdicts.
RESULT = "verdicts.json"
# Share of the time in which the training is only watched.
_WATCHING = 0.35


@dataclass(frozen=True)
class PreflightSettings:
    """Limits of a pre-flight check.

    Attributes:
        directory: directory of the result.
        steps: maximum number of steps that are watched.
        seconds: CPU seconds from the first call of a model.
        skip: names of checks that are left out.
    """

    directory: str
    steps: int
    seconds: float
    skip: tuple[str, ...] = ()

    @property
    def watching(self) -> float:
        """CPU seconds in which the training is only watched."""
        return _WATCHING * self.seconds

    def to_text(self) -> str:
        """Return the settings as the value of an environment variable."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> PreflightSettings:
        """Return the settings of a text that `to_text` returned."""
        given = json.loads(text)
        return cls(**{**given, "skip": tuple(given["skip"])})
