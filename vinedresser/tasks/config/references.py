"""The good runs of a script, named by the user or the last ones in the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import PurePath
from typing import Any

from vinedresser.errors import ConfigError, CorruptData, NotARun
from vinedresser.explain.verdicts import verdict
from vinedresser.objects import Location, parse_location
from vinedresser.rules.registry import RULES
from vinedresser.rules.stated.good_runs import GoodRuns
from vinedresser.store.finding import Finding
from vinedresser.store.reading.reader import Run, open_run
from vinedresser.store.reading.store_runs import runs_in
from vinedresser.store.run_settings import is_label, is_seed, script_name, without_seeds

__all__ = ["AUTO", "good_runs_for"]

AUTO = "auto"
"""Stands for the last good runs of the same script."""

_MOST = 5


def good_runs_for(
    given: Sequence[str],
    store: Location,
    command: Sequence[str],
    parameters: Mapping[str, Any],
    *,
    where: str,
) -> GoodRuns | None:
    """Return the good runs that a run is compared with; None if there are none.

    "auto" takes up to five of the last runs of the script in the store whose verdict is healthy:
    those with the same parameters or arguments, seeds aside, or else those that have them in
    common with the last of them.

    Args:
        given: locations of the runs, or "auto" alone.
        store: store of the run.
        command: program of the run and its arguments.
        parameters: hyperparameters of the run.
        where: beginning of messages.

    Raises:
        ConfigError: a run does not exist, did not end well, or is of another script.
    """
    script = script_name(command)
    if [*given] != [AUTO]:
        places = [_checked(one, script, where) for one in given]
    else:
        places = _last_good(store, script, _chosen(command, parameters))
    if not places:
        return None
    found = _read(tuple(str(place) for place in places))
    return found if [*given] != [AUTO] else replace(found, named=())


@lru_cache(maxsize=16)
def _read(places: tuple[str, ...]) -> GoodRuns:
    return GoodRuns.of({PurePath(place).name: open_run(parse_location(place)) for place in places})


def _checked(given: str, script: str, where: str) -> Location:
    """Return the location of a run that the user calls good."""
    place = parse_location(given)
    try:
        run = open_run(place)
    except NotARun as error:
        raise ConfigError(f"{where}: {given}: no such run") from error
    except CorruptData as error:
        raise ConfigError(f"{where}: {given}: cannot be read: {error}") from error
    found = verdict(run)
    if found.status.state != "finished" or any(map(_is_critical, found.findings)):
        raise ConfigError(
            f"{where}: {given}: is no good run: {found.words}; name one that finished without a "
            "critical problem"
        )
    if (other := script_name(run.info.command or [run.info.name])) != script:
        raise ConfigError(f"{where}: {given}: is a run of {other}, not of {script}")
    return place


def _is_critical(finding: Finding) -> bool:
    """Return whether a finding would end a run, if its preset let it."""
    rule = RULES.get(finding.rule)
    stops = rule is not None and rule.severity == "stop" and finding.severity == "warning"
    return stops or finding.severity == "stop"


def _last_good(store: Location, script: str, chosen: object) -> list[Location]:
    """Return the last good runs of a script, the oldest first."""
    known: list[tuple[float, Location, Run]] = []
    for place in runs_in(store):
        try:
            run = open_run(place)
        except (CorruptData, NotARun):
            # A run of which nothing is known is no reference.
            continue
        if run.info.command and script_name(run.info.command) == script:
            known.append((run.info.created, place, run))
    known.sort(key=lambda one: -one[0])
    same = [one for one in known if _chosen(one[2].info.command, one[2].info.parameters) == chosen]
    found: list[Location] = []
    common: object = None
    for _, place, run in [*same, *(one for one in known if one not in same)]:
        own = _chosen(run.info.command, run.info.parameters)
        wanted = len(found) < _MOST and (common is None or own == common)
        if wanted and verdict(run).kind == "healthy":
            found.append(place)
            common = own
    return found[::-1]


def _chosen(command: Sequence[str], parameters: Mapping[str, Any]) -> object:
    """Return the parameters of a run without seeds and labels, or else its arguments."""
    if parameters:
        kept = (name for name in parameters if not is_seed(name) and not is_label(name))
        return {name: parameters[name] for name in kept}
    return [*without_seeds(command)]
