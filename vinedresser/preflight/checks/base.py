"""What a check reads."""

from __future__ import annotations

from dataclasses import dataclass

from vinedresser.preflight.observed import Observed
from vinedresser.preflight.trials import Trials

__all__ = ["Evidence"]


@dataclass(frozen=True)
class Evidence:
    """What a check reads.

    Attributes:
        seen: the first steps of the training.
        trials: runs of copies of it.
        seconds: CPU seconds for all checks together.
    """

    seen: Observed
    trials: Trials
    seconds: float
