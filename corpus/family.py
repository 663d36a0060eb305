"""A family: trainings of one kind, healthy or with one of several faults."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Self

from corpus.draw import Draw
from corpus.watching import Framework

__all__ = ["Ending", "Family"]


@dataclass(frozen=True)
class Ending:
    """How a training ended, measured by its family, independently of capture and rules.

    Attributes:
        score: 0 for a trivial baseline, such as the majority class, and 1 for a perfect model, on
            data that the training has not seen unless all possible data are trained on.
        bar: score that a healthy training reaches.
        margin: by how much a fault has to lower the score to be harmful.
        overstated: how much better the score of the script's own evaluation is, for faults that
            make the evaluation wrong.
        crash: error that ended the training; "" if it came to its end.
        epoch: optimizer steps of the first epoch; 0 if the script has no epochs.
    """

    score: float
    bar: float
    margin: float = 0.2
    overstated: float = 0.0
    crash: str = ""
    epoch: int = 0

    @property
    def good(self) -> bool:
        """Whether a training without a fault ended well."""
        return not self.crash and math.isfinite(self.score) and self.score >= self.bar

    def harmed(self, twin: Ending) -> bool:
        """Return whether the fault was harmful, compared with the healthy twin."""
        worse = not self.score > twin.score - self.margin
        return twin.good and (bool(self.crash) or worse or self.overstated > self.margin)

    def to_json(self) -> dict[str, Any]:
        """Return the ending as plain JSON types; numbers that are not finite as None."""
        return {
            key: None if isinstance(value, float) and not math.isfinite(value) else value
            for key, value in asdict(self).items()
        }

    @classmethod
    def from_json(cls, table: dict[str, Any]) -> Self:
        """Return the ending of `to_json`."""
        numbers: dict[str, Any] = {
            key: math.nan if one is None else one for key, one in table.items()
        }
        return cls(**numbers)


@dataclass(frozen=True)
class Family:
    """Trainings of one kind.

    Attributes:
        train: train once, and measure the ending.
        faults: classes of faults (`benchmarks.faults.classes`) that it can carry.
        framework: framework that trains; `train` imports another one than torch.
        spent: date since which rules may have been adjusted to it, ``YYYY-MM-DD``; "" while sealed.
    """

    train: Callable[[Draw], Ending]
    faults: tuple[str, ...]
    framework: Framework = "torch"
    spent: str = ""
