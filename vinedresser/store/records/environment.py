"""Environment variables of the processes of a run."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from vinedresser.processes import Environment

__all__ = [
    "ATTACH_VARIABLE",
    "FLOW_VARIABLE",
    "HOST_VARIABLE",
    "KEEP_MODEL_VARIABLE",
    "PREFLIGHT_VARIABLE",
    "METRICS_VARIABLE",
    "MLFLOW_VARIABLE",
    "RANK_VARIABLE",
    "REPLAY_KERAS_VARIABLE",
    "REPLAY_VARIABLE",
    "RUN_ID_VARIABLE",
    "RUN_VARIABLE",
    "STACKS_VARIABLE",
    "WORLD_SIZE_VARIABLE",
    "environment_without_run",
    "started_for",
]

# Set for a launched trainer: the location of its run, the run's id (which marks all descendants),
# and, for distributed trainings, the rank, and the number of ranks of the run if others belong to
# other runs.
RUN_VARIABLE = "VINEDRESSER_RUN"
RUN_ID_VARIABLE = "VINEDRESSER_RUN_ID"
RANK_VARIABLE = "VINEDRESSER_RANK"
WORLD_SIZE_VARIABLE = "VINEDRESSER_WORLD_SIZE"
# Set for the ranks of a run on several hosts: the number of the process that has started them.
HOST_VARIABLE = "VINEDRESSER_HOST"
# Set to capture a script that creates no hook: a directory with libraries of the launcher.
ATTACH_VARIABLE = "VINEDRESSER_ATTACH"
# Set for a trainer: the process id of its supervisor, and the descriptor to which it writes on
# request where it stands.
STACKS_VARIABLE = "VINEDRESSER_STACKS"
# Set for helper processes of a flow: the flow's id. Supervisors and trainers do not have it.
FLOW_VARIABLE = "VINEDRESSER_FLOW"
# Set for the script of a pre-flight check: its settings as JSON.
PREFLIGHT_VARIABLE = "VINEDRESSER_PREFLIGHT"
# Set for a script in which the step of a snapshot is run again: its settings as JSON.
REPLAY_VARIABLE = "VINEDRESSER_REPLAY"
# The same for a snapshot of Keras.
REPLAY_KERAS_VARIABLE = "VINEDRESSER_REPLAY_KERAS"
# Set for a script that may log to MLflow: MLflow's version, and the ids of the experiment and the
# MLflow run of its run, separated by slashes.
MLFLOW_VARIABLE = "VINEDRESSER_MLFLOW"

# Set for a training in whose output metrics are searched: their regexes by name as JSON.
METRICS_VARIABLE = "VINEDRESSER_METRICS"
# Set for a training that saves a checkpoint at its end, too.
KEEP_MODEL_VARIABLE = "VINEDRESSER_KEEP_MODEL"

_VARIABLES = frozenset(
    (
        *(RUN_VARIABLE, RUN_ID_VARIABLE, RANK_VARIABLE, WORLD_SIZE_VARIABLE, HOST_VARIABLE),
        *(ATTACH_VARIABLE, FLOW_VARIABLE, PREFLIGHT_VARIABLE, STACKS_VARIABLE),
        *(REPLAY_VARIABLE, REPLAY_KERAS_VARIABLE, MLFLOW_VARIABLE, METRICS_VARIABLE),
        KEEP_MODEL_VARIABLE,
    )
)


def environment_without_run() -> dict[str, str]:
    """Return the environment without the variables above."""
    names = _VARIABLES
    if MLFLOW_VARIABLE in os.environ:
        # That of the run, too.
        names = names | {"MLFLOW_TRACKING_URI"}
    return {name: value for name, value in os.environ.items() if name not in names}


def started_for(directory: Path, run_id: str) -> Callable[[Environment], bool]:
    """Return a function that returns whether a process was started for a run at this very place.

    The records of a run do not prove that a process is part of it: they may have been copied with
    the directory, or written by another person. The environment of a process does.

    Args:
        directory: the run directory. Other paths to the same directory count, copies of it do not.
        run_id: the run's id.
    """

    def belongs(environment: Environment) -> bool:
        place = environment.get(RUN_VARIABLE, "")
        return environment.get(RUN_ID_VARIABLE) == run_id and _is_same(place, directory)

    return belongs


def _is_same(place: str, directory: Path) -> bool:
    try:
        return os.path.isabs(place) and os.path.samefile(place, directory)
    except FileNotFoundError:
        # The directory was removed, but its processes may live.
        return place == os.path.abspath(directory)
    except (OSError, ValueError):
        return False
