"""The trials of another sweep, from which a sweep may learn before its own first one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from optuna.distributions import (
    BaseDistribution,
)
from optuna.trial import FrozenTrial, TrialState, create_trial

from vinedresser.errors import ConfigError
from vinedresser.infra.catalog.stores import local_state
from vinedresser.objects import LocalStorage
from vinedresser.store.records import read_record
from vinedresser.sweeps.dimension import Choice
from vinedresser.sweeps.journal import read_journal
from vinedresser.sweeps.proposer import CHOSEN, KNOWN, Suggested
from vinedresser.sweeps.settings import SweepTable
from vinedresser.sweeps.space import Space
from vinedresser.sweeps.spec import SweepRecord

__all__ = ["KnownTrials", "known_trials"]

# A finished trial is a member of the first generation.
_GENERATION = {"NSGAIISampler:generation": 0}
_CONSTRAINTS = "constraints:"


class KnownTrials(NamedTuple):
    """The finished trials of another sweep whose configurations fit a space.

    Attributes:
        trials: the trials, with the distributions of that space.
        finished: number of its finished trials, also of those that do not fit.
        name: name of the other sweep.
    """

    trials: tuple[FrozenTrial, ...]
    finished: int
    name: str
    id: str

    @property
    def said(self) -> str:
        """How many trials are known, as a clause."""
        return f"starts from {len(self.trials)} of {self.finished} finished trials of {self.name}"


def known_trials(place: Path, settings: SweepTable, space: Space, where: str) -> KnownTrials:
    """Return what is known from another sweep.

    A trial fits if its configuration is complete and in the ranges of the space, and if it has a
    value for each constraint.

    Args:
        place: store of the other sweep.
        settings: settings of the sweep that starts.
        space: its search space.
        where: prefix of messages.

    Raises:
        ConfigError: there is no sweep, it has other objectives, or no trial fits.
        CorruptData: its journal cannot be read.
        StoreError: the folder cannot be read.
    """
    state = local_state(place)
    record = read_record(LocalStorage(state), SweepRecord)
    if record is None:
        raise ConfigError(f"{where}: {place} is not the folder of a sweep, such as runs/NAME")
    wanted = [asdict(goal) for goal in settings.goals]
    if record.objectives != wanted:
        raise ConfigError(
            f"{where}: its objective is {_said(record.objectives)}, and that of this sweep is "
            f"{_said(wanted)}"
        )
    finished = [
        trial
        for trial in read_journal(state / SweepRecord.LOCK)
        if trial.state is TrialState.COMPLETE and KNOWN not in trial.user_attrs
    ]
    fitting = [_fitted(trial, settings, space, record.name) for trial in finished]
    known = tuple(trial for trial in fitting if trial is not None)
    if not known:
        raise ConfigError(
            f"{where}: none of the {len(finished)} finished trials of {record.name} fits the space"
        )
    return KnownTrials(known, len(finished), record.name, record.id)


def _said(objectives: Sequence[dict[str, Any]]) -> str:
    """Return objectives in words; those of the other sweep may lack a key."""
    return " and ".join(
        f"{one.get('metric')} ({one.get('direction')}, {one.get('value')}, {one.get('mode')})"
        for one in objectives
    )


def _fitted(
    trial: FrozenTrial, settings: SweepTable, space: Space, name: str
) -> FrozenTrial | None:
    """Return a trial as one of a space; None if it does not fit."""
    given = trial.user_attrs.get(CHOSEN, trial.params)
    try:
        point = space.point(given, "")
    except ConfigError:
        return None
    if not space.is_whole(point):
        return None
    constraints = {
        f"{_CONSTRAINTS}{one.name}": trial.constraints.get(one.name) for one in settings.constraints
    }
    values = trial.values or []
    if len(values) != len(settings.goals) or not all(map(_is_finite, values)):
        return None
    if not all(map(_is_finite, constraints.values())):
        return None
    suggester = _Values(point)
    params = space.suggest(suggester)
    return create_trial(
        values=values,
        params=params,
        distributions=suggester.distributions,
        user_attrs={KNOWN: f"{name} {trial.number}", CHOSEN: params},
        system_attrs={**_GENERATION, **constraints},
    )


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


class _Values(Suggested):
    """Proposes given values, and notes their distributions; see `Suggester`."""

    def __init__(self, given: dict[str, Choice]) -> None:
        self._given = given
        self.distributions: dict[str, BaseDistribution] = {}

    def _value(self, name: str, distribution: BaseDistribution) -> Any:
        self.distributions[name] = distribution
        return self._given[name]
