"""Whether a reproduced training misbehaves or learns as its source reports."""

from __future__ import annotations

import math
from dataclasses import dataclass

from benchmarks.faults.cases import Case
from benchmarks.faults.history import Trained
from benchmarks.faults.measures import MEASURES

__all__ = ["Outcome", "outcome_of"]


@dataclass(frozen=True)
class Outcome:
    """Outcome of a training.

    Attributes:
        as_expected: whether the expectation of the case holds, or it has none.
        measured: accuracy or R², whether a loss was not finite, and the measures of the case.
    """

    as_expected: bool
    measured: dict[str, float]

    def in_words(self) -> str:
        """Return the measures as text, such as ``acc 0.98, val_acc 0.96``."""
        return ", ".join(
            f"{name} {value:.3g}" for name, value in self.measured.items() if not math.isnan(value)
        )


def outcome_of(case: Case, trained: Trained) -> Outcome:
    """Measure a completed training."""
    names = ["acc", "val_acc"] if trained.data.classes else ["r2", "val_r2"]
    if case.expect is not None:
        names += [name for name, _, _ in case.expect.conditions]
    measured = {name: MEASURES[name](trained) for name in dict.fromkeys([*names, "nan"])}
    as_expected = case.expect is None or case.expect.holds(measured.__getitem__)
    return Outcome(as_expected, measured)
