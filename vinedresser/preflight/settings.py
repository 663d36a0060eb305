"""Limits of a pre-flight check, as its process is told."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from vinedresser.preflight.verdict import Verdict

__all__ = ["RESULT", "PreflightSettings", "write_result"]

# Name of the file with the verdicts.
RESULT = "verdicts.json"
# Share of the time in which the training is only watched.
_WATCHING = 0.35
# Steps that are watched, and samples: small batches need more steps, since their losses are noisy.
_STEPS, _MOST_STEPS, _SAMPLES = 50, 400, 400


@dataclass(frozen=True)
class PreflightSettings:
    """Limits of a pre-flight check.

    Attributes:
        directory: directory of the result.
        steps: maximum number of steps that are watched; None: see `enough`.
        seconds: CPU seconds from the first call of a model.
        skip: names of checks that are left out.
    """

    directory: str
    steps: int | None
    seconds: float
    skip: tuple[str, ...] = ()

    @property
    def watching(self) -> float:
        """CPU seconds in which the training is only watched."""
        return _WATCHING * self.seconds

    def enough(self, rows: int | None) -> int:
        """Return the number of steps to watch: 50, and more for batches of fewer than 8 samples.

        Args:
            rows: number of samples of a batch; None if it is not known.
        """
        small = _STEPS if not rows else min(_MOST_STEPS, _SAMPLES // rows)
        return max(_STEPS, small) if self.steps is None else self.steps

    def to_text(self) -> str:
        """Return the settings as the value of an environment variable."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> PreflightSettings:
        """Return the settings of a text that `to_text` returned."""
        given = json.loads(text)
        return cls(**{**given, "skip": tuple(given["skip"])})


def write_result(
    settings: PreflightSettings, steps: int, *, cut: bool, verdicts: Sequence[Verdict]
) -> None:
    """Write what the process of the script has found, at once.

    Args:
        steps: number of steps that were watched.
        cut: whether the check ended the training, which would have continued.
        verdicts: the verdict of each probe.
    """
    result = {"steps": steps, "cut": cut, "verdicts": [vars(one) for one in verdicts]}
    place = Path(settings.directory, RESULT)
    beside = place.with_suffix(f".{os.getpid()}")
    beside.write_text(json.dumps(result), encoding="utf-8")
    beside.rename(place)
