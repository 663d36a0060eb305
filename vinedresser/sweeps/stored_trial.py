"""A trial as Optuna keeps it, and as the sweep sees it."""

from __future__ import annotations

from collections.abc import Mapping

from optuna.trial import FrozenTrial
from optuna.trial import TrialState as OptunaState

from vinedresser.store.json_values import known_fields, shown
from vinedresser.sweeps.proposer import CHOSEN
from vinedresser.sweeps.pruners import ENDING
from vinedresser.sweeps.trial import Line, Trial, TrialEnd

__all__ = ["AGAIN", "EPOCH", "LINE", "line", "reported", "stored_trial"]

# User attributes of a trial: number of the best one that it trains again, and the seed; its place
# in a population, as a list of the fields of a `Line`.
AGAIN, LINE = "again", "line"
# And the beginning of those of its values with several objectives, before the number of the epoch.
EPOCH = "epoch "


def stored_trial(found: FrozenTrial, retried: Mapping[int, int]) -> Trial:
    """Return a trial.

    Args:
        found: the trial in Optuna.
        retried: by the number of a failed trial, that of the trial that tries it again.

    Raises:
        TypeError, ValueError: a journal has something else.
    """
    parameters = found.user_attrs.get(CHOSEN, {})
    if not isinstance(parameters, dict):
        raise TypeError(f"trial {found.number} has the configuration {shown(parameters)}")
    return Trial(
        number=found.number,
        parameters=parameters,
        values=reported(found),
        result=tuple(found.values) if found.state is OptunaState.COMPLETE else (),
        ending=_ending(found),
        retried_as=retried.get(found.number),
        excess=found.constraints,
        again=_again(found),
        line=line(found),
    )


def reported(found: FrozenTrial) -> dict[int, float]:
    """Return the values of the first objective by epoch."""
    several = {
        int(name.removeprefix(EPOCH)): value
        for name, value in found.user_attrs.items()
        if name.startswith(EPOCH)
    }
    return several or dict(found.intermediate_values)


def line(found: FrozenTrial) -> Line | None:
    """Return the place of a trial in a population; None without one.

    Raises:
        TypeError, ValueError: a journal has something else.
    """
    given = found.user_attrs.get(LINE)
    if given is None:
        return None
    generation, member, parent, copied = given
    if parent is not None and not (type(parent) is int and 0 <= parent < found.number):
        raise ValueError(f"trial {found.number} continues trial {shown(parent)}")
    return Line(int(generation), int(member), parent, bool(copied))


def _again(found: FrozenTrial) -> tuple[int, int] | None:
    """Return which trial one trains again, and with which seed."""
    again = found.user_attrs.get(AGAIN)
    if again is None:
        return None
    number, seed = again
    return int(number), int(seed)


def _ending(found: FrozenTrial) -> TrialEnd:
    ending = found.user_attrs.get(ENDING)
    if not ending or not found.state.is_finished():
        return TrialEnd("running")
    return TrialEnd(**known_fields(TrialEnd, ending))
