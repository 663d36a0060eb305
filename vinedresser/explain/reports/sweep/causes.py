"""The trials that a rule stopped, by what it found, and where in the space they lie."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from vinedresser.sweeps.dimension import Dimension
from vinedresser.sweeps.space import Space
from vinedresser.sweeps.trial import Trial

__all__ = ["Cause", "causes"]

# Fewer lie anywhere.
_FEW = 3
# Of a range almost from end to end there is nothing to say.
_WHOLE = 0.6


@dataclass(frozen=True)
class Cause:
    """Trials that were stopped for one kind of fault.

    Attributes:
        fault: what was found, in words.
        rules: which found it.
        trials: the trials, by number.
        where: the part of the space in which they lie, where that is a part.
        example: what a rule said of the first of them.
        remedy: what it proposes to change there; "" for nothing.
    """

    fault: str
    rules: tuple[str, ...]
    trials: tuple[Trial, ...]
    where: str
    example: str
    remedy: str


def causes(trials: Sequence[Trial], space: Space) -> list[Cause]:
    """Return the trials that a rule stopped by what it found, the most frequent first.

    Args:
        trials: of the sweep.
        space: its hyperparameters.
    """
    groups: dict[str, list[Trial]] = {}
    for trial in trials:
        if trial.ending.state == "stopped":
            groups.setdefault(trial.ending.fault or trial.ending.rule or "other", []).append(trial)
    found = [
        Cause(
            fault=fault.replace("_", " "),
            rules=tuple(dict.fromkeys(one.ending.rule for one in group if one.ending.rule)),
            trials=tuple(group),
            where=", ".join(filter(None, (_part(one, group) for one in space.dimensions))),
            example=group[0].ending.reason,
            remedy=group[0].ending.remedy,
        )
        for fault, group in groups.items()
    ]
    return sorted(found, key=lambda cause: len(cause.trials), reverse=True)


def _part(dimension: Dimension, group: Sequence[Trial]) -> str:
    """Return the part of a hyperparameter's values that trials have; "" where it is no part."""
    values = [one.parameters[dimension.name] for one in group if dimension.name in one.parameters]
    if len(values) < _FEW:
        return ""
    if dimension.kind == "choice":
        kinds = sorted({str(value) for value in values})
        return f"{dimension.name} {', '.join(kinds)}" if len(kinds) < len(dimension.choices) else ""
    low, high = min(float(one) for one in values), max(float(one) for one in values)
    if _share(dimension, low, high) > _WHOLE:
        return ""
    return f"{dimension.name} {low:.3g} to {high:.3g}"


def _share(dimension: Dimension, low: float, high: float) -> float:
    """Return which share of its range lies between two values."""
    along = math.log if dimension.log else float
    whole = along(dimension.high) - along(dimension.low)
    return (along(high) - along(low)) / whole
