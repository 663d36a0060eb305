"""Studies of an accuracy, and trials in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vinedresser.infra.configuration import build
from vinedresser.sweeps.settings import SweepTable
from vinedresser.sweeps.space import Space
from vinedresser.sweeps.study import Study
from vinedresser.sweeps.trial import Proposal, TrialEnd

__all__ = ["FINISHED", "SPACE", "SUSPECTED", "begin", "run", "sound", "study"]

SPACE = Space.parse({"lr": {"log": [1e-3, 1.0]}, "act": ["relu", "tanh"]}, "space")
FINISHED = TrialEnd("finished")
SUSPECTED = TrialEnd("stopped", "the weights are zero", "all_zero", "dead", "do not")


def study(path: Path | None = None, space: Space = SPACE, **settings: Any) -> Study:
    """Return a study of accuracies."""
    table = {"metric": "accuracy", "direction": "maximize", "trials": 30, **settings}
    return Study(build(SweepTable, table, "sweep.toml: sweep"), space, path)


def begin(one: Study) -> Proposal:
    """Return the next trial, which there has to be."""
    proposal = one.ask()
    assert proposal is not None
    return proposal


def run(one: Study, values: list[float]) -> TrialEnd:
    """Run a trial that reports some values, unless it is ended before."""
    number = begin(one).number
    for epoch, value in enumerate(values, start=1):
        if ending := one.report(number, epoch, value):
            return one.tell(number, ending).ending
    return one.tell(number, FINISHED, [values[-1]]).ending


def sound(one: Study, values: list[float]) -> None:
    """Run trials that nobody suspects, of one epoch each."""
    for value in values:
        number = begin(one).number
        one.tell(number, one.report(number, 1, value) or FINISHED, [value])
