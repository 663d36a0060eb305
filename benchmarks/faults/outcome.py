"""Whether a reproduced training misbehaves or learns as its source reports."""

from __future__ import annotations

from benchmarks.faults.cases import Case
from benchmarks.faults.history import Trained
from benchmarks.faults.measures import MEASURES
from benchmarks.faults.verdict import Outcome

__all__ = ["outcome_of"]


def outcome_of(case: Case, trained: Trained) -> Outcome:
    """Measure a completed training."""
    names = ["acc", "val_acc"] if trained.data.classes else ["r2", "val_r2"]
    if case.expect is not None:
        names += [name for name, _, _ in case.expect.conditions]
    measured = {name: MEASURES[name](trained) for name in dict.fromkeys([*names, "nan"])}
    as_expected = case.expect is None or case.expect.holds(measured.__getitem__)
    return Outcome(as_expected, measured)
