"""A sweep file whose trials are prunings: the table ``[prune]`` beside ``[sweep]`` and ``[space]``.

The space may have settings of that table (``prune.criterion = ["l1", "l2"]``) and parameters of the
fine-tuning (``lr = { log = [1e-4, 0.1] }``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from vinedresser.errors import ConfigError
from vinedresser.infra.configuration import build
from vinedresser.pruning.rounds.settings import PREFIX, PruneTable
from vinedresser.pruning.rounds.whole_pruning import ENTRY
from vinedresser.sweeps.dimension import Choice, Dimension
from vinedresser.sweeps.space import Space
from vinedresser.tasks.config.experiment import Experiment
from vinedresser.tasks.config.prune_table import checked_table, with_entry

__all__ = ["as_training", "shared_table", "with_settings"]

_NAME = PREFIX.removesuffix(".")
# Settings of a pruning that a sweep does not have, and what is to be done instead.
_OTHERS = {
    "retries": "set sweep.retries",
    "register": "register the chosen result, or prune once more with its settings",
}


def as_training(document: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Return a sweep file whose trials have an entry, and whose space is flat.

    Args:
        document: contents of the file, with a table ``[prune]``.

    Raises:
        ConfigError: a key is not supported in a sweep of prunings.
    """
    changed = dict(document)
    if isinstance(run := changed.get("run"), Mapping):
        if run.get("attach") is False:
            raise ConfigError(
                f"{path}: run.attach: must be true in a sweep of prunings: each round is an "
                "additional run"
            )
        changed["run"] = with_entry(run, ENTRY, path, [])
    if isinstance(sweep := changed["sweep"], Mapping) and "resume" in sweep:
        raise ConfigError(
            f"{path}: sweep.resume: not supported in a sweep of prunings, which continue with the "
            "round that was interrupted"
        )
    if isinstance(sweep, Mapping) and "register" in sweep:
        raise ConfigError(
            f"{path}: sweep.register: not supported in a sweep of prunings; {_OTHERS['register']}"
        )
    if isinstance(space := changed["space"], Mapping):
        changed["space"] = _flat(space)
    return changed


def shared_table(experiment: Experiment, given: object, space: Space) -> PruneTable:
    """Return the settings of the prunings, with the first values of those in the space.

    Args:
        experiment: experiment of the sweep file.
        given: table ``[prune]`` of the file.
        space: the search space.

    Raises:
        ConfigError: a setting is invalid, also one in the space, or set twice.
    """
    path = experiment.path
    if not isinstance(given, Mapping):
        raise ConfigError(f"{path}: prune: must be a table, not {given!r}")
    searched = _searched(space)
    _refuse_others(path, given, searched)
    always = {_key(one): _values(one)[0] for one in searched if not one.when}
    table = checked_table(build(PruneTable, {**given, **always}, f"{path}: prune"), experiment)
    for one in searched:
        for value in _values(one):
            proposed = {**given, **always, _key(one): value}
            checked_table(build(PruneTable, proposed, f"{path}: space.{_NAME}"), experiment)
    return table


def with_settings(experiment: Experiment, table: PruneTable, space: Space) -> Experiment:
    """Return an experiment whose runs have as parameters the settings that trials share."""
    settings = table.to_parameters()
    for one in _searched(space):
        if not one.when:
            settings.pop(one.name, None)
    specs = [replace(spec, parameters=spec.parameters | settings) for spec in experiment.specs]
    return replace(experiment, specs=tuple(specs))


def _searched(space: Space) -> list[Dimension]:
    """Return the settings of the prunings in the space."""
    return [dimension for dimension in space.dimensions if dimension.name.startswith(PREFIX)]


def _flat(space: Mapping[str, Any]) -> dict[str, Any]:
    """Return a space in which TOML's ``prune.criterion``, a key of a table, is a name."""
    flat: dict[str, Any] = {}
    for name, entry in space.items():
        inner = entry if name == _NAME and isinstance(entry, Mapping) else None
        flat |= {name: entry} if inner is None else {f"{PREFIX}{key}": inner[key] for key in inner}
    return flat


def _refuse_others(path: Path, given: Mapping[str, Any], searched: list[Dimension]) -> None:
    """Refuse settings that are set twice or have no effect."""
    for key, other in _OTHERS.items():
        if key in given:
            raise ConfigError(f"{path}: prune.{key}: not supported in a sweep; {other}")
    for one in searched:
        if _key(one) in given:
            raise ConfigError(f"{path}: space.{one.name}: also in prune; remove one of them")
        if _key(one) in (*_OTHERS, "weights"):
            raise ConfigError(f"{path}: space.{one.name}: cannot be searched")


def _key(dimension: Dimension) -> str:
    return dimension.name.removeprefix(PREFIX)


def _values(dimension: Dimension) -> list[Choice]:
    """Return the choices of a dimension, or the ends of its range."""
    if dimension.kind == "choice":
        return list(dimension.choices)
    ends = dimension.low, dimension.high
    return [int(end) if dimension.kind == "int" else end for end in ends]
