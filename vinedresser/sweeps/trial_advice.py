"""What to change in a broken trial, in view of the other trials of its sweep."""

from __future__ import annotations

import re
from collections.abc import Sequence

from vinedresser.sweeps.trial import Trial

# As rules propose a value of a hyperparameter, such as "lr 0.001 instead of 0.01".
_PROPOSAL = re.compile(r"(?P<name>\S+) (?P<new>\S+) instead of (?P<old>\S+)")


def trial_advice(trial: Trial, best: Sequence[Trial]) -> str:
    """Return the remedy of a trial that a rule found broken; "" without one.

    The rule saw this trial only. If it proposes a value for a hyperparameter that the sweep
    searches, the best trial knows better: its value is proposed instead or, if it lies on the
    other side, none.

    Args:
        best: the best trial, or the Pareto front; empty if none has finished.
    """
    clauses = trial.ending.remedy.split("; ")
    return (
        "; ".join(_clause(clause, trial, best[0]) for clause in clauses)
        if best
        else "; ".join(clauses)
    )


def _clause(text: str, trial: Trial, best: Trial) -> str:
    """Return a clause of a remedy, with the value of the best trial if it proposes one."""
    found = _PROPOSAL.fullmatch(text)
    if found is None or found["name"] not in trial.parameters:
        return text
    name = found["name"]
    new, old, value = _number(found["new"]), _number(found["old"]), best.parameters.get(name)
    if new is None or old is None or not isinstance(value, int | float):
        return text
    if value != old and (value < old) == (new < old):
        return f"{name} {value:.3g} instead of {found['old']}, as {best.name} has, the best trial"
    return (
        f"{best.name}, the best trial, has {name} {value:.3g}: compare the other hyperparameters "
        "with it"
    )


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
