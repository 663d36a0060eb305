"""`prune.toml`: an experiment file with the settings of a pruning.

    [prune]          model, example, train, evaluate, criterion, amount, rounds, targets and limits:
                     `pruning.rounds.settings`
    [run] and the other tables: as in an experiment file (`config.experiment`), without command,
                     entry and variants; the parameters are those of the fine-tuning

The rounds are the runs of a separate store, ``STORE/NAME``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vinedresser.errors import ConfigError
from vinedresser.infra.catalog.stores import local_state
from vinedresser.infra.configuration import build, load_toml
from vinedresser.pruning.folders import round_folder
from vinedresser.pruning.rounds.round_record import RoundRecord
from vinedresser.pruning.rounds.round_run import ENTRY, FOLDER, NUMBER
from vinedresser.pruning.rounds.settings import PruneTable
from vinedresser.pruning.spec import PruningRecord
from vinedresser.tasks.config.experiment import Experiment, experiment_of, overridden
from vinedresser.tasks.config.parent_file import ParentFile, with_own_store
from vinedresser.tasks.config.prune_table import checked_table, with_entry
from vinedresser.tasks.config.run_spec import RunSpec

__all__ = ["Pruning", "load_pruning", "pruning_of"]

_ROUND = re.compile(r"round-(\d+)")


@dataclass(frozen=True)
class Pruning(ParentFile):
    """A checked prune file.

    Attributes:
        experiment: settings that the rounds share; its store is the pruning's own.
        table: settings of the pruning.
        origin: folder of the pruning from which it is branched, and the number of the last round
            that they share; None: it begins with the unpruned model.
    """

    RECORD = PruningRecord

    table: PruneTable
    origin: tuple[Path, int] | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """The settings as parameters of a run, which finds the weights on this machine."""
        table = self.table
        if table.tracked_weights is not None:
            table = replace(table, weights=str(self.fetched_weights))
        return table.to_parameters()

    def run_spec(self, number: int) -> RunSpec:
        """Return the run specification of a round."""
        shared = self.experiment.specs[0]
        settings = {**self.settings, FOLDER: str(self.state), NUMBER: number}
        parameters = {**shared.parameters, **settings}
        return replace(shared, name=f"round-{number}", parameters=parameters)


def load_pruning(
    path: Path, *, store: Path | str | None = None, branch: str | None = None
) -> Pruning:
    """Read and check a prune file.

    Args:
        store: overrides ``run.store``, the directory that gets the pruning's own store.
        branch: "round-3": begin with that round of the pruning with this name, under the name
            NAME-from-3.

    Raises:
        ConfigError: the file is invalid; the message names the key and what is expected.
    """
    return pruning_of(load_toml(path), path, store=store, branch=branch)


def pruning_of(
    document: Mapping[str, Any],
    path: Path,
    *,
    store: Path | str | None = None,
    branch: str | None = None,
) -> Pruning:
    """Check a prune file that has been read; see `load_pruning`."""
    if "prune" not in document:
        raise ConfigError(f"{path}: prune: missing; it defines the model and more")
    for other in ("variants", "sweep", "space"):
        if other in document:
            raise ConfigError(f"{path}: {other}: not supported in a pruning")
    table = build(PruneTable, document["prune"], f"{path}: prune")
    rest = {key: value for key, value in document.items() if key != "prune"}
    if "run" in rest:
        rest["run"] = with_entry(rest["run"], ENTRY, path, ["max_concurrent"])
    rest = overridden(rest, store=store, max_concurrent=1)
    experiment = replace(experiment_of(rest, path, trials=1), document=document)
    return _placed(experiment, checked_table(table, experiment), branch)


def _placed(experiment: Experiment, table: PruneTable, branch: str | None) -> Pruning:
    """Return a pruning in its own store."""
    name = experiment.run.name
    if branch is None:
        return Pruning(with_own_store(experiment, name), table)
    match = _ROUND.fullmatch(branch)
    if match is None:
        raise ConfigError(f'--from {branch}: must name a round of {name}, such as "round-3"')
    origin = local_state(experiment.store / name), int(match[1])
    if not (round_folder(*origin) / RoundRecord.KEY).is_file():
        raise ConfigError(
            f"--from {branch}: {round_folder(*origin)}: no such round of {name}, or incomplete"
        )
    return Pruning(with_own_store(experiment, f"{name}-from-{origin[1]}"), table, origin)
