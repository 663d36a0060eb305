"""Broken trials by fault, and the part of the search space where they lie."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from vinedresser.sweeps.dimension import Dimension
from vinedresser.sweeps.space import Space
from vinedresser.sweeps.trial import Trial
from vinedresser.sweeps.trial_advice import trial_advice

__all__ = ["Cause", "causes"]

# Trials needed to speak of a part of the space.
_FEW = 3
# Share of a range above which it counts as the whole range.
_WHOLE = 0.6


@dataclass(frozen=True)
class Cause:
    """Trials in which rules found one fault: stopped ones, and pruned ones.

    Attributes:
        fault: the fault in words.
        rules: rules that found it.
        trials: the trials, by number.
        where: part of the search space where they lie; "" if it is not a proper part.
        example: a trial, one that was stopped if there is any.
        remedy: what to change in the example, in view of the best trial; "" if unknown.
    """

    fault: str
    rules: tuple[str, ...]
    trials: tuple[Trial, ...]
    where: str
    example: Trial
    remedy: str


def causes(trials: Sequence[Trial], space: Space, best: Sequence[Trial]) -> list[Cause]:
    """Return the faults of stopped and pruned trials, the most frequent first.

    Args:
        trials: trials of the sweep.
        space: search space of the sweep.
        best: the best trial, or the Pareto front; empty if none has finished.
    """
    groups: dict[str, list[Trial]] = {}
    for trial in trials:
        ending = trial.ending
        if ending.state == "stopped" or (ending.state == "pruned" and ending.rule):
            groups.setdefault(ending.fault or ending.rule or "other", []).append(trial)
    found = []
    for fault, group in groups.items():
        example = next((one for one in group if one.ending.state == "stopped"), group[0])
        found.append(
            Cause(
                fault=fault.replace("_", " "),
                rules=tuple(dict.fromkeys(one.ending.rule for one in group if one.ending.rule)),
                trials=tuple(group),
                where=", ".join(filter(None, (_part(one, group) for one in space.dimensions))),
                example=example,
                remedy=trial_advice(example, best),
            )
        )
    return sorted(found, key=lambda cause: len(cause.trials), reverse=True)


def _part(dimension: Dimension, group: Sequence[Trial]) -> str:
    """Return the range of a hyperparameter in these trials; "" if it is nearly the whole range."""
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
    """Return the share of the range that lies between two values."""
    along = math.log if dimension.log else float
    whole = along(dimension.high) - along(dimension.low)
    return (along(high) - along(low)) / whole
