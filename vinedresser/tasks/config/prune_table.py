"""What the table ``[prune]`` of a prune file and of a sweep file have in common."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from vinedresser.errors import ConfigError, LaunchError
from vinedresser.infra.command_line import resolved_command
from vinedresser.infra.supervise.launcher import check_command
from vinedresser.pruning.rounds.settings import PREFIX, PruneTable
from vinedresser.tasks.config.experiment import Experiment
from vinedresser.tasks.config.run_spec import refuse_missing_package

__all__ = ["checked_table", "with_entry"]


def with_entry(run: object, entry: str, path: Path, unsupported: Iterable[str]) -> object:
    """Return the table ``[run]`` with the entry that executes rounds.

    Args:
        run: the table of the file.
        entry: the entry, ``module:function``.
        path: the file.
        unsupported: keys that may not be in the table, besides those of a command.

    Raises:
        ConfigError: the table has one of them.
    """
    if not isinstance(run, Mapping):
        return run
    for key in ("command", "entry", *unsupported):
        if key in run:
            raise ConfigError(f"{path}: run.{key}: not supported in a pruning; see prune.train")
    return {**run, "entry": entry}


def checked_table(table: PruneTable, experiment: Experiment) -> PruneTable:
    """Return the settings of a pruning with the absolute path of the weights.

    Args:
        experiment: the file's experiment.

    Raises:
        ConfigError: a package, the command's program or script, or the weights are missing, or the
            experiment does not suit a pruning.
    """
    path = experiment.path
    if experiment.runner.name != "local":
        raise ConfigError(f"{path}: run.runner: a pruning runs on this machine; remove it")
    if experiment.remedy.restarts:
        raise ConfigError(f"{path}: remedy.restarts: set prune.retries")
    if table.command is not None:
        _check_command(table.command, experiment)
    for key, reference in table.functions.items():
        refuse_missing_package(reference, experiment.cwd, f"{path}: prune.{key}")
    for name in experiment.run.parameters:
        if name.startswith(PREFIX):
            raise ConfigError(f"{path}: run.parameters.{name}: names may not begin with {PREFIX}")
    elsewhere = "weights" in table.functions or table.tracked_weights is not None
    if table.weights is None or elsewhere:
        return table
    weights = (path.parent / Path(table.weights).expanduser()).resolve()
    if not weights.exists():
        raise ConfigError(f"{path}: prune.weights: {weights}: no such file or folder")
    return replace(table, weights=str(weights))


def _check_command(command: Sequence[str], experiment: Experiment) -> None:
    """Refuse a command that cannot be started, or that no rule would judge."""
    if not experiment.run.attach:
        raise ConfigError(
            f"{experiment.path}: run.attach: must be true with a command as prune.train: each "
            "fine-tuning is an additional run"
        )
    try:
        environment = experiment.specs[0].environment
        check_command(resolved_command(command), experiment.cwd, environment)
    except LaunchError as error:
        raise ConfigError(f"{experiment.path}: prune.train: {error}") from error
