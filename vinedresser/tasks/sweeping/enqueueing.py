"""Configurations that a person adds to a sweep, also while it runs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vinedresser.errors import ConfigError
from vinedresser.infra.catalog.stores import local_state
from vinedresser.objects import LocalStorage, Location
from vinedresser.store.records import read_record, write_numbered
from vinedresser.sweeps.dimension import Choice
from vinedresser.sweeps.journal import read_journal
from vinedresser.sweeps.proposer import CHOSEN, KNOWN
from vinedresser.sweeps.space import Space
from vinedresser.sweeps.spec import PointRecord, SweepRecord, point_key
from vinedresser.sweeps.trial import trial_name
from vinedresser.tasks.parents.kinds import is_held


def enqueue(place: Location, given: Sequence[str]) -> str:
    """Add a configuration to a sweep, which tries it next.

    Args:
        place: store of the sweep.
        given: hyperparameters, ``name=value`` each; those that are missing will be proposed.

    Returns:
        What will be tried, and when, as a sentence.

    Raises:
        ConfigError: there is no sweep, a value is not in its space, or it was tried before.
        CorruptData: the record or the journal of the sweep cannot be read.
        StoreError: the folder cannot be written.
    """
    state = local_state(place)
    storage = LocalStorage(state)
    record = read_record(storage, SweepRecord)
    if record is None:
        raise ConfigError(f"{place}: not the folder of a sweep, such as runs/NAME")
    if record.population is not None:
        raise ConfigError(
            f"{place}: its configurations come from its population; give some in sweep.points "
            "before it begins"
        )
    space = Space.from_json(record.space, f"{place}: space")
    point = _point(space, given)
    if space.is_whole(point):
        _refuse_tried(point, space, state / SweepRecord.LOCK)
    number = write_numbered(storage, PointRecord(point), point_key)
    told = ", ".join(f"{name} {value}" for name, value in point.items())
    if not is_held(state, SweepRecord):
        return f"{told}: number {number + 1} in the queue; the sweep is over, --resume tries it"
    return f"{told}: number {number + 1} in the queue, tried as soon as there is room"


def _point(space: Space, given: Sequence[str]) -> dict[str, Choice]:
    point: dict[str, Choice] = {}
    for one in given:
        name, sign, text = one.partition("=")
        if not sign or not name or name in point:
            raise ConfigError(f"{one!r}: must be NAME=VALUE, each name once, such as lr=0.01")
        point |= _value(space, name, text)
    return point


def _value(space: Space, name: str, text: str) -> Mapping[str, Choice]:
    """Return the value of a hyperparameter: a number, true or false, a list, or else a text."""
    try:
        value: Any = json.loads(text)
    except ValueError:
        value = text
    # The choice "16" among texts may be meant, too.
    choices = {one.name: one.choices for one in space.dimensions}
    if value != text and text in choices.get(name, ()):
        value = text
    return space.point({name: value}, "enqueue")


def _refuse_tried(point: Mapping[str, Choice], space: Space, path: Path) -> None:
    key = space.key(point)
    for trial in read_journal(path):
        try:
            tried = space.point(trial.user_attrs.get(CHOSEN), "journal")
        except ConfigError:
            # It waits for a configuration.
            continue
        if KNOWN not in trial.user_attrs and space.key(tried) == key:
            raise ConfigError(f"{trial_name(trial.number)} has this configuration already")
